"""The real torchrun with two processes of DistributedDataParallel on the CPU: who each process is, and which attempt it belongs to."""

import json
import os
import subprocess
import sys

JOB = r"""
    import json
    import os
    import sys
    import time

    import torch
    import torch.distributed as dist

    # Gloo's addresses of the attempt before are still in torchrun's store.
    attempt, rank, size = (os.environ[name] for name in ("TORCHELASTIC_RESTART_COUNT", "RANK", "WORLD_SIZE"))
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), int(size), is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(attempt, store), rank=int(rank), world_size=int(size))
    rank = dist.get_rank()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        net(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    time.sleep(0.5)
    if rank == 1 and attempt == "0":
        os.kill(os.getpid(), 9)
    # In one call: torchrun does not buffer, and `print` would write the end of the line by itself, after the other rank's line.
    sys.stdout.write(json.dumps({"rank": rank, "size": dist.get_world_size(), "local": int(os.environ["LOCAL_RANK"])}) + "\n")
    dist.barrier()
    dist.destroy_process_group()
"""


def test_torchrun_restarts_its_workers(binary, tmp_path):
    script = tmp_path / "job.py"
    script.write_text("\n".join(line.removeprefix("    ") for line in JOB.splitlines()))
    recording = tmp_path / "job.vram"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", script]
    command = [binary, "run", "-o", recording, "--job", "pair", "--", *launch]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    truths = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    facts = [json.loads(path.read_text()) for path in recording.glob("process-*.json")]
    # The agent imports PyTorch too, and has no rank.
    ranks = [each["identity"] for each in facts if each["rank"] is not None]
    told = {(each["rank"], each["world_size"], each["local_rank"]) for each in ranks}
    assert told == {(truth["rank"], truth["size"], truth["local"]) for truth in truths} == {(0, 2, 0), (1, 2, 1)}
    assert sorted((each["rank"], each["attempt"]) for each in ranks) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {each["launcher"] for each in ranks} == {"torchrun"}
    assert {each["job"] for each in ranks} == {"pair"}
    report = subprocess.run([binary, "report", recording, "--json"], capture_output=True, text=True, check=False)
    assert report.returncode == 0, report.stderr
