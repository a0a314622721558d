"""Owners of PyTorch's memory on a real GPU: jobs of many kinds under `vramline run`, compared with what their objects say.

    python tests/gpu/owners.py OUT              # all jobs; needs PyTorch with CUDA and vramline installed
    python tests/gpu/owners.py OUT gan lstm     # some of them
    python tests/gpu/owners.py --job gan        # one job alone, without Vramline

For each job it prints the share of the peak's requested bytes that has an owner and a role, the bytes of parameters, gradients and optimizer
state in the recording beside those of the objects, the steps, and whether the results are the same to the last bit without Vramline. It
ends with 1 if a comparison fails. Jobs whose packages are missing are skipped. With VRAMLINE_OWNERS_DEVICE=cpu the jobs run on the CPU, to
check the script itself; there the allocator records nothing.
"""

import concurrent.futures
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

STEPS = 8
DEVICE = os.environ.get("VRAMLINE_OWNERS_DEVICE", "cuda")
LEAST_SHARE = 0.99


def bytes_of(tensors):
    found = {}
    for tensor in tensors:
        tensor = getattr(tensor, "_local_tensor", tensor)
        found[id(tensor)] = tensor.numel() * tensor.element_size()
    return sum(found.values())


class Truth:
    """What the objects say after the last update that was traced: gradients exist until they are zeroed."""

    def __init__(self, models, optimizers):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.models, self.optimizers, self.gradients = models, optimizers, 0
        register_optimizer_step_post_hook(lambda *_: self.note())

    def note(self):
        held = [parameter.grad for model in self.models for parameter in model.parameters() if parameter.grad is not None]
        self.gradients = max(self.gradients, bytes_of(held))

    def told(self):
        import torch

        digest = hashlib.sha256()
        for model in self.models:
            for tensor in model.state_dict().values():
                if isinstance(tensor, torch.Tensor):
                    digest.update(getattr(tensor, "_local_tensor", tensor).detach().float().cpu().numpy().tobytes())
        state = [value for one in self.optimizers for each in one.state.values() for value in each.values() if isinstance(value, torch.Tensor)]
        return {
            "parameters": bytes_of(parameter for model in self.models for parameter in model.parameters()),
            "gradients": self.gradients,
            "optimizer": bytes_of(state),
            "peak": torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None,
            "digest": digest.hexdigest()[:16],
        }


def llama(layers=4, width=256):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=2048, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=4, use_cache=False)  # fmt: skip
    return LlamaForCausalLM(config)


def hf_trainer(checkpointing=False):
    import torch
    from transformers import Trainer, TrainingArguments

    model = llama()
    rows = [{"input_ids": torch.arange(256) % 2048, "labels": torch.arange(256) % 2048} for _ in range(4 * STEPS)]
    arguments = TrainingArguments("out", per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=STEPS, report_to=[],
        save_strategy="no", disable_tqdm=True, use_cpu=DEVICE == "cpu", gradient_checkpointing=checkpointing, seed=0)  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=rows)
    truth = Truth([model], [])
    trainer.train()
    truth.optimizers = [getattr(trainer.optimizer, "optimizer", trainer.optimizer)]
    return truth.told()


def hf_checkpointing():
    return hf_trainer(True)


