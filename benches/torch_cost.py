"""What a recording costs a PyTorch job on a GPU: its steps with and without the allocator's history, and whole jobs.

    python benches/torch_cost.py [--seconds N] [--device cuda|cpu] [--write docs/proof/cost-gpu.md]
    python benches/torch_cost.py --jobs [--turns N] [--write docs/proof/cost-gpu.md]

Without `--jobs`: one process trains, in blocks of steps. The modes take turns, in another order in each round, so that a busy machine
disturbs all of them; each block is compared with the block of the same round without a history. Figures are medians of these differences,
with the interval that holds the median with a probability of at least 95 % (order statistics, no assumption on the noise). Needs vramline
and PyTorch with CUDA. On the CPU there is no history: it only checks the script, and the cost of the hooks.

With `--jobs`: the same training runs bare, under `vramline run --trace off` and under `vramline run`, in turns. Each step is timed by the
job itself, with the device waited for before and after; the first is left out, which makes libraries load. The models are those of
tests/gpu/plan_models: many small tensors a step are the worst case, since each is a line of history.

With `--write` the table replaces the one in the page; the other table of the page stays.
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
import plan_models

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
    model, samples = plan_models.made_model(torch, case)
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


# --- Blocks in one process ---

# What is on in a block: a name for the table.
MODES = {
    "off": "no history",
    "state": "after the window: live blocks, without call stacks",
    "stacks": "after the window: live blocks, with call stacks",
    "window": "in the window: full history, call stacks, hooks on modules",
    "after": "after the hooks were removed, no history",
}
WARM, BLOCK = 2, 10
# With fewer, even the whole range holds the median with less than 95 %.
LEAST_ROUNDS = 6


def small(torch):
    """A model for the check on the CPU."""
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(12)]
    return torch.nn.Sequential(*layers), lambda batch: (torch.randn(batch, 64), torch.randint(64, (batch,)))


class Job:
    """A training whose steps are timed, with the history in one of the modes."""

    def __init__(self, torch, device, case, batch):
        from vramline.attach.modules import ModuleHooks
        from vramline.frameworks.module_names import ModuleNames

        torch.manual_seed(0)
        self.torch, self.is_cuda = torch, device == "cuda"
        model, samples = small(torch) if case == "small" else plan_models.made_model(torch, case)
        self.model = model.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        self.x, self.y = (each.to(device) for each in samples(batch))
        self.hooks = ModuleHooks(torch, ModuleNames(), lambda found: None, lambda found: None)

    def wait(self):
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def record(self, **options):
        if self.is_cuda:
            self.torch.cuda.memory._record_memory_history(**options)

    def enter(self, mode):
        if mode == "state":
            self.record(enabled="state", context=None, stacks="python", max_entries=1)
        elif mode == "stacks":
            self.record(enabled="state", context="state", stacks="python", max_entries=1)
        elif mode == "window":
            self.record(enabled="all", context="alloc", stacks="python", max_entries=100_000)
            self.hooks.begin()
        elif mode == "after":
            self.hooks.begin()
            self.step()
            self.hooks.end()

    def leave(self, mode):
        if mode == "window":
            self.hooks.end()
        if mode in ("state", "stacks", "window"):
            self.record(enabled=None)

    def step(self):
        loss = self.torch.nn.functional.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def block(self, mode):
        """Returns the median step of a block, in seconds."""
        self.enter(mode)
        try:
            seconds = []
            for number in range(WARM + BLOCK):
                self.wait()
                begin = time.perf_counter()
                self.step()
                self.wait()
                if number >= WARM:
                    seconds.append(time.perf_counter() - begin)
            return statistics.median(seconds)
        finally:
            self.leave(mode)

    def allocations(self):
        """Returns how many blocks a step allocates."""
        if not self.is_cuda:
            return None
        before = self.torch.cuda.memory_stats()["allocation.all.allocated"]
        self.step()
        return self.torch.cuda.memory_stats()["allocation.all.allocated"] - before


def interval(values):
    """Returns the narrowest pair of order statistics that holds the median with a probability of at least 95 %."""
    values = sorted(values)
    count = len(values)
    below, place = 0.5**count, 0
    total = below
    while place + 1 < count / 2 and total + below * (count - place) / (place + 1) <= 0.025:
        below *= (count - place) / (place + 1)
        total += below
        place += 1
    return values[place], values[count - 1 - place]


def blocks(device, seconds):
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no GPU is visible: --device cpu checks the script")
    cases = [("gpt-adamw", 4), ("resnet50-adam", 8)] if device == "cuda" else [("small", 8)]
    lines = ["| model | batch | mode | median step | difference | interval of the median (95 %) | rounds |", "|---|---|---|---|---|---|---|"]
    for case, batch in cases:
        job = Job(torch, device, case, batch)
        for mode in MODES:
            job.block(mode)
        taken = {mode: [] for mode in MODES}
        begin, rounds = time.perf_counter(), 0
        while rounds < LEAST_ROUNDS or time.perf_counter() - begin < seconds / len(cases):
            order = list(MODES)
            order = order[rounds % len(order) :] + order[: rounds % len(order)]
            for mode in order:
                taken[mode].append(job.block(mode))
            rounds += 1
        allocations = job.allocations()
        for mode, name in MODES.items():
            differences = [one / off - 1 for one, off in zip(taken[mode], taken["off"], strict=True)]
            low, high = interval(differences)
            cells = [f"{statistics.median(taken[mode]) * 1e3:.2f} ms"]
            cells += ["", ""] if mode == "off" else [f"{statistics.median(differences):+.2%}", f"{low:+.2%} to {high:+.2%}"]
            lines.append(f"| {case} | {batch} | {name} | " + " | ".join(cells) + f" | {rounds} |")
            print(lines[-1], flush=True)
        if allocations is not None:
            print(f"{case} {batch}: {allocations} allocations a step", flush=True)
        del job
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU: no history, only a check of the script"
    return f"PyTorch {torch.__version__}, {where}; blocks of {BLOCK} steps; {datetime.date.today()}", "\n".join(lines)


# --- The page ---

TITLES = {"blocks": "## Steps, block by block", "jobs": "## Whole jobs"}
WORDS = {
    "blocks": """One process trains. Blocks of steps with another history take turns; the difference is to the block of the same round without a
