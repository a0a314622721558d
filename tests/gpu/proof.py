"""The ledger on a real GPU: does it close, what has a name, what does watching cost? Writes docs/proof/gpu-proof.md.

    python tests/gpu/proof.py OUT [--part ledger|named|estimated|cost] [--write FILE] [--measured FILE]
    python tests/gpu/proof.py OUT --part named --recordings FOLDER      # judges recordings of an earlier run; no GPU

Needs a GPU, PyTorch and JAX with CUDA, CuPy for its jobs, vramline installed; no network. Without `--part` all four run.

`named`: every job of `beside.py` runs under `vramline run --driver-trace on`. Of what NVML counts for the process, at least 98 % must have a
name other than "unexplained", at the peak and at the end, by `vramline report --json`. `--measured` writes what contexts, streams, first
launches and libraries take, by driver, device and framework: `crates/vramline/src/ledger/measured.json`. OUT/result has what is worth keeping:
the tables, and the recordings as neutral fixtures.

`estimated`: the same recordings are read without their driver calls. What the report then names by its size must be what the calls name.

`ledger`: Every workload of `workloads.py` runs under `vramline run`. At the moment where the process held the most, what remains unexplained must
be less than one percent of what it holds, and every level must add up; in the process the same, before and after deletions. Then steps are
timed with and without `vramline run`, in turns. Recordings stay in OUT.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import beside

MIB = 1 << 20
BINARY = os.environ.get("VRAMLINE_BIN", "vramline")
PARTS = ("named", "estimated", "ledger", "cost")
LEAST_NAMED = 0.98
# Lines that a library takes in one step, whatever the job. Smaller ones than this cannot be told from each other by their size.
STEPS_OF_LIBRARIES = ("code", "first launches", "limits", "streams", "events", "graphs", "library memory")
LEAST_STEP, PAGE = 16 * MIB, 2 * MIB
LEAST_RECORDINGS = 2
JAX = {
    "preallocated": {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".30"},
    "growing": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    "limited": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".05"},
}
CASES = [
    ("torch_eager", "", {}, []),
    ("torch_convolution", "", {}, []),
    ("torch_attention", "", {}, []),
    ("torch_attention", "expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, []),
    ("torch_eager", "second process", {}, []),
    ("torch_near_full", "near full", {}, []),
    ("torch_eager", "limit 8 GiB", {}, ["--limit", "8GiB"]),
    ("jax_eager", "growing", JAX["growing"], []),
    ("jax_jitted", "growing", JAX["growing"], []),
    ("jax_jitted", "preallocated", JAX["preallocated"], []),
    ("jax_convolution", "limited", JAX["limited"], []),
    ("jax_attention", "preallocated", JAX["preallocated"], []),
]

# Steps of a few milliseconds, timed by the job itself.
STEPS = """
import json, time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
x = torch.randn(1024, 2048, device="cuda")
times = []
for step in range(450):
    begin = time.perf_counter()
    optimizer.zero_grad(); model(x).square().mean().backward(); optimizer.step(); torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
