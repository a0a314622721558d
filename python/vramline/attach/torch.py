"""Hooks on PyTorch: a step is what ends with an optimizer's update; a memory limit is set when CUDA is initialised."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from vramline import inventory
from vramline.attach.settings import Asked
from vramline.attach.steps import Steps, quietly


def hook(torch: ModuleType, steps: Steps, asked: Asked) -> None:
    """Puts the hooks on a PyTorch that has just been imported."""
    if asked.limit is not None:
        limit = asked.limit
        torch.cuda._lazy_call(lambda: _set_limit(torch, limit, steps))
    from torch.optim.optimizer import register_optimizer_step_post_hook

    @quietly
    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        local = steps.local
        if local.in_keras:
            return
        steps.owns(optimizer, lambda: inventory.of_torch(optimizer))
        steps.end("train", "inferred", local.boundary)
        if not steps.window.is_open:
            steps.take_inventory()
        # A loop shows where a step ends; the next begins there.
        local.boundary = steps.begin()

    register_optimizer_step_post_hook(stepped)


def _set_limit(torch: ModuleType, limit: int, steps: Steps) -> None:
    for number in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(number).total_memory
        if limit < total:
            torch.cuda.set_per_process_memory_fraction(limit / total, number)
            steps.job.mark("setting", f"limit of GPU:{number}: {limit} of {total} bytes")
