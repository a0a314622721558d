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


def own_bytes(rank, ranks):
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


class Job:
    def __init__(self, ranks):
        import pyarrow

        self.pyarrow = pyarrow
        self.ranks = ranks
        self.tables = {part: self.read(part) for part in ("marks", "samples", "inventory")}
        self.facts = json.loads((REAL / f"process-{NAME}.json").read_text())
        self.zero = min(row["time_ns"] for row in self.tables["marks"][1])
        self.marks = self.longer(self.tables["marks"][1])
        self.space, self.changed = self.trace()
        self.trace_path = next((REAL / f"trace-{NAME}").rglob("*.pb")).relative_to(REAL / f"trace-{NAME}")

    def read(self, part):
        with open(REAL / f"{part}-{NAME}.arrows", "rb") as file:
            table = self.pyarrow.ipc.open_stream(file).read_all()
        return table.schema, table.to_pylist()

    def longer(self, marks):
        """The marks with the last epoch repeated."""
        last = [mark for mark in marks if mark["epoch"] == 1]
        begin, end = min(mark["time_ns"] for mark in marks if mark["epoch"] == 1), max(mark["time_ns"] for mark in last)
        rest = [mark for mark in marks if mark["time_ns"] > end and mark["kind"] != "step"]
        made = [mark for mark in marks if mark["time_ns"] <= end]
        lasted = end - begin + 40_000_000
        number = max(mark["mark"] for mark in marks) + 1
        for epoch in range(2, EPOCHS):
            for mark in last:
                by = lasted * (epoch - 1)
                begins = None if mark["begin_ns"] is None else mark["begin_ns"] + by
                made.append({**mark, "epoch": epoch, "mark": number, "time_ns": mark["time_ns"] + by, "wall_ns": mark["wall_ns"] + by, "begin_ns": begins})
                number += 1
        by = lasted * (EPOCHS - 2)
        for mark in rest:
            begins = None if mark["begin_ns"] is None else mark["begin_ns"] + by
            made.append({**mark, "mark": number, "time_ns": mark["time_ns"] + by, "wall_ns": mark["wall_ns"] + by, "begin_ns": begins})
            number += 1
        return made

    def trace(self):
        """The trace with as many allocations and frees as asked for, and those of its figures that a rank changes."""
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        path = next((REAL / f"trace-{NAME}").rglob("*.pb"))
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        plane = next(plane for plane in space.planes if plane.name == "/host:CPU")
        kind = {number: known.name for number, known in plane.event_metadata.items()}
        stat = {known.name: number for number, known in plane.stat_metadata.items()}
        memory = [(line.timestamp_ns * 1000 + event.offset_ps, at, event) for at, line in enumerate(plane.lines) for event in line.events
                  if kind[event.metadata_id] in ("MemoryAllocation", "MemoryDeallocation")]
        memory.sort(key=lambda one: one[0])
        value = lambda event, name: next((one for one in event.stats if one.metadata_id == stat[name]), None)
        number = lambda event, name: (lambda one: getattr(one, one.WhichOneof("value")))(value(event, name))
        # An allocation and its free once more, directly after the free.
        missing = (EVENTS - 1 - len(memory)) // 2
        born = {}
        copies = {}
        for _, at, event in memory:
            address = number(event, "addr")
            if kind[event.metadata_id] == "MemoryAllocation":
                born[address] = event
            elif address in born and missing > 0:
                copies.setdefault(at, []).append((event, born.pop(address)))
                missing -= 1
        for at, pairs in copies.items():
            after = {id(event): birth for event, birth in pairs}
            line = plane.lines[at]
            events = []
            for event in line.events:
                events.append(event)
                birth = after.get(id(event))
                if birth is None:
                    continue
                again, freed = xplane_pb2.XEvent(), xplane_pb2.XEvent()
                again.CopyFrom(birth)
                freed.CopyFrom(event)
                again.offset_ps, freed.offset_ps = event.offset_ps + 1, event.offset_ps + 2
                level, size = number(event, "bytes_allocated"), number(event, "allocation_bytes")
                available, peak = number(event, "bytes_available"), number(event, "peak_bytes_in_use")
                for name, figure in (("bytes_allocated", level + size), ("bytes_available", available - size), ("peak_bytes_in_use", peak)):
                    one = value(again, name)
                    setattr(one, one.WhichOneof("value"), figure)
                events += [again, freed]
            del line.events[:]
            line.events.extend(events)
        # The block that a rank holds beside the others is its first: the pool begins with it.
        _, at, first = memory[0]
        own = xplane_pb2.XEvent()
        own.CopyFrom(first)
        own.offset_ps -= 1_000_000
        place = next(place for place, event in enumerate(plane.lines[at].events) if event.offset_ps == first.offset_ps)
        events = list(plane.lines[at].events)
        del plane.lines[at].events[:]
        plane.lines[at].events.extend(events[:place] + [own] + events[place:])
        own = plane.lines[at].events[place]
        figures = {name: [] for name in ("bytes_allocated", "peak_bytes_in_use", "bytes_available")}
        count = 0
        for line in plane.lines:
            for event in line.events:
                if kind[event.metadata_id] in ("MemoryAllocation", "MemoryDeallocation"):
                    count += 1
                    for name, kept in figures.items():
                        one = value(event, name)
                        kept.append((one, one.WhichOneof("value"), getattr(one, one.WhichOneof("value")), event is own or event == own))
        self.events = count
        sizes = [(value(own, name), value(own, name).WhichOneof("value")) for name in ("requested_bytes", "allocation_bytes")]
        address = value(own, "addr")
        setattr(address, address.WhichOneof("value"), 0x7000_0000_0000)
        starts = [(one, one.WhichOneof("value"), getattr(one, one.WhichOneof("value")))
                  for plane in space.planes if plane.name == "Task Environment" for one in plane.stats]
        return space, (figures, sizes, number(own, "allocation_bytes"), starts)

    def write(self, folder):
        folder.mkdir(parents=True)
        run = json.loads((REAL / "run.json").read_text())
        run["host"] = "host-0"
        (folder / "run.json").write_text(json.dumps(run))
        for rank in range(self.ranks):
            self.write_rank(folder, rank)

    def write_rank(self, folder, rank):
        host = rank // RANKS_PER_HOST
        clock = Clock(host)
        draw = random.Random(rank)
        more = stage_bytes(rank, self.ranks) + own_bytes(rank, self.ranks)
        more = max(LINE, more // LINE * LINE)
        name = f"host-{host}-{2000 + rank}-{100_000 + rank}"
        mono = lambda at: None if at is None else clock.monotonic(at, self.zero)
        wall = lambda at: at + clock.wall

        def moved(row):
            row = dict(row)
            late = draw.randrange(0, 50_000)
            for key in ("time_ns", "begin_ns", "taken"):
                if row.get(key) is not None:
                    row[key] = mono(row[key]) + (late if row.get("kind") == "step" else 0)
            row["wall_ns"] = wall(row["wall_ns"])
            for key in ("current_bytes", "peak_bytes"):
                if row.get(key) is not None:
                    row[key] += more
            return row

        for part, rows in (("marks", self.marks), ("samples", self.tables["samples"][1]), ("inventory", self.tables["inventory"][1])):
            table = self.pyarrow.Table.from_pylist([moved(row) for row in rows], schema=self.tables[part][0])
            with open(folder / f"{part}-{name}.arrows", "wb") as file, self.pyarrow.ipc.new_stream(file, table.schema) as out:
                out.write_table(table)
        identity = {"job": "bench", "host": f"host-{host}", "boot_id": f"boot-{host}", "run": f"host-{host}-1999-1", "rank": rank,
                    "local_rank": rank % RANKS_PER_HOST, "node_rank": host, "world_size": self.ranks, "local_world_size": RANKS_PER_HOST,
                    "attempt": 0, "launcher": "torchrun", "labels": {}}
        clocks = {key: wall(at) if key == "realtime_ns" else mono(at) for key, at in self.facts["clocks"].items()}
        facts = {**self.facts, "pid": 2000 + rank, "rank": rank, "identity": identity, "clocks": clocks}
        (folder / f"process-{name}.json").write_text(json.dumps(facts))
        figures, sizes, own, starts = self.changed
        for one, field in sizes:
            setattr(one, field, more)
        for key, kept in figures.items():
            sign = -1 if key == "bytes_available" else 1
            for one, field, before, is_own in kept:
                setattr(one, field, before + sign * (more - own if is_own else more))
        for one, field, before in starts:
            # In nanoseconds of the wall clock, where it is a time.
            if isinstance(before, int) and before > 10**18:
                setattr(one, field, before + clock.wall)
        path = folder / f"trace-{name}" / self.trace_path
        path.parent.mkdir(parents=True)
        path.write_bytes(self.space.SerializeToString())


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
                Job(ranks).write(recording)
            size = sum(path.stat().st_size for path in recording.rglob("*") if path.is_file())
            seconds, cpu, resident, document = measured(binary, recording)
            check(document, ranks)
            worst = max(host["residual_ns"] for host in document["ranks"]["hosts"])
            rows.append((ranks, size, seconds, cpu, resident, worst))
            print(f"{ranks} ranks: {seconds:.2f} s, {cpu:.2f} s of processors, {resident / MIB:.0f} MiB resident, {size / MIB:.0f} MiB of files; "
                  f"clocks within {worst / 1000:.0f} µs", flush=True)
            if not args.folder:
                shutil.rmtree(recording)
    if args.write:
        write(args.write, rows)


def write(page, rows):
    table = ["| ranks | files | time | processor time | per rank | resident memory | worst residual of a clock |", "|---|---|---|---|---|---|---|"]
    for ranks, size, seconds, cpu, resident, worst in rows:
        table.append(f"| {ranks:,} | {size / MIB:,.0f} MiB | {seconds:.2f} s | {cpu:.2f} s | {cpu / ranks * 1000:.1f} ms | {resident / MIB:,.0f} MiB | {worst / 1000:.0f} µs |")
    today = datetime.date.today().isoformat()
    machine = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), platform.machine())
    table += ["", f"{today}, {os.cpu_count()} cores ({machine}), best of three, files in the page cache, {EVENTS:,} allocations and frees a rank."]
    text = page.read_text()
    begin, end = "<!-- ranks:begin -->", "<!-- ranks:end -->"
    made = re.sub(f"{begin}.*{end}", lambda _: "\n".join([begin, *table, end]), text, flags=re.DOTALL)
    page.write_text(made)


if __name__ == "__main__":
    main()
