"""A loop with accelerate, recorded with `vramline.record`; its last step runs out of memory. Writes facts to `facts.json`.

python accelerated.py FOLDER
"""

import json
import pathlib
import sys

import cuda_stand_in as cuda
import torch
from accelerate import Accelerator
from torch import nn

import vramline

folder = pathlib.Path(sys.argv[1])
cuda.install()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
batches = torch.randn(12, 2, 4)
facts = {}
try:
    with vramline.record(folder / "run.vram") as recording:
        for step in range(6):
            with recording.step(step):
                for batch in batches[2 * step : 2 * step + 2]:
                    with accelerator.accumulate(model), cuda.held("train", (10 + step) * cuda.MIB):
                        accelerator.backward(model(batch).mean())
                        optimizer.step()
                        optimizer.zero_grad()
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Including "
            "non-PyTorch memory, this process has 15.00 GiB memory in use. Of the allocated memory 14.00 GiB is allocated by PyTorch, and "
            "200.00 MiB is reserved by PyTorch but unallocated."
        )
except torch.OutOfMemoryError as error:
    facts["notes"] = getattr(error, "__notes__", [])
(folder / "facts.json").write_text(json.dumps(facts | {"seen": cuda.seen}))
