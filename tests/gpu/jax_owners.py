"""Owners of JAX's memory on a real GPU: the jobs of jax_jobs.py under `vramline run`, compared with what their arrays say.

    python tests/gpu/jax_owners.py OUT                  # all jobs; needs JAX with CUDA and vramline installed
    python tests/gpu/jax_owners.py OUT jax_lm optax_lm  # some of them

For each job it prints the share of the peak's requested bytes that has an owner and a role, the bytes of parameters and optimizer state at the
peak beside those of the arrays, and whether the results are the same to the last bit without Vramline. It ends with 1 if a comparison fails.
Jobs whose packages are missing, or that fail without Vramline, are skipped.

Each job runs three times: recorded as it is, and with and without Vramline with deterministic kernels. XLA chooses kernels by their time, so
two runs of any program may differ in the last bits otherwise.
"""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from jax_jobs import JOBS

LEAST_SHARE = 0.99
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
# Jobs that run at the same time. They share the GPU, but nothing that is compared.
AT_ONCE = int(os.environ.get("VRAMLINE_OWNERS_AT_ONCE", "3"))
NEEDS = {"optax_lm": ("optax",), "flax_linen": ("flax", "optax"), "flax_nnx": ("flax", "optax"), "keras_jax": ("keras",)}
ROLES = {
    "parameters": {"params", "weights", "model", "parameters"},
    "optimizer": {"opt", "opt_state", "momentum", "optimizer"},
}


def arrays(step, role):
    """Bytes of the arrays of a role, by the names of the program's trees. The same array under two names counts once."""
    found = {}
    for path, (address, size) in step.items():
        if re.split(r"[\[. ]", path.removeprefix("state."))[0] in ROLES[role]:
            found[address] = size
    return sum(found.values())


def run(command, folder, say, flags=""):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=900, check=False)
    if done.returncode != 0:
        say(done.stdout[-2000:], done.stderr[-4000:])
        return None, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def compare(name, out, say):
    """Returns what is wrong with one job, and passes the lines for people to `say`."""
    folder = out / f"{name}.vram"
    own = [sys.executable, str(pathlib.Path(__file__).resolve().parent / "jax_jobs.py"), name]
    plain, _ = run(own, out, say, DETERMINISTIC)
    if plain is None:
        say(f"== {name}: skipped, it fails without Vramline")
        return []
    told, noises = [], []
    for recording, flags in ((out / f"{name}-deterministic.vram", DETERMINISTIC), (folder, "")):
        shutil.rmtree(recording, ignore_errors=True)
        result, noise = run(["vramline", "run", "--no-report", "-o", str(recording), "--", *own], out, say, flags)
        if result is None:
            return [f"{name}: the job failed under Vramline"]
        told.append(result)
        noises.append(noise)
    (same, told), noise = told, "".join(noises)
    (out / f"{name}.json").write_text(json.dumps(told) + "\n")
    wrong = []
    if "vramline: the recording" in noise or "a hook failed" in noise:
        wrong.append(f"{name}: {noise[-500:]}")
    if plain["result"] != same["result"]:
        wrong.append(f"{name}: results differ with and without Vramline: {plain['result']!r}, {same['result']!r}")
    if plain["peak"] != same["peak"]:
        wrong.append(f"{name}: the peak differs with and without Vramline: {plain['peak']}, {same['peak']}")
    report = json.loads(subprocess.run(["vramline", "report", str(folder), "--json"], capture_output=True, text=True, check=True).stdout)
    pools = [pool for pool in report["pools"] if pool["at_peak"] and pool["device"].startswith("GPU")]
    if not pools:
        return [*wrong, f"{name}: no pool of a GPU in the report"]
    held = pools[0]["at_peak"]
    say(f"== {name}: peak {pools[0]['peak_bytes']}, by memory_stats() {told['peak']}; result {same['result']!r}, without Vramline {plain['result']!r}")
    if pools[0]["peak_bytes"] != told["peak"]:
        wrong.append(f"{name}: the peak is {pools[0]['peak_bytes']} in the recording, {told['peak']} by memory_stats()")
    for role in ROLES:
        expected = arrays(told["steps"][-1], role)
        say(f"   {role:12} at the peak {held['by_role'][role]:>12}  arrays {expected:>12}")
        if held["by_role"][role] != expected:
            wrong.append(f"{name}: {role} are {held['by_role'][role]} bytes at the peak, {expected} by the arrays")
    requested = held["named_bytes"] + held["unnamed_bytes"]
    is_known = [row for row in held["rows"] if (row["layer"] or row["variable"]) and row["role"] != "unknown"]
    share = sum(row["bytes"] for row in is_known) / requested
    say(f"   owner and role {share:.4%} of {requested}, by role {held['by_role']}")
    noted = sum(row["bytes"] for row in held["rows"] if "by the address" in row["evidence"])
    open_names = sum(row["bytes"] for row in held["rows"] if "one of several blocks" in row["evidence"])
    say(f"   named by the addresses that were passed {noted}, in the order in which they were made {open_names}")
    for row in [row for row in held["rows"] if row not in is_known][:5]:
        say(f"      without: {row['bytes']:>12} {row['role']} {row['op'] or '(no op)'} {row['evidence']}")
    if share < LEAST_SHARE:
        wrong.append(f"{name}: {share:.2%} of the peak has an owner and a role")
    return wrong


def tried(name, out):
    """Returns the lines that a job gives, and what is wrong with it."""
    missing = [package for package in NEEDS.get(name, ()) if importlib.util.find_spec(package) is None]
    if missing:
        return [f"== {name}: skipped, {missing[0]} is not installed"], []
    lines = []
    return lines, compare(name, out, lambda *words: lines.append(" ".join(words)))


def main(arguments):
    out = pathlib.Path(arguments[0]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for lines, found in pool.map(lambda name: tried(name, out), arguments[1:] or JOBS):
            print(*lines, sep="\n", flush=True)
            wrong += found
    print("\n".join(["", *wrong]) if wrong else "\nall comparisons hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
