"""A job of many ranks: how long `vramline report` takes, and how much memory it needs.

    python benches/ranks.py [--ranks 64 256 1024] [--folder DIR] [--write docs/proof/ranks.md]
    python benches/ranks.py --make job.vram --ranks 64        # only makes the recording

The ranks are made from a real recording (fixtures/tf221_cpu_keras.vram): its marks, samples, variables and trace, with own processes and
hosts of eight ranks each, other sizes and other times. Every rank has 10,000 allocations and frees. Their blocks are those of the real
trace; blocks that a step allocates and frees are allocated and freed once more until there are that many. Ranks hold one more block of
their own: that of their stage of a pipeline of four, rank 0 one that no other rank has. Clocks of hosts have other zero points, drift by up
to 20 millionths, and that of host 1 shows tomorrow. Steps end on all ranks at the same moment but for up to 50 microseconds.
"""

import argparse
import datetime
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

HERE = Path(__file__).resolve().parent
REAL = HERE.parent / "fixtures" / "tf221_cpu_keras.vram"
NAME = "vm-20013-1648239"
EVENTS = 10_000
RANKS_PER_HOST = 8
STAGES = 4
EPOCHS = 12
MIB = 1 << 20
DAY = 86_400_000_000_000
# Blocks lie in lines of 256 bytes.
LINE = 256


def stage_bytes(rank, ranks):
    """What the stage of a rank holds beside the recorded model."""
    stage = rank * STAGES // ranks
    return (3 - stage) * 24 * MIB


def own_bytes(rank):
    """What only this rank holds."""
    return 96 * MIB if rank == 0 else random.Random(rank).randrange(0, 512) * LINE


class Clock:
    """The clock of a host: what it shows at a moment of the real recording."""

    def __init__(self, host):
        draw = random.Random(1000 + host)
        self.offset = draw.randrange(10**12, 10**15) if host else 0
        self.drift = draw.uniform(-20e-6, 20e-6) if host else 0.0
        self.wall = DAY if host == 1 else draw.randrange(-2_000_000, 2_000_000) if host else 0

    def monotonic(self, at, zero):
        return at + self.offset + round((at - zero) * self.drift)


class Trace:
    """The real trace with as many allocations and frees as asked for, and with what a rank changes in it."""

    KINDS = ("MemoryAllocation", "MemoryDeallocation")
    LEVELS = ("bytes_allocated", "peak_bytes_in_use", "bytes_available")

    def __init__(self, path):
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        self.event = xplane_pb2.XEvent
        self.space = xplane_pb2.XSpace.FromString(path.read_bytes())
        self.plane = next(plane for plane in self.space.planes if plane.name == "/host:CPU")
        self.kind = {number: known.name for number, known in self.plane.event_metadata.items()}
        self.number = {known.name: number for number, known in self.plane.stat_metadata.items()}
        self.repeat()
        self.own = self.add_own()
        # The figures that the own block of a rank changes, as they are without it.
        self.levels = [(stat, name, self.read(stat)) for _, event in self.memory() if event != self.own for name, stat in self.stats(event)]
        starts = [stat for plane in self.space.planes if plane.name == "Task Environment" for stat in plane.stats]
        self.starts = [(stat, self.read(stat)) for stat in starts]

    def memory(self):
        """The memory events, each with its line."""
        return [(line, event) for line in self.plane.lines for event in line.events if self.kind[event.metadata_id] in self.KINDS]

    def stat(self, event, name):
        return next(stat for stat in event.stats if stat.metadata_id == self.number[name])

    def stats(self, event):
        return [(name, self.stat(event, name)) for name in self.LEVELS]

    @staticmethod
    def read(stat):
        return getattr(stat, stat.WhichOneof("value"))

    @staticmethod
    def write(stat, figure):
        setattr(stat, stat.WhichOneof("value"), figure)

    def repeat(self):
        """Adds allocations that are freed at once, each directly after the free of the same block."""
        memory = sorted(self.memory(), key=lambda one: one[0].timestamp_ns * 1000 + one[1].offset_ps)
        missing = (EVENTS - 1 - len(memory)) // 2
        born, again = {}, {}
        for _, event in memory:
            address = self.read(self.stat(event, "addr"))
            if self.kind[event.metadata_id] == self.KINDS[0]:
                born[address] = event
            elif address in born and missing > 0:
                again[id(event)] = (event, born.pop(address))
                missing -= 1
        for line in self.plane.lines:
            events = list(line.events)
            more = []
            for event in events:
                more.append(event)
                if id(event) in again:
                    more += self.pair(*again[id(event)])
            del line.events[:]
            line.events.extend(more)

    def pair(self, free, birth):
        """A block that is allocated and freed directly after `free`, as it was at `birth`."""
        made, freed = self.event(), self.event()
        made.CopyFrom(birth)
        freed.CopyFrom(free)
        made.offset_ps, freed.offset_ps = free.offset_ps + 1, free.offset_ps + 2
        size = self.read(self.stat(free, "allocation_bytes"))
        for name, by in (("bytes_allocated", size), ("bytes_available", -size), ("peak_bytes_in_use", 0)):
            self.write(self.stat(made, name), self.read(self.stat(free, name)) + by)
        return made, freed

    def add_own(self):
        """Puts the block that a rank holds beside the others before all of them: the pool begins with it."""
        line, first = min(self.memory(), key=lambda one: one[0].timestamp_ns * 1000 + one[1].offset_ps)
        own = self.event()
        own.CopyFrom(first)
        own.offset_ps -= 1_000_000
        self.write(self.stat(own, "addr"), 0x7000_0000_0000)
        events = list(line.events)
        place = events.index(first)
        del line.events[:]
        line.events.extend([*events[:place], own, *events[place:]])
        return line.events[place]

    def of_rank(self, own, wall):
        """The trace of a rank with so many bytes of its own, on a clock that is ahead by so much."""
        first = self.read(self.stat(self.own, "bytes_available")) + self.read(self.stat(self.own, "bytes_allocated"))
        for name, figure in (("bytes_allocated", own), ("peak_bytes_in_use", own), ("bytes_available", first - own)):
            self.write(self.stat(self.own, name), figure)
        for name in ("requested_bytes", "allocation_bytes"):
            self.write(self.stat(self.own, name), own)
        for stat, name, before in self.levels:
            self.write(stat, before - own if name == "bytes_available" else before + own)
        for stat, before in self.starts:
            # In nanoseconds of the wall clock, where it is a time.
            if isinstance(before, int) and before > 10**18:
                self.write(stat, before + wall)
        return self.space.SerializeToString()


