"""Steps as trainers of PyTorch count them, on the CPU: Hugging Face's, Lightning's, accelerate's, and loops written by hand.

These packages are large and slow to import; hence not in the everyday suite.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import vramline

COMMON = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    data = [torch.randn(2, 8) for _ in range(8)]
"""


@pytest.fixture
def steps(binary, tmp_path):
    """A function: runs a script under `vramline run`, and returns its report."""

    def run(script, *options):
        path = tmp_path / "job.py"
        path.write_text(textwrap.dedent(COMMON) + textwrap.dedent(script))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VRAMLINE")}
        environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [binary, "run", "--no-report", "-o", tmp_path / "job.vram", *options, "--", sys.executable, path]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert "vramline: the recording" not in done.stderr, done.stderr
        report = subprocess.run([binary, "report", tmp_path / "job.vram", "--json"], capture_output=True, text=True, check=True)
        return Job(json.loads(report.stdout), tmp_path / "job.vram")

    return run


class Job:
    """A recorded job."""

    def __init__(self, document, folder):
        self.document, self.folder = document, folder

    def steps(self, phase="train"):
        return [step for step in self.document["steps"] if step["phase"] == phase]

    def phases(self):
        marks = vramline.load(self.folder).marks
        return [(label, phase) for kind, label, phase in zip(marks["kind"], marks["label"], marks["phase"], strict=True) if kind == "phase"]


def test_loops_by_hand(steps):
    """A gradient scaler that skips updates, accumulated gradients, and two optimizers per step."""
    job = steps("""
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for number, batch in enumerate(data):
            loss = net(batch).sum()
            # The first gradients and those of step 3 overflow.
            scaler.scale(loss * (float("inf") if number in (0, 3) else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    """)
    assert [step["step"] for step in job.steps()] == list(range(8))
    assert {step["how"] for step in job.steps()} == {"inferred"}


def test_two_networks_and_then_another_training(steps):
    job = steps("""
        critic = nn.Linear(8, 1)
        one, two = (torch.optim.SGD(each.parameters(), 1e-3) for each in (critic, net))
        for batch in data:
            critic(net(batch).detach()).sum().backward()
            one.step(), one.zero_grad()
            critic(net(batch)).sum().backward()
            two.step(), two.zero_grad()
        # Another training, with gradients of two batches.
        third = torch.optim.Adam(net.parameters())
        for number, batch in enumerate(data):
            net(batch).sum().backward()
            if number % 2:
                third.step(), third.zero_grad()
    """)
    assert len(job.steps()) == 8 + 4


def test_accelerate(steps):
    job = steps("""
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters()))
        for batch in data * 2:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).sum())
                optimizer.step()
                optimizer.zero_grad()
    """)
    assert len(job.steps()) == 8


def test_hugging_face(steps):
    job = steps("""
        from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
        config = LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
        model = LlamaForCausalLM(config)
        rows = [{"input_ids": torch.arange(6), "labels": torch.arange(6)} for _ in range(16)]
        arguments = TrainingArguments("out", per_device_train_batch_size=1, gradient_accumulation_steps=2, num_train_epochs=1, use_cpu=True,
            eval_strategy="epoch", save_strategy="no", report_to=[], disable_tqdm=True, per_device_eval_batch_size=2)
        trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:4])
        trainer.train()
        model.generate(torch.arange(3)[None], max_new_tokens=2, pad_token_id=0)
        # After the trainer, the loop is the program's own again.
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        for batch in data:
            net(batch).sum().backward()
            optimizer.step()
    """)
    of_trainer = [step for step in job.steps() if step["how"] == "trainer"]
    assert [step["step"] for step in of_trainer] == list(range(8))
    assert {step["epoch"] for step in of_trainer} == {0}
    assert len(job.steps()) - len(of_trainer) == 8
    assert len(job.steps("validation")) == 2
    assert job.phases() == [("evaluate", "validation"), ("train", "train"), ("generate", "predict")]


@pytest.mark.parametrize("accumulates", [1, 2])
def test_lightning(steps, accumulates):
    job = steps(f"""
        import lightning
        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = net
            def training_step(self, batch, number):
                return self.net(batch).sum()
            def validation_step(self, batch, number):
                self.net(batch)
            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters())
        trainer = lightning.Trainer(max_epochs={accumulates}, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=1, accumulate_grad_batches={accumulates})
        loader = torch.utils.data.DataLoader(torch.randn(16, 8), 2, num_workers={accumulates - 1})
        trainer.fit(Model(), loader, torch.utils.data.DataLoader(torch.randn(4, 8), 2))
    """)
    assert [step["step"] for step in job.steps()] == list(range(8))
    assert {step["how"] for step in job.steps()} == {"trainer"}
    # One to check that it works, and two after each epoch.
    assert len(job.steps("validation")) == 1 + 2 * accumulates
    assert job.phases() == [("validate", "validation")] * (1 + accumulates) + [("fit", "train")]
