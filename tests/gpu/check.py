"""The jobs of this folder under `vramline run` on a real GPU: prints what held and what did not, and keeps the recordings.

    python tests/gpu/check.py OUT        # needs PyTorch and JAX with CUDA, Keras for two of the cases, and vramline installed

Not part of `make test`: machines without a GPU test the same code on the recordings kept here as fixtures.
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
OUT = pathlib.Path(sys.argv[1])
JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
failures = []


def run(name, job, *options, env=None, fails=False):
    folder = OUT / f"{name}.vram"
    command = ["vramline", "run", "--no-report", "--json", f"{OUT}/{name}.json", "-o", str(folder), *options, "--"]
    job_command = [sys.executable, str(HERE / "jobs.py"), job]
    done = subprocess.run(
        command + job_command, env=os.environ | (env or {}), capture_output=True, text=True, cwd=OUT, timeout=300
    )
    told = None
    if done.returncode == 0:
        told = json.loads(done.stdout.splitlines()[-1])
    print(f"== {name}: exit {done.returncode}, {told}")
    if (done.returncode != 0) != fails or "vramline:" in done.stderr.replace("vramline: recording", ""):
        print(done.stdout[-1500:], done.stderr[-3000:])
    report = json.loads((OUT / f"{name}.json").read_text()) if (OUT / f"{name}.json").exists() else None
    if report:
        for pool in report["pools"]:
            held = pool["at_peak"]
            print("  pool", pool["name"], pool["device"], pool["peak_bytes"], pool["lifetime_peak_bytes"], pool["limit_bytes"],
                  "from_start", pool["from_start"], held and (held["before_recording_bytes"], held["named_bytes"], held["by_role"]))
        for phase in report["phases"]:
            print("  phase", phase["phase"], phase["how"], phase["steps"], phase["batches"], phase["first_peak_bytes"], phase["later_peak_bytes"])
        print("  inventory", [(e["role"], e["bytes"], e["in_pool_bytes"]) for e in report["inventory"]])
        print("  marks", [m["label"][:90] for m in report["marks"] if m["kind"] in ("trace", "setting", "exception")])
        print("  warnings", [w["text"][:150] for w in report["warnings"]])
    return told, report


def check(what, holds):
    print(f"  {'ok' if holds else 'FAILED'}: {what}")
    if not holds:
        failures.append(what)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    told, report = run("torch_loop", "torch_loop")
    pool = report["pools"][0]
    check("torch: the recording's peak is PyTorch's", pool["lifetime_peak_bytes"] == told["peak"])
    check("torch: eight steps", [(p["phase"], p["steps"]) for p in report["phases"]] == [("train", 8)])
    listed = {entry["role"]: entry["bytes"] for entry in report["inventory"]}
    check("torch: parameters and state", (listed["parameters"], listed["optimizer"]) == (told["parameters"], told["optimizer"]))

    told, report = run("torch_peaks", "torch_loop", "--step-peaks")
    check("torch: every step's own peak", all(step["peak_bytes"] for step in report["steps"][1:]))
    told, _ = run("torch_limit", "torch_loop", "--limit", "2GiB")
    check("torch: the limit", told["fraction"] is None or abs(told["fraction"] * told["total"] - (2 << 30)) < 1 << 20)
    _, report = run("torch_over", "torch_too_much", "--limit", "2GiB", fails=True)
    check("torch: out of memory at the limit", any("OutOfMemoryError" in m["label"] for m in report["marks"]))
    told, _ = run("torch_async", "torch_loop", "--allocator", "async")
    check("torch: the allocator", told["backend"] == "cudaMallocAsync")
    told, _ = run("torch_none", "torch_none", "--gpus", "none")
    check("torch: no GPU", told["available"] is False)
    told, _ = run("torch_api", "torch_api")
    check("torch: step peaks are their own", told["peaks"] == [8 << 20] * 3 and told["change"] == -(4 << 20))

    told, report = run("jax_loop", "jax_loop", env=JAX)
    pool = next(pool for pool in report["pools"] if pool["device"] == "GPU:0")
    check("jax: the recording's peak is JAX's", pool["lifetime_peak_bytes"] == told["peak_bytes_in_use"])
    check("jax: traced from the start", pool["from_start"] is True and pool["at_peak"]["before_recording_bytes"] == 0)
    told, _ = run("jax_limit", "jax_loop", "--limit", "4GiB")
    check("jax: the limit", (4 << 30) - (1 << 24) <= told["bytes_limit"] <= 4 << 30)
    told, _ = run("jax_growth", "jax_loop", "--growth", "on")
    check("jax: growth", told["pool_bytes"] < 4 << 30)
    told, _ = run("jax_own_profiler", "jax_own_profiler", env=JAX)
    check("jax: the program's own profiler", told["own_traces"] == 1)

    for backend in ("torch", "jax"):
        told, report = run(f"keras_{backend}", "keras_fit", env=JAX | {"KERAS_BACKEND": backend})
        counts = [(p["phase"], p["steps"]) for p in report["phases"]]
        check(f"keras on {backend}: steps", counts == [("train", 16), ("validation", 4), ("predict", 1)])
        pool = next(pool for pool in report["pools"] if pool["device"] == "GPU:0")
        check(f"keras on {backend}: peak", pool["lifetime_peak_bytes"] == told["peak"])
        listed = {entry["role"]: entry["bytes"] for entry in report["inventory"]}
        check(f"keras on {backend}: parameters", listed.get("parameters") == told["parameters"])
        told, _ = run(f"keras_callback_{backend}", "keras_callback", env=JAX | {"KERAS_BACKEND": backend})
        check(f"keras on {backend}: callback", "vram_current_gib" in told["keys"])
    with tarfile.open(OUT / "recordings.tar.gz", "w:gz") as archive:
        for name in ("torch_loop", "torch_peaks", "jax_loop", "keras_torch", "keras_jax"):
            if (OUT / f"{name}.vram").exists():
                archive.add(OUT / f"{name}.vram", f"{name}.vram")
    print("failures:", failures or "none")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