print(json.dumps(times[50:]))
"""


def signed(value):
    return "not known" if value is None else f"{value / MIB:,.1f}"


# Holds three gigabytes of the device until it is ended.
NEIGHBOUR = "import torch, time; x = torch.empty(3 << 30, dtype=torch.uint8, device='cuda'); print('there', flush=True); time.sleep(99)"


def prove(out, number, name, mode, environment, options):
    if mode != "second process":
        return observe(out, number, name, mode, environment, options)
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE)
    try:
        neighbour.stdout.readline()
        return observe(out, number, name, mode, environment, options)
    finally:
        neighbour.kill()
        neighbour.wait()


def observe(out, number, name, mode, environment, options):
    folder = out / f"{number:02}_{name}.vram"
    command = ["vramline", "run", "--no-report", "--trace", "off", "--rate", "20", *options, "-o", folder, "--"]
    done = subprocess.run(
        [*command, sys.executable, HERE / "workloads.py", name], env=os.environ | environment, capture_output=True, text=True
    )
    if done.returncode:
        print(f"FAILED {name} {mode}: exit {done.returncode}\n{done.stderr[-3000:]}")
        return None
    moments = json.loads(done.stdout.splitlines()[-1])
    report = json.loads(subprocess.run(["vramline", "report", "--json", folder], capture_output=True, text=True, check=True).stdout)
    lines = [line for line in report["ledger"] if line["device"] == "GPU:0"]
    for place, line in enumerate(report["ledger"]):
        parts = [part["bytes"] for part in report["ledger"] if part["part_of"] == place and part["bytes"] is not None]
        assert line["bytes"] is None or not parts or sum(parts) == line["bytes"], (name, line, parts)

    def total(word):
        return sum(line["bytes"] or 0 for line in lines if line["line"] == word)

    told = {word: total(word) for word in ("this job", "context at start", "pool", "in use", "cached free", "outside the pools",
                                          "unexplained", "other process", "unattributed", "context and outside the pools")}
    grown = [f"{line['bytes'] / MIB:+.0f} MiB with {line['detail']}" for line in lines if line["line"] == "outside the pools"]
    driver = json.loads((folder / "run.json").read_text())["driver"]
    print(json.dumps({"name": name, "mode": mode, **told, "grown": grown, "driver": driver, "inside": moments,
                      "findings": [(each["rule"], each["text"]) for each in report["findings"]]}))
    share = abs(told["unexplained"]) / told["this job"] if told["this job"] else None
    return {"name": name, "mode": mode, "share": share, "grown": grown, "driver": driver, "moments": moments, **told}


def timed(command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return statistics.median(json.loads(done.stdout.splitlines()[-1]))


def cost(out):
    rows = []
    job = [sys.executable, "-c", STEPS]
    for rate in (20, 100):
        pairs = []
        asked = []
        for turn in range(5):
            folder = out / f"cost_{rate}_{turn}.vram"
            command = ["vramline", "run", "--no-report", "--trace", "off", "--rate", str(rate), "-o", folder, "--", *job]
            pairs.append((timed(job), timed(command)))
            asked.append(json.loads((folder / "run.json").read_text())["driver"])
        added = [recorded - bare for bare, recorded in pairs]
        bare = statistics.median(bare for bare, _ in pairs)
        middle = statistics.median(added)
        rows.append((rate, bare, middle, min(added), max(added), asked[-1]))
        print("cost", rate, bare, middle, min(added), max(added), json.dumps(asked[-1]))
    return rows


def run_job(out, name):
    """Runs a job of `beside.py` with its driver calls recorded. Gives the recording; `None` where a package is missing or the job fails."""
    packages, text, variables = beside.JOBS[name]
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        print(f"{name}: skipped, without {', '.join(missing)}", flush=True)
        return None
    folder = out / f"{name}.vram"
    # Not `cupy.py`: a script hides the package of its name.
    script = out / f"job-{name}.py"
    script.write_text(text + beside.ENDING)
    command = ["vramline", "run", "--driver-trace", "on", "--no-report", "-o", folder, "--", sys.executable, script]
    environment = os.environ | variables | {"BESIDE_TOLD": str(out / f"{name}.told.json")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    if done.returncode:
        print(f"FAILED {name}: exit {done.returncode}\n{done.stderr[-2000:]}", flush=True)
        return None
    return folder


def judge(folder):
    """What NVML counts for each process of a recording, and what of it has a name, at the peak and at the end."""
    report = json.loads(subprocess.run([BINARY, "report", "--json", folder], capture_output=True, text=True, check=True).stdout)
    rows = {}
    for moment, lines in (("peak", report["ledger"]), ("end", report["ledger_at_end"])):
        for place, line in enumerate(lines):
            parts = [part for part in lines if part["part_of"] == place]
            known = [part["bytes"] for part in parts if part["bytes"] is not None]
            assert line["bytes"] is None or not known or sum(known) == line["bytes"], (folder, line)
            if line["line"] != "this job" or not line["bytes"] or not line["device"].startswith("GPU"):
                continue
            rest = sum(part["bytes"] or 0 for part in parts if part["line"] == "unexplained")
            named = {(part["line"], part["library"]): part["bytes"] for part in parts if part["line"] != "unexplained"}
            row = rows.setdefault(moment, {"processes": [], "held": 0, "unexplained": 0, "parts": {}})
            row["processes"].append(line["pid"])
            row["held"] += line["bytes"]
            row["unexplained"] += abs(rest)
            for key, size in named.items():
                row["parts"][key] = row["parts"].get(key, 0) + size
    for row in rows.values():
        row["share"] = 1 - row["unexplained"] / row["held"]
    told = json.loads((folder / "run.json").read_text())
    frameworks = [json.loads(path.read_text())["frameworks"] for path in folder.glob("process-*.json")]
    versions = {
        "driver": (told["driver"] or {}).get("library", {}).get("driver_version"),
        "gpu": next((device["name"] for device in told["devices"]), None),
        "frameworks": {name: version for one in frameworks for name, version in one.items() if name in ("torch", "jax")},
    }
    return rows, versions


def steps_of(parts):
    """What libraries took of a process, as NVML counts it."""
    steps = {key: size for key, size in parts.items() if key[0] in STEPS_OF_LIBRARIES and key[0] != "library memory"}
    # NVML's rounding is one line. It is known whose it is if all but one of the lines that count by requests are less than a page.
    requested = {key: size for key, size in parts.items() if key[0] in ("library memory", "program memory", "driver pool")}
    largest = max(requested, key=requested.get, default=None)
    if largest and largest[0] == "library memory" and sum(requested.values()) - requested[largest] < PAGE:
        steps[largest] = sum(requested.values()) + parts.get(("page rounding", None), 0)
    return {key: size for key, size in steps.items() if size >= LEAST_STEP}


def measured_text(seen):
    """The file of `--measured`. Each value of `seen` has the parts of each recording of these versions. Recordings that disagree tell nothing."""
    entries = []
    for versions, recordings in sorted(seen.items()):
        contexts = {sum(size for (line, _), size in parts.items() if line == "context") for parts in recordings}
        if len(contexts) > 1:
            continue
        sizes = {}
        for parts in recordings:
            for key, size in steps_of(parts).items():
                sizes.setdefault(key, []).append(size)
        agreed = {key: found for key, found in sizes.items() if len(set(found)) == 1 and len(found) >= LEAST_RECORDINGS}
        steps = [{"line": line, "library": library, "bytes": found[0], "recordings": len(found)}
                 for (line, library), found in sorted(agreed.items(), key=lambda one: -one[1][0])]
        entry = dict(zip(("driver", "gpu", "framework", "version"), versions)) | {"context_bytes": contexts.pop()}
        lines = ",\n".join(f"      {json.dumps(step)}" for step in steps)
        entries.append(f"  {json.dumps(entry)[:-1]},\n    \"steps\": [\n{lines}\n    ] }}" if steps else f"  {json.dumps(entry | {'steps': []})}")
    return "[\n" + ",\n".join(entries) + "\n]\n"


def named(out, recordings):
    """Judges every job. Gives its rows, what contexts and libraries take, and whether all is well."""
    result = out / "result"
    result.mkdir(parents=True, exist_ok=True)
    rows, seen, is_good = {}, {}, True
    for name in beside.JOBS:
        folder = recording_of(recordings, name) if recordings else run_job(out, name)
        if folder is None:
            is_good = is_good and bool(recordings)
            continue
        rows[name], versions = judge(folder)
        for moment in ("peak", "end"):
            row = rows[name].get(moment)
            share = row["share"] if row else 0
            is_good = is_good and share >= LEAST_NAMED
            print(f"{name}: {moment}: {share:.2%} of {row['held'] / MIB if row else 0:.1f} MiB has a name", flush=True)
        end = rows[name].get("end")
        if end and len(end["processes"]) == 1 and len(versions["frameworks"]) == 1:
            ((framework, version),) = versions["frameworks"].items()
            seen.setdefault((versions["driver"], versions["gpu"], framework, version), []).append(end["parts"])
        subprocess.run([sys.executable, HERE.parents[1] / "fixtures" / "neutral_recording.py", folder, result / "recordings" / folder.name], check=True)
    text = measured_text(seen)
    (result / "measured.json").write_text(text)
    if (result / "recordings").exists():
        with tarfile.open(result / "recordings.tar.gz", "w:gz") as file:
            file.add(result / "recordings", arcname="recordings")
        shutil.rmtree(result / "recordings")
    versions = sorted({f"{key[1]}, driver {key[0]}, {key[2]} {key[3]}" for key in seen})
    return rows, f"{'; '.join(versions)}; {datetime.date.today()}.", text, is_good


def job_parts(report):
    """The lines of a report's processes at the peak that have a library, as (line, library, bytes, source), and what is outside the pools."""
    lines = [line for line in report["ledger"] if line["device"].startswith("GPU") and line["bytes"] is not None]
    of_libraries = [(line["line"], line["library"], line["bytes"], line["source"]) for line in lines if line["library"] and line["line"] != "pool"]
    held = sum(line["bytes"] for line in lines if line["line"] == "this job")
    return of_libraries, held - sum(line["bytes"] for line in lines if line["line"] in ("pool", "context"))


