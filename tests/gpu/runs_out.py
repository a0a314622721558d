"""Jobs that run out of memory, or are killed, after 500 steps on a real GPU: does `vramline oom` name the owner, the growth and the cause?

    python tests/gpu/runs_out.py OUT [CASE ...]      # needs PyTorch with CUDA, and vramline installed
    python tests/gpu/runs_out.py OUT --device cpu    # no GPU: runs a few steps of each job, without a recording

    growing    the sequences of a small transformer become longer: activations of the attention
    leak       a list of losses that are not detached: the line that computes them
    neighbour  another process takes the device: not the job's own fault
    killed     SIGKILL from outside, while the list of losses grows

Each job runs under `vramline run`, with a memory fraction where it has to run out by itself. The recordings stay under OUT.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

GIB = 1 << 30
STEPS = 500
DEADLINE = 90
CASES = ("growing", "leak", "neighbour", "killed")


# --- The jobs ---


def limited(torch, device, limit):
    if device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(limit / total, 0)


def growing(torch, device, steps):
    """A transformer whose sequences grow slowly, and fast after 500 steps."""
    nn = torch.nn
    width, heads, depth, words = 256, 4, 4, 512

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            weights = (q @ k.transpose(-1, -2) / (width // heads) ** 0.5).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = Attention()
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x):
            x = x + self.attn(x)
            return x + self.mlp(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.layers = nn.ModuleList(Block() for _ in range(depth))
            self.head = nn.Linear(width, words)

        def forward(self, x):
            x = self.embed(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    limited(torch, device, 3 * GIB)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for step in range(steps):
        length = 48 + step // 16 + 32 * max(step - STEPS, 0)
        x = torch.randint(words, (8, length), device=device)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def leak(torch, device, steps, tell=lambda step: None, limit=6 * GIB):
    """Keeps the losses of all steps, with a value for each element: 8 MiB a step."""
    limited(torch, device, limit)
    net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    losses = []
    for step in range(steps):
        x = torch.randn(4096, 512, device=device)
        loss = (net(x) - x).square()  # kept here
        losses.append(loss)
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        tell(step)


def killed(torch, device, steps):
    """The same, slowly. Whoever started it kills it after 500 steps."""

    def tell(step):
        if step >= STEPS:
            pathlib.Path(os.environ["RUNS_OUT"], "killed.pid").write_text(str(os.getpid()))
            time.sleep(0.5)

    leak(torch, device, steps, tell, 12 * GIB)


def neighbour(torch, device, steps):
    """Trains in peace for 500 steps. Then another process takes the device, and the job needs more than before."""
    net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    place = pathlib.Path(os.environ.get("RUNS_OUT", "."))
    batch = 256
    for step in range(steps):
        if step == STEPS:
            (place / "neighbour.ready").touch()
            while not (place / "neighbour.holds").exists():
                time.sleep(0.05)
            batch = 6 * GIB // (4096 * 4)
        x = torch.randn(batch, 1024, device=device)
        loss = (net(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def holder(torch, device, steps):
    """Takes all but 3 GiB of what is free on the device."""
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(free - 3 * GIB, dtype=torch.uint8, device=device)
    pathlib.Path(os.environ["RUNS_OUT"], "neighbour.holds").touch()
    time.sleep(DEADLINE)
    return held


# --- Running and checking ---


def wait_for(path, process):
    deadline = time.monotonic() + DEADLINE
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return path.exists()


def record(out, case):
    """Runs a case under `vramline run`. Returns the exit code, the last lines and the seconds."""
    recording = out / f"{case}.vram"
    here = [sys.executable, str(pathlib.Path(__file__).resolve())]
    environment = os.environ | {"RUNS_OUT": str(out)}
    command = ["vramline", "run", "--no-report", "-o", str(recording), "--", *here, "--job", case, str(out)]
    begin = time.monotonic()
    with (out / f"{case}.log").open("w") as log:
        job = subprocess.Popen(command, env=environment, stderr=log, stdout=log)
        other = None
        try:
            if case == "neighbour" and wait_for(out / "neighbour.ready", job):
                other = subprocess.Popen([*here, "--job", "holder", str(out)], env=environment, stderr=log, stdout=log)
            if case == "killed" and wait_for(out / "killed.pid", job):
                time.sleep(0.2)
                os.kill(int((out / "killed.pid").read_text()), signal.SIGKILL)
            code = job.wait(timeout=DEADLINE)
        finally:
            for process in (job, other):
                if process is not None and process.poll() is None:
                    process.kill()
                    process.wait()
    return code, time.monotonic() - begin


def explain(out, case):
    done = subprocess.run(["vramline", "oom", str(out / f"{case}.vram"), "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def kept_line():
    lines = pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith("# kept here"))


def check(case, code, document):
    """Raises AssertionError if the answer is wrong. Returns the owner and the growth that it names."""
    if case == "killed":
        assert code == 128 + signal.SIGKILL, code
        assert document["verdict"]["word"] == "killed" and not document["failures"], document["headline"]
        held = document["killed"]
        assert held["signal"] == signal.SIGKILL, held["signal"]
    else:
        assert code == 1, code
        failure = document["failures"][0]
        # What is kept lies between blocks that are freed: by the rules of the verdicts, that is fragmented.
        verdicts = {"growing": ("limit", "exhausted"), "leak": ("limit", "exhausted", "fragmented"), "neighbour": ("device",)}
        assert failure["outcome"] == "ended-job" and failure["verdict"] in verdicts[case], (failure["outcome"], failure["verdict"])
        held = failure["held"]
        assert held is not None and held["shown_by"] == "failure" and held["after_step"] >= STEPS - 1, held and held["shown_by"]
    owners = held["owners"]
    known = sum(owner["bytes"] for owner in owners if owner["layer"] or owner["source"])
    whole = sum(owner["bytes"] for owner in owners) + held["other_owners_bytes"]
    assert whole + held["slack_bytes"] == held["in_use_bytes"], (whole, held["slack_bytes"], held["in_use_bytes"])
    if case == "growing":
        activations = [owner for owner in owners if owner["role"] == "activations"]
        assert owners[0]["role"] == "activations" and owners[0]["layer"].startswith("layers.*.attn"), owners[0]
        assert sum(owner["bytes"] for owner in activations) > 4 * sum(owner["before_bytes"] for owner in activations), activations[:3]
        assert "activations" in held["growth"] and "layers.*.attn" in held["growth"], held["growth"]
        assert known > 0.97 * whole, (known, whole)
    if case in ("leak", "killed"):
        assert owners[0]["source"].endswith(f"runs_out.py:{kept_line()} leak") or f":{kept_line()} " in owners[0]["source"], owners[0]
        assert owners[0]["count"] > 100 > owners[0]["before_count"], owners[0]
        assert "the program keeps" in held["growth"], held["growth"]
    if case == "neighbour":
        assert document["failures"][0]["other_processes_bytes"] > 8 * GIB, document["failures"][0]["other_processes_bytes"]
    return f"{owners[0]['role']} {owners[0]['layer'] or owners[0]['source']}", held["growth"], known / whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder for recordings and logs")
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="the cases to run; all of them if none is named")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.job:
        import torch

        globals()[args.job](torch, args.device, 100 * STEPS)
        return 0
    if args.device == "cpu":
        import torch

        for job in (growing, leak, neighbour):
            job(torch, "cpu", 3)
            print(f"{job.__name__}: 3 steps on the CPU, nothing recorded")
        return 0
    wrong = 0
    out = args.out.resolve()
    for case in args.cases or CASES:
        for left in (f"{case}.pid", f"{case}.ready", f"{case}.holds"):
            (out / left).unlink(missing_ok=True)
        code, seconds = record(out, case)
        try:
            owner, growth, share = check(case, code, explain(out, case))
            print(f"{case}: right in {seconds:.1f} s; {share:.2%} of the bytes have an owner; most: {owner}; {growth}", flush=True)
        except (AssertionError, KeyError, IndexError, TypeError) as error:
            wrong += 1
            print(f"{case}: WRONG after {seconds:.1f} s, exit code {code}: {error!r}", flush=True)
            print((out / f"{case}.log").read_text()[-1500:], flush=True)
    print(f"{len(args.cases or CASES) - wrong} of {len(args.cases or CASES)} right")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
