"""What a recording costs a PyTorch job on a GPU: bare, recorded, and while its allocator's history is kept.

    python benches/torch_cost.py [--turns N] [--write docs/proof/cost-gpu.md]

Needs vramline and PyTorch with CUDA on one GPU. The same training runs bare, under `vramline run --trace off` and under `vramline run`,
in turns. Each step is timed by the job itself, with the device waited for before and after; the first is left out, which makes libraries
load. The models are those of tests/gpu/plan_probes.py: many small tensors a step are the worst case, since each is a line of history.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import plan_probes

CASES = (("resnet50-adam", 8), ("resnet50-adam", 64), ("gpt-adamw", 4), ("gpt-adamw", 32))
TRACED = 5
STEPS = 60
HOWS = {
    "bare": None,
    "recorded": ["--trace", "off"],
    "traced": ["--trace", f"steps={TRACED}"],
}
# Closing the window takes a picture and switches the history off: the step that it falls into is told by itself.
SETTLED = TRACED + 10
DEADLINE = 300


def train(case, batch):
    import torch

    torch.manual_seed(0)
    model, samples = getattr(plan_probes, plan_probes.CASES[case][0])(torch)
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    x, y = (each.cuda() for each in samples(batch))
    seconds = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds, "torch": torch.__version__, "device": torch.cuda.get_device_name()}))


def run(case, batch, how):
    job = [sys.executable, __file__, "--case", case, "--batch", str(batch)]
    with tempfile.TemporaryDirectory() as folder:
        given = HOWS[how]
        command = job if given is None else ["vramline", "run", "--no-report", *given, "-o", f"{folder}/job.vram", "--", *job]
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
        whole = time.perf_counter() - begin
        if how == "traced":
            assert list(Path(folder).rglob("*.snapshot.pickle")), "nothing was traced"
    return json.loads(done.stdout.splitlines()[-1]) | {"whole": whole}


def table(turns):
    lines = ["| model | batch | bare step | recorded | while traced | after the trace | the longest step where it ends | whole job: bare, recorded, traced |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    said = None
    for case, batch in CASES:
        runs = {how: [] for how in HOWS}
        for turn in range(turns):
            for how in sorted(HOWS, key=lambda how: (turn + list(HOWS).index(how)) % len(HOWS)):
                runs[how].append(run(case, batch, how))
        said = runs["bare"][0]

        def step(how, begin, end, of=statistics.median, runs=runs):
            return statistics.median(of(each["seconds"][begin:end]) for each in runs[how])

        bare = step("bare", SETTLED, None)
        early = step("bare", 1, TRACED)

        def against(seconds, base):
            return f"{seconds * 1e3:.2f} ms, {seconds / base - 1:+.1%}"

        closing = step("traced", TRACED - 1, SETTLED, max) - step("bare", TRACED - 1, SETTLED, max)
        whole = ", ".join(f"{statistics.median(each['whole'] for each in runs[how]):.1f} s" for how in HOWS)
        cells = [
            f"{bare * 1e3:.2f} ms",
            against(step("recorded", SETTLED, None), bare),
            against(step("traced", 1, TRACED), early),
            against(step("traced", SETTLED, None), bare),
            f"{closing * 1e3:+.1f} ms",
            whole,
        ]
        lines.append(f"| {case} | {batch} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return f"PyTorch {said['torch']}, {said['device']}; {turns} turns; {datetime.date.today()}", "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    if args.case:
        return train(args.case, args.batch)
    versions, rows = table(args.turns)
    text = f"""# What a recording costs on a GPU

`benches/torch_cost.py` writes this page and describes the method.

Each figure is the median over alternating runs of the median step of each run. Steps of a few milliseconds are bound by Python and launch
overhead: there, a history entry for each tensor costs most. Runs of one job differ by some percent; negative figures are that noise. Only the
first {TRACED} steps are traced here; then the history is switched off.

{versions}

{rows}
"""
    print(text)
    if args.write:
        args.write.write_text(text, encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