def lightning_amp():
    import torch
    from torch import nn

    try:
        import lightning
    except ImportError:
        import pytorch_lightning as lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 4)

        def training_step(self, batch, number):
            return self.net(batch).float().pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-4)

    model = Model()
    truth = Truth([model], [])
    precision = "16-mixed" if DEVICE == "cuda" else "bf16-mixed"
    trainer = lightning.Trainer(max_steps=STEPS, accelerator="gpu" if DEVICE == "cuda" else "cpu", devices=1, logger=False, precision=precision,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(model, torch.utils.data.DataLoader(torch.randn(4 * STEPS, 64, 128), 4))
    truth.optimizers = trainer.optimizers
    return truth.told()


def blocks(width=256, layers=4):
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(self.up(self.norm(x)).relu())

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.ModuleList([Block() for _ in range(layers)]), nn.Linear(width, 10)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    return Blocks()


def trained(model, call=None, width=256):
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    truth = Truth([model], [optimizer])
    for _ in range(STEPS):
        x, y = torch.randn(512, width, device=DEVICE), torch.randint(0, 10, (512,), device=DEVICE)
        torch.nn.functional.cross_entropy((model if call is None else call)(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return truth.told()


def loop():
    return trained(blocks().to(DEVICE))


def loop_times():
    """The same as `loop`, for an allocator that takes no text, as older versions: modules are known by the time they ran."""
    import torch

    torch._C._cuda_memoryMetadataSupported = lambda: False
    return loop()


def compiled():
    import torch

    model = blocks().to(DEVICE)
    return trained(model, torch.compile(model))


def ddp(rank=None):
    """Two processes with one GPU, by gloo. The first tells."""
    import torch
    import torch.distributed as dist

    if rank is None:
        arguments = [sys.executable, __file__, "--job", "ddp"]
        environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
        workers = [subprocess.Popen(arguments, env=environment | {"RANK": str(each)}, stdout=subprocess.PIPE, text=True) for each in range(2)]
        outputs = [worker.communicate()[0] for worker in workers]
        assert all(worker.returncode == 0 for worker in workers)
        return json.loads(outputs[0].splitlines()[-1])
    dist.init_process_group("gloo")
    model = blocks().to(DEVICE)
    told = trained(model, torch.nn.parallel.DistributedDataParallel(model))
    dist.destroy_process_group()
    return told


def fsdp():
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29518", "RANK": "0", "WORLD_SIZE": "1"}
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    torch.manual_seed(0)
    model = blocks().to(DEVICE)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    told = trained(model)
    dist.destroy_process_group()
    return told


def gan():
    import torch
    from torch import nn

    class Generator(nn.Sequential):
        pass

    class Critic(nn.Sequential):
        pass

    generator = Generator(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256)).to(DEVICE)
    critic = Critic(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1)).to(DEVICE)
    one, two = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    truth = Truth([generator, critic], [one, two])
    for _ in range(STEPS):
        noise, real = torch.randn(512, 64, device=DEVICE), torch.randn(512, 256, device=DEVICE)
        (critic(generator(noise).detach()).mean() - critic(real).mean()).backward()
        one.step(), one.zero_grad()
        (-critic(generator(noise)).mean()).backward()
        two.step(), two.zero_grad(), one.zero_grad()
    return truth.told()


def generate():
    import torch

    model = llama().to(DEVICE).eval()
    truth = Truth([model], [])
    model.generate(torch.arange(32, device=DEVICE)[None].repeat(4, 1), max_new_tokens=16, do_sample=False, pad_token_id=0, use_cache=True)
    return truth.told()


def lstm():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(256, 256, 2, batch_first=True), nn.Linear(256, 10)

        def forward(self, x):
            return self.head(self.rnn(x.view(64, 8, 256))[0][:, -1]).repeat_interleave(8, 0)

    torch.backends.cudnn.deterministic = True
    return trained(Model().to(DEVICE))


def unet():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)])
            self.middle, self.norm = nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(8, 32)
            self.up = nn.ModuleList([nn.ConvTranspose2d(64, 16, 2, 2), nn.Conv2d(32, 10, 1)])

        def forward(self, x):
            a = self.down[0](x.view(512, 1, 16, 16)).relu()
            b = self.down[1](a).relu()
            c = torch.cat([self.norm(self.middle(b)).relu(), b], 1)
            return self.up[1](torch.cat([self.up[0](c), a], 1)).mean((2, 3))

    return trained(Model().to(DEVICE))


def keras_torch():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((784,)), *(keras.layers.Dense(1024, "relu") for _ in range(3)), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    draw = np.random.default_rng(0)
    truth = Truth([model], [])
    model.fit(draw.normal(size=(256 * STEPS, 784)).astype("float32"), draw.integers(0, 10, 256 * STEPS), batch_size=256, verbose=0)
    told = truth.told()
    # Keras computes gradients without an optimizer of PyTorch, and its own has counters too.
    state = [variable.value for variable in model.optimizer.variables]
    return told | {"gradients": None, "optimizer": bytes_of(state)}


JOBS = {
    "keras_torch": keras_torch,
    "loop": loop,
    "loop_times": loop_times,
    "hf_trainer": hf_trainer,
    "hf_checkpointing": hf_checkpointing,
    "lightning_amp": lightning_amp,
    "compiled": compiled,
    "ddp": ddp,
    "fsdp": fsdp,
    "gan": gan,
    "generate": generate,
    "lstm": lstm,
    "unet": unet,
}
NEEDS = {
    "hf_trainer": ("transformers",),
    "hf_checkpointing": ("transformers",),
    "generate": ("transformers",),
    "keras_torch": ("keras",),
    "lightning_amp": ("lightning", "pytorch_lightning"),
}
# Jobs that run at the same time. They share the GPU, but nothing that is compared.
AT_ONCE = int(os.environ.get("VRAMLINE_OWNERS_AT_ONCE", "4"))
# Steps of the report: `generate` trains nothing.
TRAINS = {name: 0 if name == "generate" else STEPS for name in JOBS}


