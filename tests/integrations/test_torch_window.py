"""A whole job with the real PyTorch on the CPU, whose trace window is opened by hand: CUDA opens it on a machine with a GPU.

Workers of a DataLoader are forked while the hooks are on.
"""

import json
import os
import subprocess
import sys
import textwrap

import vramline

JOB = """
    import json
    import sys
    import torch
    from torch import nn

    # What CUDA does when it is initialised, with a list in place of the allocator.
    empty = {"segments": [], "device_traces": [[]], "allocator_settings": {}, "external_annotations": []}
    torch._C._cuda_record_memory_history = lambda *_, **__: None
    torch._C._cuda_memorySnapshot = lambda *_, **__: empty
    torch._C._cuda_memoryMetadataSupported = lambda: True
    begin = torch.cuda._queued_calls[-1][0]
    history = begin.__wrapped__.__self__
    told = []
    history._is_enabled, history._modules._tell = lambda: False, told.append
    begin()

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 16
        def __getitem__(self, number):
            assert nn.Identity()(number) == number
            return torch.full((8,), float(number))

    hooks = sys.modules["torch.nn.modules.module"]._global_forward_hooks
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(net.parameters())
    counts = [len(hooks)]
    for batch in torch.utils.data.DataLoader(Data(), 2, num_workers=2):
        net(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        counts.append(len(hooks))
    size = lambda tensors: sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    state = [value for each in optimizer.state.values() for value in each.values()]
    print(json.dumps({"counts": counts, "told": told, "parameters": size(net.parameters()), "optimizer": size(state)}))
"""


def test_the_hooks_are_on_for_the_window_only(binary, tmp_path):
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VRAMLINE")} | {"CUDA_VISIBLE_DEVICES": ""}
    command = [binary, "run", "--no-report", "--trace", "steps=3", "-o", "job.vram", "--", sys.executable, "job.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "is incomplete" not in done.stderr, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    # Before the first step and after each of eight.
    assert said["counts"] == [1, 1, 1] + [0] * 6
    # Each of three steps enters and leaves four modules, and the backward pass passes three.
    step = ["", "0", "", "1", "", "2", "", None]
    texts = [text.split(":")[-1] if text else None for text in said["told"] if not text.startswith("vramline:backward")]
    assert texts[: len(step)] == step
    assert sum(text.startswith("vramline:backward") for text in said["told"]) == 3 * 3
    found = vramline.load(tmp_path / "job.vram").inventory
    rows = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    last = [row for row in rows if row["taken"] == max(row["taken"] for row in rows)]
    listed = {role: sum(row["bytes"] for row in last if row["role"] == role) for role in ("parameters", "optimizer")}
    assert listed == {role: said[role] for role in listed}
    named = {row["name"]: (row["role"], row["model"], row["layer"]) for row in rows}
    assert named["2.weight"] == ("parameters", "Sequential", "2")
    assert named["2.weight.grad"] == ("gradients", "Sequential", "2")
    assert named["2.weight exp_avg"] == ("optimizer", "Sequential", "2")
    assert len({row["process"] for row in rows}) == 1


COMPILES = """
    import torch
    import torch._dynamo.testing
    from torch import nn

    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(backend=counter)
    def update():
        optimizer.step()

    for _ in range(4):
        net(torch.ones(1, 4)).sum().backward()
        update()
        optimizer.zero_grad()
    found = torch._dynamo.utils.counters
    print(counter.frame_count, counter.op_count, dict(found["graph_break"]), dict(found["stats"]), net.weight.sum().item())
"""


def test_a_compiled_optimizer_is_compiled_as_without_us(binary, tmp_path):
    (tmp_path / "job.py").write_text(textwrap.dedent(COMPILES))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VRAMLINE")} | {"CUDA_VISIBLE_DEVICES": ""}
    job = [sys.executable, "job.py"]
    outputs = []
    for command in (job, [binary, "run", "--no-report", "-o", "job.vram", "--", *job]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300, check=True)
        outputs.append(done.stdout.splitlines()[-1])
    assert outputs[0] == outputs[1]
