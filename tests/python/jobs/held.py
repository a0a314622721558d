"""What names hold, with the stand-in for PyTorch on a GPU. Prints what is found as a line of JSON."""

import json
import sys
import types

import torch

from vramline.notebooks import cell, held

KIB = 1 << 10
torch.cuda.init()
told = {}


def tensor(kib):
    return torch.Tensor(kib * KIB)


def holders(**roots):
    found = held.held(roots, "GPU:0")
    return {"bytes": found.bytes, "complete": found.is_complete} | {each.name: [each.bytes, each.only] for each in found.holders}


class Model:
    def __init__(self):
        self.weight, self.itself = tensor(64), self
        self.weight.grad = tensor(64)
        # What a module holds is not the model's.
        self.module = types.ModuleType("other")
        self.module.cache = tensor(8)


def closure(given):
    def inner():
        return given

    return inner


def generator(given):
    yield 1
    yield given


model = Model()
started = generator(tensor(16))
next(started)
told["objects"] = holders(
    model=model, alias=[model.weight], function=closure(tensor(4)), started=started, default=lambda given=tensor(2): given, number=5  # noqa: B008
)
namespace = {"__builtins__": None, "x": tensor(1)}
told["namespace"] = holders(namespace=namespace, type=Model, module=torch)


# Each link of a long list would be a recursion.
class Link:
    def __init__(self, inner):
        self.inner = inner


chain = tensor(32)
for _ in range(100_000):
    chain = Link(chain)
told["deep"] = holders(chain=chain)
held._MOST_OBJECTS = 1000
told["budget"] = holders(chain=chain)
held._MOST_OBJECTS = 2_000_000


# A cell on a device that counts: figures are those of the allocator.
def stats():
    return torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]


names = {"model": model}
measuring = cell.Measuring("cell", None, reset=True)
measuring.begin(names)
before = stats()["current"]
names["kept"], freed = tensor(100), tensor(300)
freed.free()
(figures,) = measuring.end(names).devices
told["cell"] = {
    "equal": [figures.device, figures.before == before, figures.after == stats()["current"], figures.peak == stats()["peak"]],
    "change": figures.change,
    "named": figures.held.bytes - figures.held_before.bytes,
    "text": str(figures.sheet("cell")),
}


# A traceback holds what the functions had, and a name keeps what it has.
def outer(given):
    inner(given, tensor(40))


def inner(given, passed):
    mine = tensor(24)
    raise ValueError(str(mine is passed))


try:
    outer(model.weight)
except ValueError as error:
    (kept,) = cell.kept_by(error, names)
    told["kept"] = [kept.device, kept.error, kept.bytes, [[name, size] for name, _, size in kept.rows]]
    shared = names | {"passed": next(frame.f_locals["passed"] for frame in cell.frames_of(error) if "passed" in frame.f_locals)}
    told["kept beside a name"] = [kept.bytes for kept in cell.kept_by(error, shared)]
print(json.dumps(told))
sys.exit(0)