history. Steps of a few milliseconds are bound by Python and launch overhead: there, a history entry for each tensor costs most.""",
    "jobs": f"""Each figure is the median over alternating runs of the median step of each run. Runs of one job differ by some percent; negative
figures are that noise. Only the first {TRACED} steps are traced here.""",
}
PAGE = """# What a recording costs on a GPU

`benches/torch_cost.py` writes this page and describes the method.
"""


def sections(path):
    """Returns the sections of the page as it is. An older page is one section: the table of whole jobs."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = {}
    for kind, title in TITLES.items():
        if title in text:
            found[kind] = text.split(title, 1)[1].split("\n## ", 1)[0].strip()
    if not found and "| bare step |" in text:
        found["jobs"] = text.split("method.\n", 1)[1].strip()
    return found


def write(path, kind, versions, rows):
    found = sections(path) | {kind: f"{WORDS[kind]}\n\n{versions}\n\n{rows}"}
    parts = [f"{TITLES[each]}\n\n{found[each]}\n" for each in TITLES if each in found]
    path.write_text("\n".join([PAGE, *parts]), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--jobs", action="store_true", help="whole jobs, bare and under vramline run")
    parser.add_argument("--turns", type=int, default=5, help="with --jobs: runs of each kind")
    parser.add_argument("--seconds", type=float, default=45, help="without --jobs: how long to measure")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--write", type=Path, help="the page to write")
    args = parser.parse_args()
    if args.case:
        return train(args.case, args.batch)
    kind = "jobs" if args.jobs else "blocks"
    versions, rows = table(args.turns) if args.jobs else blocks(args.device, args.seconds)
    print(f"\n{versions}\n\n{rows}")
    if args.write:
        write(args.write, kind, versions, rows)
    return None


if __name__ == "__main__":
    main()