def job(name):
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(0)
    if name == "ddp":
        rank = os.environ.get("RANK")
        told = ddp(rank)
        if rank not in (None, "0"):
            return
    else:
        told = JOBS[name]()
    print(json.dumps(told))


def run(command, folder, say):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=900, check=False)
    if done.returncode != 0:
        say(done.stdout[-2000:], done.stderr[-4000:])
        return None, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def listed(folder):
    """Bytes by role in the inventory with the most gradients, of the process that has the most."""
    import vramline

    found = vramline.load(folder).inventory
    best = {}
    columns = zip(*(found[name] for name in ("process", "taken", "role", "bytes", "address", "name")), strict=True)
    by_listing = {}
    for process, taken, role, size, address, name in columns:
        rows = by_listing.setdefault((process, taken), {})
        rows[(role, address or name)] = (role, size)
    for rows in by_listing.values():
        sums = {}
        for role, size in rows.values():
            sums[role] = sums.get(role, 0) + int(size)
        if (sums.get("gradients", 0), sums.get("optimizer", 0)) >= (best.get("gradients", 0), best.get("optimizer", 0)):
            best = sums
    return best


def compare(name, out, say):
    """Returns what is wrong with one job, and passes the lines for people to `say`."""
    folder = out / f"{name}.vram"
    own = [sys.executable, str(pathlib.Path(__file__).resolve()), "--job", name]
    plain, _ = run(own, out, say)
    shutil.rmtree(folder, ignore_errors=True)
    told, noise = run(["vramline", "run", "--no-report", "-o", str(folder), "--", *own], out, say)
    if plain is None or told is None:
        return [f"{name}: the job failed"]
    wrong = []
    report = json.loads(subprocess.run(["vramline", "report", str(folder), "--json"], capture_output=True, text=True, check=True).stdout)
    say(f"== {name}: {told}")
    if "vramline: the recording" in noise or "a hook failed" in noise:
        wrong.append(f"{name}: {noise[-500:]}")
    if plain["digest"] != told["digest"]:
        wrong.append(f"{name}: results differ with and without Vramline: {plain['digest']}, {told['digest']}")
    if plain["peak"] != told["peak"]:
        wrong.append(f"{name}: the peak differs with and without Vramline: {plain['peak']}, {told['peak']}")
    steps = [step for step in report["steps"] if step["phase"] == "train"]
    count = len({(step.get("process"), step["step"]) for step in steps if step["how"] != "trace"})
    # Each of two processes has its own steps.
    expected = TRAINS[name] * (2 if name == "ddp" and len(steps) > TRAINS[name] else 1)
    if DEVICE == "cuda" and count not in (expected, TRAINS[name]):
        wrong.append(f"{name}: {count} steps, expected {TRAINS[name]}")
    rows = listed(folder)
    for role in ("parameters", "gradients", "optimizer"):
        say(f"   {role:12} recorded {rows.get(role, 0):>12}  objects {told[role]!s:>12}")
        if told[role] is not None and rows.get(role, 0) != told[role]:
            wrong.append(f"{name}: {role} are {rows.get(role, 0)} bytes in the recording, {told[role]} by the objects")
    for pool in report["pools"]:
        held = pool["at_peak"]
        if not held or not pool["name"].startswith("cuda"):
            continue
        requested = held["named_bytes"] + held["unnamed_bytes"]
        known = sum(row["bytes"] for row in held["rows"] if (row["layer"] or row["variable"]) and row["role"] != "unknown")
        share = known / requested if requested else 0.0
        say(f"   {pool['name']}: peak {pool['peak_bytes']}, owner and role {share:.2%} of {requested}, by role {held['by_role']}")
        for row in [row for row in held["rows"] if not (row["layer"] or row["variable"]) or row["role"] == "unknown"][:5]:
            say(f"      without: {row['bytes']:>12} {row['role']} {row['op'] or '(no frames)'} {row['evidence']}")
        if share < LEAST_SHARE:
            wrong.append(f"{name}: {share:.2%} of the peak has an owner and a role")
    return wrong


def tried(name, out):
    """Returns the lines that a job gives, and what is wrong with it."""
    lines = []
    packages = NEEDS.get(name, ())
    if packages and not any(importlib.util.find_spec(package) for package in packages):
        return [f"== {name}: skipped, {packages[0]} is not installed"], []
    return lines, compare(name, out, lambda *words: lines.append(" ".join(words)))


def main(arguments):
    if arguments[:1] == ["--job"]:
        job(arguments[1])
        return 0
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
