"""One of two processes of `jax.distributed` on the CPU. Only JAX knows their ranks. Arguments: the coordinator's address and the number."""

import json
import sys
import time

import jax

jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
step = jax.jit(lambda x: (x @ x).sum())
for _ in range(5):
    step(jax.numpy.ones((128, 128))).block_until_ready()
print(json.dumps({"rank": jax.process_index(), "processes": jax.process_count()}), flush=True)
time.sleep(0.5)
