"""Failures made on purpose on a real GPU: is the first sentence of `vramline oom` the true cause, and does its first advice help?

    python tests/gpu/failures.py OUT [CASE ...]     # needs PyTorch and JAX with CUDA, and vramline installed

Each case is a job that dies, and the same job with the first advice followed, which must pass. The logs are kept under OUT: those of an
H200 are fixtures, and `crates/vramline/tests/it/oom.rs` reads them where there is no GPU. TensorFlow's cases are in
`tests/python/test_deaths.py`, on its pool for the CPU.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

GIB = 1 << 30

TORCH = """
import os, sys, torch
GIB = 1 << 30
total = torch.cuda.get_device_properties(0).total_memory
def layers(share):
    # Activations of a deep network that take this share of the device, beside its own parameters.
    width, depth = 8192, 24
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(depth)]).cuda()
    batch = int(total * share / (2 * depth * width * 4)) // 128 * 128
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(2):
        loss = net(torch.randn(batch, width, device="cuda")).square().mean()
        loss.backward(); optimizer.step(); optimizer.zero_grad()
    torch.cuda.synchronize()
def pieces():
    large = [torch.empty(14 * GIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    large.clear()
    # Each takes more than half of a block, so that none is free as a whole.
    small = [torch.empty(8 * GIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    torch.empty(34 * GIB, dtype=torch.uint8, device="cuda")
def leak(keep):
    net = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    losses = []
    for step in range(60):
        loss = (net(torch.randn(65536, 4096, device="cuda")) ** 2).mean()
        losses.append(keep(loss)); loss.backward(retain_graph=keep is not float); optimizer.step(); optimizer.zero_grad()
case = sys.argv[1]
if case == "limit": torch.cuda.set_per_process_memory_fraction(float(sys.argv[2]))
if case == "far": layers(float(sys.argv[2]))
elif case == "limit": layers(0.3)
elif case == "neighbour": layers(0.4)
elif case == "pieces": pieces()
elif case == "leak": leak(float if sys.argv[2] == "float" else lambda loss: loss)
print("passed")
"""

HOLDER = """
import sys, time, torch
held = torch.empty(int(torch.cuda.get_device_properties(0).total_memory * float(sys.argv[1])), dtype=torch.uint8, device="cuda")
print("held", flush=True); time.sleep(600)
"""

JAX = """
import sys, jax, jax.numpy as jnp
total = int(sys.argv[2]) ; share = float(sys.argv[1])
# An argument and three results of its size take this share of the device.
count = int(total * share / 4 / 4) // 1024 * 1024
@jax.jit
def step(x):
    return jnp.sin(x), jnp.cos(x), jnp.exp(x)
x = jnp.ones((count,), jnp.float32)
print([float(each[0]) for each in step(x)]); print("passed")
"""


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (("torch_job.py", TORCH), ("holder.py", HOLDER), ("jax_job.py", JAX)):
        (out / name).write_text(text)
    total = int(subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.get_device_properties(0).total_memory)"],
                               capture_output=True, text=True).stdout)
    lean = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    # Name; the job that dies, its variables; the same with the first advice followed; verdicts that are right; whether a neighbour holds the device.
    cases = [
        ("torch_far", ["torch_job.py", "far", "2.5"], {}, ["torch_job.py", "far", "0.5"], {}, ["exhausted"], False),
        ("torch_slightly", ["torch_job.py", "far", "1.95"], {}, ["torch_job.py", "far", "1.5"], {}, ["exhausted"], False),
        ("torch_pieces", ["torch_job.py", "pieces"], {}, ["torch_job.py", "pieces"],
         {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, ["fragmented"], False),
        ("torch_limit", ["torch_job.py", "limit", "0.15"], {}, ["torch_job.py", "limit", "0.9"], {}, ["limit"], False),
        ("torch_neighbour", ["torch_job.py", "neighbour"], {}, ["torch_job.py", "neighbour"], {}, ["device"], True),
        ("torch_leak", ["torch_job.py", "leak", "tensor"], {}, ["torch_job.py", "leak", "float"], {}, ["exhausted"], False),
        ("jax_far", ["jax_job.py", "2.0", str(total)], lean, ["jax_job.py", "0.1", str(total)], lean, ["exhausted"], False),
        ("jax_neighbour", ["jax_job.py", "0.3", str(total)], lean, ["jax_job.py", "0.3", str(total)], lean, ["device"], True),
    ]
    cases = [case for case in cases if case[0] in sys.argv[2:] or len(sys.argv) == 2]
    wrong = 0
    for name, dies, variables, passes, fixed, verdicts, crowded in cases:
        holder = None
        if crowded:
            holder = subprocess.Popen([sys.executable, str(out / "holder.py"), "0.75"], stdout=subprocess.PIPE, text=True)
            holder.stdout.readline()
        recording = out / f"{name}.vram"
        command = ["vramline", "run", "--no-report", "-o", str(recording), "--", sys.executable]
        died = subprocess.run(command + dies, env=os.environ | variables, cwd=out, capture_output=True, text=True, timeout=200)
        bare = subprocess.run([sys.executable, *dies], env=os.environ | variables, cwd=out, capture_output=True, text=True, timeout=200)
        if holder is not None:
            holder.terminate()
            holder.wait()
            time.sleep(2)
        (out / f"{name}.log").write_text(bare.stderr)
        passed = subprocess.run([sys.executable, *passes], env=os.environ | fixed, cwd=out, capture_output=True, text=True, timeout=200)
        told = {}
        for path in (out / f"{name}.log", recording):
            said = subprocess.run(["vramline", "oom", str(path), "--json"], capture_output=True, text=True)
            told[path.suffix] = json.loads(said.stdout) if said.returncode == 0 else {"failures": [], "headline": said.stderr}
        ok = died.returncode != 0 and bare.returncode != 0 and passed.returncode == 0
        print(f"== {name}: died {died.returncode} {bare.returncode}, fixed {passed.returncode}")
        for kind, answer in told.items():
            failures = answer["failures"]
            # JAX writes no figures of the pool at its default log level: only the recording can tell.
            is_silent = name == "jax_far" and kind == ".log"
            right = bool(failures) and (failures[0]["verdict"] in verdicts or (is_silent and failures[0]["verdict"] is None))
            ok = ok and right
            print("  ", kind, "right" if right else "WRONG", len(failures), answer["headline"])
            for advice in (failures[0]["advice"] if failures else [])[:2]:
                print("      -", advice["text"])
        if not ok:
            wrong += 1
            print("   FAILED", died.stderr[-1500:], passed.stderr[-800:])
    print(f"{len(cases) - wrong} of {len(cases)} cases right")
    return wrong != 0


if __name__ == "__main__":
    raise SystemExit(main())
