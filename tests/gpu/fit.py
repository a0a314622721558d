"""plan, verify and top on a real GPU, from the command line as users have it.

    python tests/gpu/fit.py OUT

Needs vramline, PyTorch and JAX with CUDA; no network. The models are those of plan_models. OUT gets `fit.json`: what `vramline plan` says
of a batch eight times the largest probe, made by running this script, and what that batch really took (PyTorch's own counts, NVML's for
the process); fixes applied from outside, predicted beside measured; a JAX step compiled at a batch; and a look of `vramline top` while a job
runs. The probes of the first case are packed beside it. What must hold is asserted.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

import plan_models
import plan_probes

BATCHES = (2, 4, 8)
TARGET = 64
STEPS = 6
JAX_BATCH = 256
TORCH = ("small", "resnet50-adam", "gpt-adamw")
FIXES = ("expandable", "async-allocator")
DEADLINE = 300


def train(case, batch, told):
    """An ordinary script: nothing in it knows of vramline."""
    import torch

    torch.manual_seed(0)
    made, samples = small(torch) if case == "small" else plan_models.made_model(torch, case)
    made = made.cuda()
    stepper = torch.optim.AdamW(made.parameters(), 1e-4)
    for _ in range(STEPS):
        x, y = (each.cuda() for each in samples(batch))
        loss = torch.nn.functional.cross_entropy(made(x), y)
        stepper.zero_grad()
        loss.backward()
        stepper.step()
    torch.cuda.synchronize()
    if told:
        peaks = {"allocated_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
        pathlib.Path(told).write_text(json.dumps(peaks | plan_probes.nvml_figures()), encoding="utf-8")


def small(torch):
    """So small that recordings of it can be kept as fixtures."""
    nn = torch.nn
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, padding=1), nn.BatchNorm2d(128), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 10))
    return model, lambda batch: (torch.randn(batch, 3, 128, 128), torch.randint(0, 10, (batch,)))


def wait(seconds):
    """Holds a gibibyte for a while, stepping, for `top` to look at."""
    import torch

    layer = torch.nn.Linear(8192, 16384).cuda()
    stepper, end = torch.optim.SGD(layer.parameters(), 0.01), time.monotonic() + seconds
    while time.monotonic() < end:
        stepper.zero_grad()
        layer(torch.zeros(64, 8192, device="cuda")).sum().backward()
        stepper.step()
        torch.cuda.synchronize()
        time.sleep(0.02)


def vramline(*words, codes=(0, 3, 4)):
    done = subprocess.run(["vramline", *map(str, words)], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout)


def script(*words):
    return ["--", sys.executable, __file__, *words]


def plans(out, case):
    """What a plan says from the small batches, and what the large one took."""
    probes = out / f"probes-{case}"
    given = ["--batches", ",".join(map(str, BATCHES)), "--repeats", 1, "--batch", TARGET, "-o", probes, "--trace-steps", 3]
    told = vramline("plan", *given, "--steps", STEPS, "--json", *script("train", case, "--batch", "{batch}"))
    truth = out / f"truth-{case}.json"
    subprocess.run([sys.executable, __file__, "train", case, "--batch", str(TARGET), "--told", truth], check=True, timeout=DEADLINE)
    real = json.loads(truth.read_text(encoding="utf-8"))
    (said,) = told["predictions"]
    pairs = {
        "allocated": (said["peak_bytes"], real["allocated_bytes"]),
        "reserved": (said["pool_bytes"], real["reserved_bytes"]),
        "process": (said["process_bytes"], real["process_bytes"]),
    }
    for name, (predicted, measured) in pairs.items():
        assert predicted is not None, f"{case}: {name} was not predicted: {told['unknowns']}"
        assert abs(predicted / measured - 1) < 0.1, f"{case}: {name} {predicted} and {measured}"
    return {"case": case, "outside_bytes": told["outside_bytes"], "warnings": told["warnings"], "pairs": pairs}


def fixes(out, case):
    rows = []
    probes = ["--batches", ",".join(map(str, BATCHES)), "--repeats", 1, "-o", out / f"probes-{case}", "--trace-steps", 3]
    for fix in FIXES:
        given = ["--fix", fix, "--batch", TARGET, "--runs", 1, "--steps", STEPS, "--json"]
        rows.append({"case": case, "fix": fix, **vramline("verify", *probes, *given, *script("train", case, "--batch", "{batch}"), codes=(0,))})
    return rows


def compiled(out):
    told = vramline(
        "plan", "--compile-only", "--batch", JAX_BATCH, "-o", out / "jax", "--json", *script("jax", "mlp", "--batch", "{batch}"), codes=(4,)
    )
    (said,) = told["compiled"]
    done = subprocess.run(
        [sys.executable, __file__, "jax", "mlp", "--batch", str(JAX_BATCH)], capture_output=True, text=True, check=True, timeout=DEADLINE
    )
    real = json.loads(done.stdout.splitlines()[-1])
    # Each compilation tries algorithms anew, and one of them takes 32 MiB of scratch.
    assert said["argument_bytes"] == real["argument_size_in_bytes"]
    assert abs(said["temporary_bytes"] - real["temp_size_in_bytes"]) <= 32 << 20, (said, real)
    return {"said": said, "real": real}


def top():
    """A look while a job runs: the driver's own figures, and the job's."""
    job = subprocess.Popen(["vramline", "run", "--no-report", "-o", "top.vram", *script("wait", "40")])
    try:
        end = time.monotonic() + 60
        while True:
            time.sleep(1)
            look = vramline("top", "--json", codes=(0,))
            rows = [row for row in look["processes"] if row["device"].startswith("GPU") and row["step"] is not None]
            if rows or time.monotonic() > end:
                break
        text = subprocess.run(["vramline", "top", "--once"], capture_output=True, text=True, check=True).stdout
    finally:
        job.wait(DEADLINE)
        shutil.rmtree("top.vram", ignore_errors=True)
    for device in look["devices"]:
        assert sum(part["bytes"] for part in device["parts"]) == (device["total_bytes"] or 0)
    assert rows, look
    return {"devices": look["devices"], "process": rows[0], "text": text}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", help="the folder for what is found; or train, jax, wait")
    parser.add_argument("case", nargs="?")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--told")
    asked = parser.parse_args()
    if asked.what == "train":
        return train(asked.case, asked.batch, asked.told)
    if asked.what == "wait":
        return wait(float(asked.case))
    if asked.what == "jax":
        return plan_probes.step_jax(asked.case, asked.batch)
    out = pathlib.Path(asked.what).resolve()
    out.mkdir(parents=True, exist_ok=True)
    found = {"plans": [], "fixes": []}
    for name, make in (("top", top), ("compiled", lambda: compiled(out))):
        found[name] = tried(make)
    for case in TORCH:
        found["plans"].append(tried(lambda case=case: plans(out, case)))
        found["fixes"].append(tried(lambda case=case: {"rows": fixes(out, case)}))
    (out / "fit.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    with tarfile.open(out / "probes.tar.gz", "w:gz") as packed:
        for folder in sorted((out / f"probes-{TORCH[0]}").glob("probe-*.vram")):
            packed.add(folder, folder.name)
    wrong = [each["error"] for each in (found["top"], found["compiled"], *found["plans"], *found["fixes"]) if "error" in each]
    print("\n".join(wrong) or "all as it must be")
    return 1 if wrong else None


def tried(make):
    """One that fails does not keep the others from being tried: a GPU is rare."""
    try:
        return make()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(main())