def estimated(out, recordings):
    """Compares what is named by its size with what calls name. Gives the section, and whether every name is right."""
    rows, is_good = [], True
    for name in beside.JOBS:
        folder = recording_of(recordings or out, name)
        if folder is None:
            continue
        place = out / "without-calls" / folder.name
        shutil.copytree(folder, place, ignore=shutil.ignore_patterns("calls-*"))
        reports = [json.loads(subprocess.run([BINARY, "report", "--json", each], capture_output=True, text=True, check=True).stdout)
                   for each in (folder, place)]
        (by_calls, _), (by_size, outside) = map(job_parts, reports)
        by_size = [part for part in by_size if part[3] == "estimated"]
        if not reports[1]["ledger"]:
            continue
        apart, wrong = 0, []
        for line, library, size, _ in by_size:
            same = [abs(size - part[2]) for part in by_calls if part[:2] == (line, library)]
            if same and min(same) <= PAGE:
                apart = max(apart, min(same))
            else:
                wrong.append(f"{line} of {library}")
        is_good = is_good and not wrong
        named_bytes = sum(size for _, _, size, _ in by_size)
        libraries = ", ".join(f"{size / MIB:.0f} MiB {line} of {library}" for line, library, size, _ in by_size)
        cells = [name, f"{outside / MIB:.0f} MiB", f"{named_bytes / MIB:.0f} MiB", libraries or "none", f"{apart / MIB:.2f} MiB", ", ".join(wrong) or "none"]
        rows.append(f"| {' | '.join(cells)} |")
    lines = [
        "The recordings of *What has a name*, read without their driver calls. *Outside* is what the processes hold at the peak without the context",
        "and the pool. *Named* is what has the size of something that was measured with the same driver, device and framework. It is compared with",
        "what the calls name: they count memory by its requests, and NVML counts pages of 2 MiB. The sizes come from these recordings, so the table",
        "shows that names are not mixed up here, not how often other jobs have such sizes.\n",
        "| job | outside | named | as | most apart from the calls | wrong names |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n", is_good


def recording_of(folder, name):
    """The recording of a job: as it is written here, or as a fixture."""
    places = [folder / f"{written}.vram" for written in (name, name.replace("-", "_"))]
    return next((place for place in places if place.exists()), None)


def missing_jobs(rows):
    """A sentence about the jobs that were not recorded."""
    missing = [name for name in beside.JOBS if name not in rows]
    return f" Not recorded: {', '.join(missing)}." if missing else ""


def named_section(rows, versions):
    """The table of what has a name."""
    lines = [
        versions + "\n",
        "Jobs of `tests/gpu/beside.py` under `vramline run --driver-trace on`, by `vramline report --json`. *Named* is the share of what NVML counts",
        "for the job's processes that has a name other than \"unexplained\"." + missing_jobs(rows) + "\n",
        "| job | process at the peak | named | process at the end | named | largest parts at the end |",
        "|---|---|---|---|---|---|",
    ]
    for name, moments in rows.items():
        cells = []
        for moment in ("peak", "end"):
            row = moments.get(moment)
            cells += [f"{row['held'] / MIB:,.1f} MiB", f"{row['share']:.2%}"] if row else ["unknown", "unknown"]
        parts = sorted((moments.get("end") or {"parts": {}})["parts"].items(), key=lambda part: -part[1])[:5]
        largest = "; ".join(f"{size / MIB:,.1f} MiB {line}{f' ({library})' if library else ''}" for (line, library), size in parts if size)
        lines.append(f"| {name} | {' | '.join(cells)} | {largest} |")
    return "\n".join(lines) + "\n"


HEAD = """# The ledger on a real GPU

`make gpu-proof` writes this page with `tests/gpu/proof.py`; the programs are in `tests/gpu/workloads.py` and `tests/gpu/beside.py`.
"""


def write(path, sections):
    """Writes sections into the page; those that were not made stay as they are."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    known = dict(part.split("\n", 1) for part in old.split("\n## ")[1:])
    known |= sections
    path.write_text(HEAD + "".join(f"\n## {title}\n\n{text.strip()}\n" for title, text in known.items()), encoding="utf-8")


def ledger_section(rows, versions):
    lines = [
        versions + "\n",
        "At the peak, with the driver's nearest figures for a pool of that size, in MiB. *Process* is the driver's figure. *Context at start* is",
        "what the process held outside its pool when both were first known. *Outside* is what came later, each with its moment. *Unexplained* is",
        "what none of the others explains (changes of less than 2 MiB). The second table supports these names: memory outside the pool stays the",
        "same to the byte while tensors are deleted and caches are returned.\n",
        "| workload | process | context at start | pool | in use | outside | unexplained | share | other processes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        title = row["name"] + (f", {row['mode']}" if row["mode"] else "")
        figures = [row[word] for word in ("this job", "context at start", "pool", "in use", "outside the pools", "unexplained")]
        share = "unknown" if row["share"] is None else f"{row['share']:.2%}"
        lines.append(f"| {title} | {' | '.join(map(signed, figures))} | {share} | {signed(row['other process'])} |")
    lines += ["", "In the process itself (`memory_info().ledger()`), before and after deletions, in MiB:\n",
              "| workload | moment | process | pool | in use | cached | outside the pool |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        for moment in row["moments"]:
            if moment["label"] == "watch":
                continue
            figures = [moment.get(word) for word in ("this job", "pool", "in use", "cached free", "context and outside the pools")]
            lines.append(f"| {row['name']}, {row['mode']} | {moment['label']} | {' | '.join(map(signed, figures))} |")
    return "\n".join(lines) + "\n"


def cost_section(costs):
    lines = ["A step with and without `vramline run`, alternating (median of five pairs, least and most):\n",
             "| rate | bare step | added | share of time spent asking the driver |", "|---|---|---|---|"]
    for rate, bare, middle, least, most, driver in costs:
        spent = driver["costs"]["memory"]["nanos"] + driver["costs"]["processes"]["nanos"]
        share = spent / driver["watched_ns"] if driver["watched_ns"] else 0
        lines.append(f"| {rate} Hz | {bare * 1e3:.2f} ms | {middle * 1e6:+.0f} µs ({least * 1e6:+.0f} to {most * 1e6:+.0f}) | {share:.3%} |")
    return "\n".join(lines) + "\n"


def prove_ledger(out):
    """The ledger closes without driver calls. Gives its section, and whether all is well."""
    rows = [prove(out, number, *case) for number, case in enumerate(CASES)]
    rows = [row for row in rows if row]
    import jax
    import torch

    versions = (f"{torch.cuda.get_device_name(0)}, driver {rows[0]['driver']['library']['driver_version']}, PyTorch {torch.__version__}, "
                f"JAX {jax.__version__}, Python {platform.python_version()}; {datetime.date.today()}")
    bad = [(row["name"], row["mode"], row["share"]) for row in rows if row["share"] is None or row["share"] >= 0.01]
    print("not closed:", bad, "; failed:", len(CASES) - len(rows))
    return ledger_section(rows, versions), not bad and len(rows) == len(CASES)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--measured", type=pathlib.Path)
    parser.add_argument("--recordings", type=pathlib.Path)
    asked = parser.parse_args()
    # A name that is taken would be counted up.
    shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True)
    parts = asked.part or PARTS
    sections, is_good = {}, True
    if "named" in parts:
        rows, versions, measured, is_good = named(asked.out, asked.recordings)
        sections["What has a name"] = named_section(rows, versions)
        (asked.out / "result" / "named.md").write_text(sections["What has a name"])
        if asked.measured:
            asked.measured.write_text(measured)
    if "estimated" in parts:
        sections["Estimated by size"], is_right = estimated(asked.out, asked.recordings)
        is_good = is_good and is_right
    if "ledger" in parts:
        sections["Without driver calls"], is_closed = prove_ledger(asked.out)
        is_good = is_good and is_closed
    if "cost" in parts:
        sections["The cost of sampling"] = cost_section(cost(asked.out))
    print("\n".join(sections.values()))
    if asked.write:
        write(asked.write, sections)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
