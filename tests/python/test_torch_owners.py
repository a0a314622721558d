"""Owners in PyTorch, from the hooks to the report. There is no GPU here, so a stand-in for PyTorch allocates. The real modules and autograd:
tests/integrations.
"""

import json
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch_stand_in
from conftest import job_environment

JOB = """
    import threading
    import torch
    from torch import nn
    from torch.autograd import Node, Variable
    from torch.optim.optimizer import Optimizer
    torch.cuda.init()
    WIDTH, BATCH = 4096, 8192
    FORWARD = [("forward", "/v/site-packages/torch/nn/modules/linear.py", 125),
        ("_call_impl", "/v/site-packages/torch/nn/modules/module.py", 1750), ("forward", "/me/model.py", 7), ("main", "/me/train.py", 40)]
    tape = []
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self._parameters["weight"] = torch.Tensor(WIDTH, frames=[("__init__", "/v/site-packages/torch/nn/modules/linear.py", 50)])
            self._buffers["mask"] = torch.Tensor(512, frames=[("main", "/me/train.py", 3)])
        def forward(self, x):
            result = torch.Tensor(BATCH, Node(), FORWARD)
            tape.append((self, result))
            return result
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = Linear(), Linear()
        def forward(self, x):
            return self.down(self.up(x))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Module()
            for number in range(3):
                setattr(self.layers, str(number), Block())
        def forward(self, x, mask=None):
            for block in self.layers._modules.values():
                x = block(x)
            return x
    def backward():
        scratch = None
        for module, result in reversed(tape):
            result.grad_fn.run()
            before, scratch = scratch, torch.Tensor(BATCH)
            weight = module._parameters["weight"]
            weight.grad = torch.Tensor(weight.size)
            if before:
                before.free()
            result.free()
        scratch.free()
        tape.clear()
        for call in Variable._execution_engine.waiting:
            call()
        Variable._execution_engine.waiting.clear()
    net = Net()
    optimizer = Optimizer(net.parameters())
    for step in range(4):
        x, mask = (torch.Tensor(size, frames=[("main", "/me/train.py", 30)]) for size in (2048, 1024))
        net(x, mask=mask)
        thread = threading.Thread(target=backward)
        thread.start(); thread.join()
        optimizer.step()
        for parameter in net.parameters():
            parameter.grad.free()
            parameter.grad = None
        x.free(), mask.free()
"""


