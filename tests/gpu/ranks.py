"""A job of two ranks on one GPU: what the report says of each rank against what PyTorch counts.

    python tests/gpu/ranks.py OUT [--device cpu]

Needs vramline and PyTorch; two processes of DistributedDataParallel (gloo) share the first GPU, each under a `vramline run` of its own that
writes into one recording. Three jobs: both ranks alike but for 192 MiB that rank 0 keeps; the same under the real torchrun; and one in which
rank 1 runs out of memory, so that rank 0 fails in its next exchange of gradients. OUT gets the recordings and `ranks.json`: what each job
must show, and whether it does. The exit code is 1 if something is not as it must be. On the CPU, which counts nothing, it only checks itself.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
MIB = 1 << 20
KEPT, STEPS, WIDTH, BATCH = 192 * MIB, 8, 1024, 256
# Rank 1 may have so much, and asks for more in this step.
ROOM, LAST_STEP = 2 << 30, 4
DEADLINE = 180


def train(device, job):
    """One rank. Prints what PyTorch counts."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    # The device has a number, as in every DDP script: the ranks of this job share the only one.
    place = torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")
    kept = torch.empty(KEPT if rank == 0 and job != "fails" else 0, dtype=torch.uint8, device=place)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(place))
    optimizer = torch.optim.AdamW(model.parameters())
    if job == "fails" and rank == 1 and device == "cuda":
        torch.cuda.set_per_process_memory_fraction(ROOM / torch.cuda.get_device_properties(0).total_memory)
    for step in range(STEPS):
        if job == "fails" and rank == 1 and step == LAST_STEP:
            if device == "cpu":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB.")
            kept = torch.empty(2 * ROOM, dtype=torch.uint8, device=place)
        model(torch.randn(BATCH, WIDTH, device=place)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    print(json.dumps({"rank": rank, "peak_bytes": peak, "kept_bytes": kept.nbytes}), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def ran(out, job, device):
    """Runs a job. Returns its exit codes, what its ranks printed, and the report."""
    recording = out / f"{job}.vram"
    own = [HERE, "--train", job, "--device", device]
    record = ["vramline", "run", "--no-report", "-o", recording, "--job", job, "--"]
    if job == "torchrun":
        starts = [([*record, sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *own], {})]
    else:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        starts = [([*record, sys.executable, *own], group | {"RANK": str(rank), "LOCAL_RANK": "0"}) for rank in range(2)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    begun = [subprocess.Popen(list(map(str, command)), env=os.environ | added, **pipes) for command, added in starts]
    ended = [process.communicate(timeout=DEADLINE) for process in begun]
    for _, errors in ended:
        print(errors[-2000:], file=sys.stderr)
    told = [json.loads(line) for words, _ in ended for line in words.splitlines() if line.startswith("{")]
    report = subprocess.run(["vramline", "report", "--json", str(recording)], capture_output=True, text=True, check=True)
    return [process.returncode for process in begun], {each["rank"]: each for each in told}, json.loads(report.stdout)


def checks(job, device, codes, told, report):
    """What must hold, by name."""
    ranks = report["ranks"]
    seen = {each["rank"]: each for each in ranks["ranks"]}
    held = {"two ranks": sorted(seen) == [0, 1], "none missing": ranks["missing"] == [], "world size": ranks["world_size"] == 2}
    if job == "fails":
        held["the job failed"] = all(codes)
        held["rank 1 ran out first"] = (ranks["first_failure"] or {}).get("rank") == 1
        held["rank 0 lost its peer"] = (ranks["first_failure"] or {}).get("lost_peers") == [0]
        return held
    held["the job passed"] = codes == [0] * len(codes) and sorted(told) == [0, 1]
    if device == "cuda":
        held["peaks are PyTorch's"] = all(seen[rank]["peak_bytes"] == told[rank]["peak_bytes"] for rank in told)
        held["rank 0 has more"] = ranks["highest"]["rank"] == 0 and seen[0]["peak_bytes"] - seen[1]["peak_bytes"] == KEPT
    return held


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--train", help="be one rank of this job")
    asked = parser.parse_args()
    if asked.train:
        return train(asked.device, asked.train)
    asked.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for job in ("pair", "torchrun", "fails"):
        begin = time.monotonic()
        codes, told, report = ran(asked.out, job, asked.device)
        row = {"job": job, "holds": checks(job, asked.device, codes, told, report), "exit": codes, "told": told, "ranks": report["ranks"]}
        row["seconds"] = round(time.monotonic() - begin, 1)
        rows.append(row)
        print(json.dumps({name: row[name] for name in ("job", "holds", "seconds")}), flush=True)
    (asked.out / "ranks.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all(all(row["holds"].values()) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
