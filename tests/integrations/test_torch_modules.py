"""The hooks on PyTorch's modules, with the real package on the CPU: what they tell the allocator, and that they change nothing.

On the CPU the allocator records nothing, so a list stands in for it. PyTorch is large; hence not in the everyday suite.
"""

import copy
import itertools
import os
import pickle
import sys
import threading
import time
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vramline.attach.modules import ModuleHooks
from vramline.frameworks import inventory
from vramline.frameworks.module_names import ModuleNames


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.LayerNorm(width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=8, recomputes=None):
        super().__init__()
        self.recomputes = recomputes
        self.emb = nn.Embedding(16, width)
        self.layers = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Linear(width, 16)

    def forward(self, x):
        x = self.emb(x)
        for layer in self.layers:
            x = layer(x) if self.recomputes is None else checkpoint(layer, x, use_reentrant=self.recomputes)
        return self.head(x)


class Told:
    """Hooks that tell a list instead of the allocator."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(torch._C, "_cuda_memoryMetadataSupported", lambda: True, raising=False)
        monkeypatch.setattr(torch.cuda.memory, "_set_memory_metadata", lambda text: None, raising=False)
        self.names, self.inputs, self.by_thread, self.spans = ModuleNames(), [], {}, []
        self.hooks = ModuleHooks(torch, self.names, self.inputs.extend, self.spans.extend)
        self.hooks._tell = lambda text: self.by_thread.setdefault(threading.get_ident(), []).append(text)

    @property
    def texts(self):
        """What this thread told, without what is the same for all."""
        return [text.removeprefix("vramline:") for text in self.by_thread.pop(threading.get_ident(), [])]


@pytest.fixture
def told(monkeypatch):
    told = Told(monkeypatch)
    yield told
    told.hooks.end()


def batch():
    return torch.randint(0, 16, (4, 5), generator=torch.Generator().manual_seed(1))


def in_order(texts, part):
    """The texts of a pass, each once."""
    return list(dict.fromkeys(text.removeprefix(part) for text in texts if text.startswith(part)))


def test_forward_and_backward_have_the_modules_paths(told):
    net, loss = Net(), nn.CrossEntropyLoss()
    told.hooks.begin()
    result = loss(net(batch()).view(-1, 16), batch().view(-1))
    forward = told.texts
    blocks = [f"Net:layers.{n}{part}" for n in (0, 1) for part in ("", ".norm", ".up", ".down")]
    assert in_order(forward, "forward:") == ["Net:", "Net:emb", *blocks, "Net:head", ":CrossEntropyLoss"]
    assert forward[-1] == ""
    result.backward()
    backward = told.texts
    parts = [f"Net:layers.{n}{part}" for n in (1, 0) for part in ("", ".down", ".up", ".norm")]
    assert in_order(backward, "backward:") == [":CrossEntropyLoss", "Net:head", *parts, "Net:emb"]
    # Between two modules it is the parent's: its ReLU.
    at = backward.index("backward:Net:layers.1.down")
    assert backward[at + 1 : at + 3] == ["backward:Net:layers.1", "backward:Net:layers.1.up"]
    assert backward[-1] == ""
    assert [(name, root) for name, root, _ in told.inputs] == [("argument 0", "Net"), ("argument 1", None)]


def test_an_allocator_that_takes_no_text_gets_times(told, monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_memoryMetadataSupported", lambda: False, raising=False)
    net = Net()
    told.hooks.begin()
    begun = time.monotonic_ns()
    for _ in range(2):
        net(batch()).sum().backward()
        told.hooks.stepped()
    told.hooks.end()
    ended = time.monotonic_ns()
    assert not told.by_thread
    # One after the other, without gaps inside of modules and without overlaps.
    assert all(begun <= begin <= end <= ended for begin, end, _ in told.spans)
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(told.spans))
    texts = [text.removeprefix("vramline:") for *_, text in told.spans]
    blocks = [f"Net:layers.{n}{part}" for n in (0, 1) for part in ("", ".norm", ".up", ".down")]
    assert in_order(texts, "forward:") == ["Net:", "Net:emb", *blocks, "Net:head"]
    parts = [f"Net:layers.{n}{part}" for n in (1, 0) for part in ("", ".down", ".up", ".norm")]
    assert in_order(texts, "backward:") == ["Net:head", *parts, "Net:emb"]
    # Nothing more after the end.
    count = len(told.spans)
    net(batch()).sum().backward()
    assert len(told.spans) == count


@pytest.mark.parametrize("recomputes", [True, False])
def test_a_checkpoint_computes_again_in_the_backward_pass(told, recomputes):
    net = Net(recomputes=recomputes)
    told.hooks.begin()
    result = net(batch()).sum()
    assert told.texts[-1] == ""
    result.backward()
    texts = told.texts
    again = in_order(texts, "forward:")
    assert [path for path in again if path.startswith("Net:layers.1")][:2] == ["Net:layers.1", "Net:layers.1.norm"]
    assert "Net:layers.0.down" in again
    assert "backward:Net:layers.0.up" in texts
    assert texts[-1] == ""


def test_results_are_the_same_to_the_last_bit(told):
    def trained(is_on):
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        if is_on:
            told.hooks.begin()
        for _ in range(4):
            loss = nn.functional.cross_entropy(net(batch()).view(-1, 16), batch().view(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        told.hooks.end()
        return [tensor.numpy().tobytes() for tensor in (loss.detach(), *net.state_dict().values())]

    assert trained(True) == trained(False)
    assert any(told.by_thread.values())


def test_nothing_stays_behind(told):
    module = sys.modules["torch.nn.modules.module"]
    tables = [name for name in vars(module) if name.startswith("_global_") and "hook" in name and name != "_global_is_full_backward_hook"]
    before = ({name: dict(getattr(module, name)) for name in tables}, module._has_any_global_hook)
    told.hooks.begin()
    assert not module._has_any_global_hook()
    result = Net()(batch()).sum()
    told.hooks.end()
    assert ({name: dict(getattr(module, name)) for name in tables}, module._has_any_global_hook) == before
    told.by_thread.clear()
    result.backward()
    Net()(batch())
    assert not any(told.by_thread.values())


def test_an_exception_unwinds(told):
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))

        def forward(self, x):
            return self.inner(x)

    told.hooks.begin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                Fails()(torch.ones(1, 2))
            assert told.texts[-1] == "" and not told.hooks._local.stack


def test_threads_do_not_mix(told):
    nets = [Net(), Net()]
    # Both are roots of the same class.
    told.hooks.begin()
    barrier = threading.Barrier(2)

    def work(net):
        barrier.wait()
        for _ in range(5):
            net(batch()).sum().backward()

    threads = [threading.Thread(target=work, args=(net,)) for net in nets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    roots = [{text.split(":")[2] for text in texts if text} for texts in told.by_thread.values()]
    assert sorted(map(sorted, roots)) == [["Net"], ["Net 2"]]
    assert all(texts[-1] == "" for texts in told.by_thread.values())


def test_modules_stay_what_they_are(told):
    net = Net()
    plain = pickle.dumps(net)
    told.hooks.begin()
    net(batch())
    assert pickle.dumps(net) == plain
    twin = copy.deepcopy(net)
    assert set(vars(twin)) == set(vars(net)) and not twin._forward_hooks
    told.texts.clear()
    twin(batch())
    assert in_order(told.texts, "forward:")[0] == "Net 2:"


def test_names_of_shared_wrapped_and_late_modules(told):
    class Shares(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))
            self.b[0] = self.a[0]

        def forward(self, x):
            return self.b(self.a(x))

    net = Shares()
    told.hooks.begin()
    nn.DataParallel(net)(torch.ones(1, 4))
    assert in_order(told.texts, "forward:") == ["Shares:", "Shares:a", "Shares:a.0", "Shares:b"]
    assert [name for *_, name, _ in told.names.tensors()] == ["a.0.weight", "a.0.bias"]
    # A part that is called by itself, and one that is added later.
    net.a(torch.ones(1, 4))
    net.b.append(nn.Linear(4, 4))
    net(torch.ones(1, 4))
    assert {"Shares:a", "Shares:b.1"} <= set(in_order(told.texts, "forward:"))


def test_a_whole_takes_over_the_parts_that_ran_before(told):
    part = nn.Linear(4, 4)
    told.hooks.begin()
    part(torch.ones(1, 4))
    whole = nn.Sequential(part, nn.ReLU())
    whole(torch.ones(1, 4))
    assert [name for _, name in told.names.roots()] == ["Sequential"]
    assert in_order(told.texts, "forward:") == ["Linear:", "Sequential:", "Sequential:0", "Sequential:1"]


def test_scripted_traced_and_transformed_modules(told):
    x = torch.ones(2, 4)
    linear = nn.Linear(4, 4)
    told.hooks.begin()
    script, trace = torch.jit.script(nn.Sequential(linear, nn.ReLU())), torch.jit.trace(linear, x)
    assert torch.equal(script(x), linear(x).relu()) and torch.equal(trace(x), linear(x))
    assert torch.equal(torch.func.vmap(linear)(x), linear(x))
    gradient = torch.func.grad(lambda x: linear(x).sum())(x)
    assert torch.allclose(gradient, linear.weight.sum(0).expand(2, 4))
    assert len(list(torch.fx.symbolic_trace(nn.Sequential(linear, nn.ReLU())).graph.nodes)) == 4
    assert told.texts[-1] == "" and not told.hooks._local.stack


def compiled(told, is_on, whole):
    """How often PyTorch compiles, and why it leaves the compiler, with the hooks for the first calls."""
    import torch._dynamo.testing

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.out = Net(), nn.Linear(16, 2)

        def forward(self, x):
            x = self.net(x)
            torch._dynamo.graph_break()
            return self.out(x)

    net, counter = Broken(), torch._dynamo.testing.CompileCounter()
    if whole == "function":
        call = torch.compile(lambda x: net(x).sum(), backend=counter)
    elif whole == "method":
        net.compile(backend=counter)
        call = net
    elif whole == "part":
        net.net = torch.compile(net.net, backend=counter)
        call = net
    else:
        call = torch.compile(net, backend=counter)
    results = []
    for turn in range(6):
        if is_on and turn == 0:
            told.hooks.begin()
        if turn == 3:
            told.hooks.end()
        # Other shapes are compiled again.
        result = call(batch() if turn % 3 < 2 else batch()[:2])
        result.sum().backward()
        results.append(result.detach().numpy().tobytes())
    counters = {name: dict(found) for name, found in torch._dynamo.utils.counters.items() if name in ("frames", "graph_break", "stats")}
    return counter.frame_count, counter.op_count, counters, results


@pytest.mark.parametrize("whole", ["module", "function", "method", "part"])
def test_the_compiler_does_not_see_the_hooks(told, whole):
    import torch._dynamo.eval_frame as eval_frame

    plain = compiled(told, False, whole)
    switches = {name: getattr(eval_frame, name) for name in ("set_eval_frame", "_maybe_set_eval_frame") if hasattr(eval_frame, name)}
    told.hooks.watch_compiled(eval_frame)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert compiled(told, True, whole) == plain
        assert not [each for each in caught if "hook" in str(each.message)]
        texts = told.texts
    finally:
        for name, switch in switches.items():
            setattr(eval_frame, name, switch)
    assert plain[0] > 1 and ("graph_break" in plain[2]) == (whole != "part")
    # The part that is not compiled has its names.
    if whole == "part":
        assert {"forward:Broken:out", "backward:Broken:out", "forward:Broken:net"} <= set(texts)
    if whole == "module":
        assert "forward:Broken:" in texts


def test_a_program_that_sets_the_metadata_itself_keeps_it(told):
    told.hooks.begin()
    torch.cuda.memory._set_memory_metadata("mine")
    net = Net()
    net(batch()).sum().backward()
    told.hooks.end()
    assert told.texts == []
    # What the modules own has names nevertheless.
    assert [name for _, name in told.names.roots()] == ["Net"]


def test_a_forked_child_has_no_hooks(told):
    told.hooks.begin()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told.hooks.abandon()
        told.by_thread.clear()
        # Nothing that computes: PyTorch's threads are not there after a fork.
        nn.Identity()(None)
        os.write(writer, str(len(told.texts)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 9) == b"0" and told.hooks.is_on


def test_rows_are_what_the_objects_say(told):
    net = Net()
    net.register_buffer("scale", torch.ones(3))
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    told.hooks.begin()
    net(batch()).sum().backward()
    optimizer.step()
    rows = [*inventory.of_modules(told.names), *inventory.of_torch(optimizer, told.names)]

    def total(tensors):
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def listed(role):
        found = {row.address: row for row in rows if row.role == role}
        return sum(row.bytes for row in found.values())

    state = [value for each in optimizer.state.values() for value in each.values()]
    assert listed("parameters") == total(net.parameters())
    assert listed("gradients") == total(parameter.grad for parameter in net.parameters())
    assert listed("optimizer") == total(state)
    assert listed("state") == total(net.buffers())
    by_name = {row.name: row for row in rows}
    weight = by_name["layers.1.up.weight"]
    assert (weight.model, weight.layer, weight.role) == ("Net", "layers.1.up", "parameters")
    assert weight.address == net.layers[1].up.weight.data_ptr()
    assert by_name["layers.1.up.weight.grad"].address == net.layers[1].up.weight.grad.data_ptr()
    moment = optimizer.state[net.layers[1].up.weight]["exp_avg"]
    assert by_name["layers.1.up.weight exp_avg"].address == moment.data_ptr()


def test_views_of_one_block_are_one_row(told):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    told.hooks.begin()
    net(torch.ones(1, 4))
    bucket = torch.zeros(sum(parameter.numel() for parameter in net.parameters()))
    begin = 0
    for parameter in net.parameters():
        parameter.grad = bucket[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    (row,) = [row for row in inventory.of_modules(told.names) if row.role == "gradients"]
    assert (row.name, row.bytes, row.address) == ("0.weight.grad and 3 more", bucket.numel() * 4, bucket.data_ptr())