@pytest.fixture(scope="module")
def recording(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("owners")
    stand_in = torch_stand_in.install(folder)
    (folder / "job.py").write_text(textwrap.dedent(JOB))
    command = [binary, "run", "--no-report", "-o", "job.vram", "--trace", "steps=3", "--", sys.executable, "job.py"]
    environment = job_environment(stand_in)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "hook" not in done.stderr, done.stderr
    return folder / "job.vram"


def read(binary, path, *options):
    done = subprocess.run([binary, "report", path, "--json", *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def at_peak(document):
    (pool,) = [pool for pool in document["pools"] if pool["from_start"]]
    return pool["at_peak"]


WIDTH, BATCH, LAYERS = 4096, 8192, 6


def test_every_byte_of_the_peak_has_an_owner_and_a_role(binary, recording):
    held = at_peak(read(binary, recording))
    # At the peak of the second step the backward pass is in the last layer that it reaches: all activations but those it freed.
    assert held["unnamed_bytes"] == 0
    assert held["by_role"].get("unknown", 0) == 0
    assert held["by_role"]["parameters"] == LAYERS * WIDTH
    assert held["by_role"]["optimizer"] == LAYERS * WIDTH
    assert held["by_role"]["inputs"] == 2048 + 1024
    assert held["by_role"]["state"] == LAYERS * 512
    gradients = [row for row in held["rows"] if row["role"] == "gradients"]
    assert held["by_role"]["gradients"] == sum(row["bytes"] for row in gradients) and held["by_role"]["gradients"] % WIDTH == 0
    assert all(row["variable"].endswith("weight.grad") for row in gradients)
    scratch = [row for row in held["rows"] if row["role"] == "temporaries"]
    assert sum(row["bytes"] for row in scratch) in (BATCH, 2 * BATCH)
    assert {row["source"] for row in scratch} == {"backward pass"}
    assert all(row["layer"] and row["evidence"] for row in held["rows"])
    evidence = {row["role"]: row["evidence"] for row in held["rows"]}
    assert evidence["activations"] == "module hooks: the module's forward pass; alive in the backward pass"
    assert evidence["inputs"] == "an argument of the model's forward pass"
    assert evidence["parameters"] == "in the program's list of variables"


def test_layers_that_repeat_are_folded(binary, recording):
    rows = at_peak(read(binary, recording))["rows"]
    single = {f"layers.{number}.{kind}" for number in range(3) for kind in ("up", "down")}
    assert {row["layer"] for row in rows if row["role"] == "activations"} <= {"layers.*.up", "layers.*.down"} | single
    (weights,) = [row for row in rows if row["variable"] == "layers.*.up.weight" and row["role"] == "parameters"]
    assert (weights["count"], weights["bytes"]) == (3, 3 * WIDTH)
    names = {row["variable"] for row in rows if row["role"] == "inputs"}
    assert names == {"argument 0", "mask"}


def test_by_layer_each_layer_has_all_that_is_its_own(binary, recording):
    rows = {row["layer"]: row["bytes"] for row in at_peak(read(binary, recording, "--by", "layer"))["rows"]}
    assert set(rows) == {f"layers.{n}.{kind}" for n in range(3) for kind in ("up", "down")} | {"input data"}
    # Parameter, buffer, optimizer state, and an activation or a gradient.
    assert rows["layers.0.up"] >= 2 * WIDTH + 512 + BATCH
    shown = subprocess.run([binary, "report", recording, "--by", "layer"], capture_output=True, text=True, check=True).stdout
    assert "layers.*.up" in shown and "layers.0.up" not in shown
    full = subprocess.run([binary, "report", recording, "--by", "layer", "--full"], capture_output=True, text=True, check=True).stdout
    assert "layers.0.up" in full


def test_a_redacted_report_has_no_names_of_modules(binary, recording):
    shown = subprocess.run([binary, "report", recording, "--json", "--redact"], capture_output=True, text=True, check=True).stdout
    for name in ("layers", "down", "argument", "mask", "train.py", "model.py"):
        assert f'"{name}' not in shown and f".{name}" not in shown, name


def test_the_inventory_has_names_and_addresses(binary, recording):
    import vramline

    found = vramline.load(recording).inventory
    rows = {name: (role, model, layer, size, address) for name, role, model, layer, size, address in zip(
        *(found[column] for column in ("name", "role", "model", "layer", "bytes", "address")), strict=True)}  # fmt: skip
    assert rows["layers.1.down.weight"][:4] == ("parameters", "Net", "layers.1.down", WIDTH)
    assert rows["layers.1.down.weight.grad"][:4] == ("gradients", "Net", "layers.1.down", WIDTH)
    assert rows["layers.1.down.weight exp_avg"][:4] == ("optimizer", "Net", "layers.1.down", WIDTH)
    assert rows["layers.1.down.mask"][:4] == ("state", "Net", "layers.1.down", 512)
    assert all(address for *_, address in rows.values())
    # What an optimizer trains belongs to it: what the job needs at least follows from that.
    owners = set(zip(found["role"], found["owner"], strict=True))
    assert owners == {("parameters", "Optimizer"), ("gradients", "Optimizer"), ("optimizer", "Optimizer"), ("state", None)}


def snapshot(entries):
    return {"segments": [], "device_traces": [entries], "allocator_settings": {}, "external_annotations": []}


def entry(number, metadata, context="N/A", frames=()):
    return {"action": "alloc", "addr": 0x1000 * (number + 1), "size": 512, "stream": 0, "time_us": 1_700_000_000_000_000 + number,
        "compile_context": context, "user_metadata": metadata, "frames": list(frames)}  # fmt: skip


def layers_of(binary, tmp_path, entries):
    path = tmp_path / "snapshot.pickle"
    segment = {"action": "segment_alloc", "addr": 0x1000, "size": 1 << 21, "stream": 0, "time_us": 1_699_999_999_999_999,
        "compile_context": "N/A", "user_metadata": "", "frames": []}  # fmt: skip
    path.write_bytes(pickle.dumps(snapshot([segment, *entries])))
    document = read(binary, path, "--by", "layer")
    return {row["layer"]: row["bytes"] for row in document["pools"][0]["at_peak"]["rows"]}


def test_metadata_of_the_program_and_regions_of_the_compiler(binary, tmp_path):
    entries = [
        entry(0, "my phase"),
        entry(1, "", "Torch-Compiled Region: 0/1"),
        entry(2, "vramline:forward:Net:a.0"),
        entry(3, "vramline:backward:Net:a.0"),
        entry(4, "vramline:forward:Net:"),
        entry(5, "vramline:sideways"),
        entry(6, ""),
    ]
    assert layers_of(binary, tmp_path, entries) == {
        "my phase": 512, "compiled region 0/1": 512, "a.0": 1024, "Net": 512, "vramline:sideways": 512, "": 512,
    }  # fmt: skip
    # Of several models, each has its name.
    several = [entry(0, "vramline:forward:Net:a"), entry(1, "vramline:forward:Critic:a")]
    assert layers_of(binary, tmp_path, several) == {"Net/a": 512, "Critic/a": 512}


@pytest.mark.parametrize("metadata", [None, 7, ["vramline:forward:a:b"], "x" * (1 << 20), "\u0000:\u202e", "vramline:forward:" + ":" * 9999])
def test_hostile_metadata_is_only_a_text(binary, tmp_path, metadata):
    rows = layers_of(binary, tmp_path, [entry(0, metadata, metadata), entry(1, "vramline:forward:Net:a")])
    assert rows["a"] == 512 and sum(rows.values()) == 1024