class Job:
    def __init__(self, ranks):
        import pyarrow

        self.pyarrow = pyarrow
        self.ranks = ranks
        self.tables = {part: self.read(part) for part in ("marks", "samples", "inventory")}
        self.facts = json.loads((REAL / f"process-{NAME}.json").read_text())
        self.zero = min(row["time_ns"] for row in self.tables["marks"][1])
        self.marks = longer(self.tables["marks"][1])
        path = next((REAL / f"trace-{NAME}").rglob("*.pb"))
        self.trace, self.trace_path = Trace(path), path.relative_to(REAL / f"trace-{NAME}")

    def read(self, part):
        with open(REAL / f"{part}-{NAME}.arrows", "rb") as file:
            table = self.pyarrow.ipc.open_stream(file).read_all()
        return table.schema, table.to_pylist()

    def write(self, folder):
        folder.mkdir(parents=True)
        run = json.loads((REAL / "run.json").read_text())
        run["host"] = "host-0"
        (folder / "run.json").write_text(json.dumps(run))
        for rank in range(self.ranks):
            self.write_rank(folder, rank)

    def write_rank(self, folder, rank):
        host = rank // RANKS_PER_HOST
        clock, draw = Clock(host), random.Random(rank)
        own = max(LINE, (stage_bytes(rank, self.ranks) + own_bytes(rank)) // LINE * LINE)
        name = f"host-{host}-{2000 + rank}-{100_000 + rank}"

        def moved(row):
            late = draw.randrange(0, 50_000) if row.get("kind") == "step" else 0
            times = {key: clock.monotonic(row[key], self.zero) + late for key in ("time_ns", "begin_ns", "taken") if row.get(key) is not None}
            sizes = {key: row[key] + own for key in ("current_bytes", "peak_bytes") if row.get(key) is not None}
            return {**row, **times, **sizes, "wall_ns": row["wall_ns"] + clock.wall}

        for part, rows in (("marks", self.marks), ("samples", self.tables["samples"][1]), ("inventory", self.tables["inventory"][1])):
            table = self.pyarrow.Table.from_pylist([moved(row) for row in rows], schema=self.tables[part][0])
            with open(folder / f"{part}-{name}.arrows", "wb") as file, self.pyarrow.ipc.new_stream(file, table.schema) as out:
                out.write_table(table)
        identity = {"job": "bench", "host": f"host-{host}", "boot_id": f"boot-{host}", "rank": rank, "local_rank": rank % RANKS_PER_HOST,
                    "node_rank": host, "world_size": self.ranks, "attempt": 0, "launcher": "torchrun"}  # fmt: skip
        facts = {**self.facts, "pid": 2000 + rank, "rank": rank, "identity": identity}
        (folder / f"process-{name}.json").write_text(json.dumps(facts))
        path = folder / f"trace-{name}" / self.trace_path
        path.parent.mkdir(parents=True)
        path.write_bytes(self.trace.of_rank(own, clock.wall))


def longer(marks):
    """The marks with the last epoch repeated."""
    of_last = [mark for mark in marks if mark["epoch"] == 1]
    begin, end = min(mark["time_ns"] for mark in of_last), max(mark["time_ns"] for mark in of_last)
    after = [mark for mark in marks if mark["time_ns"] > end and mark["kind"] != "step"]
    lasted = end - begin + 40_000_000
    made = [mark for mark in marks if mark["time_ns"] <= end]
    for epoch in range(2, EPOCHS):
        made += [{**later(mark, lasted * (epoch - 1)), "epoch": epoch} for mark in of_last]
    made += [later(mark, lasted * (EPOCHS - 2)) for mark in after]
    first = marks[0]["mark"]
    return [{**mark, "mark": first + number} for number, mark in enumerate(made)]


def later(mark, by):
    return {**mark, **{key: mark[key] + by for key in ("time_ns", "wall_ns", "begin_ns") if mark[key] is not None}}


def measured(binary, folder):
    """Seconds, the highest resident memory in bytes, and the document."""
    best = None
    for _ in range(3):
        begun = time.perf_counter()
        process = subprocess.Popen([binary, "report", "--json", str(folder)], stdout=subprocess.PIPE)
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        lasted = time.perf_counter() - begun
        if status != 0:
            sys.exit(f"vramline report failed with status {status}")
        cpu = usage.ru_utime + usage.ru_stime
        if best is None or lasted < best[0]:
            best = lasted, cpu, usage.ru_maxrss * 1024, json.loads(out)
    return best


def check(document, ranks):
    """What the generator made must come out."""
    told = document["ranks"]
    assert len(told["ranks"]) == ranks and told["grouping"] == "regular", told["grouping"]
    assert [outlier["rank"] for outlier in told["outliers"]] == [0], told["outliers"]
    assert sum(part["bytes"] for part in told["outliers"][0]["parts"]) == told["outliers"][0]["difference_bytes"]
    assert len(told["groups"]) == STAGES
    tomorrow = [host["host"] for host in told["hosts"] if abs(host["wall_ahead_ns"]) > DAY // 2]
    assert tomorrow == ["host-1"], tomorrow
    assert all(host["residual_ns"] < 1_000_000 for host in told["hosts"]), told["hosts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--make", type=Path, help="only make the recording of the first number of ranks")
    parser.add_argument("--folder", type=Path, help="where recordings are made and kept")
    parser.add_argument("--write", type=Path, help="the page whose table is rewritten")
    args = parser.parse_args()
    if args.make:
        Job(args.ranks[0]).write(args.make)
        return
    binary = os.environ.get("VRAMLINE_BIN") or shutil.which("vramline")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        for ranks in args.ranks:
            recording = folder / f"ranks-{ranks}.vram"
            if not recording.exists():
                # In a process of its own: the kernel counts what this one held when it started a command as that command's resident memory.
                subprocess.run([sys.executable, __file__, "--make", recording, "--ranks", str(ranks)], check=True)
            size = sum(path.stat().st_size for path in recording.rglob("*") if path.is_file())
            seconds, cpu, resident, document = measured(binary, recording)
            check(document, ranks)
            worst = max(host["residual_ns"] for host in document["ranks"]["hosts"])
            rows.append((ranks, size, seconds, cpu, resident, worst))
            print(
                f"{ranks} ranks: {seconds:.2f} s, {cpu:.2f} s of processors, {resident / MIB:.0f} MiB resident, {size / MIB:.0f} MiB of files; "
                f"clocks within {worst / 1000:.0f} µs",
                flush=True,
            )
            if not args.folder:
                shutil.rmtree(recording)
    if args.write:
        write(args.write, rows)


def write(page, rows):
    table = ["| ranks | files | time | processor time | per rank | resident memory | worst residual of a clock |", "|---|---|---|---|---|---|---|"]
    for ranks, size, seconds, cpu, resident, worst in rows:
        cells = [f"{ranks:,}", f"{size / MIB:,.0f} MiB", f"{seconds:.2f} s", f"{cpu:.2f} s", f"{cpu / ranks * 1000:.1f} ms", f"{resident / MIB:,.0f} MiB",
                 f"{worst / 1000:.0f} µs"]  # fmt: skip
        table.append(f"| {' | '.join(cells)} |")
    today = datetime.date.today().isoformat()
    machine = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), platform.machine())
    table += [
        "",
        f"{today}, {os.cpu_count()} cores ({machine}), best of three, files in the page cache, {EVENTS:,} allocations and frees a rank. "
        f"Load average of the machine: {os.getloadavg()[0]:.0f}.",
    ]
    text = page.read_text()
    begin, end = "<!-- ranks:begin -->", "<!-- ranks:end -->"
    made = re.sub(f"{begin}.*{end}", lambda _: "\n".join([begin, *table, end]), text, flags=re.DOTALL)
    page.write_text(made)


if __name__ == "__main__":
    main()
