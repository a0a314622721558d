"""Probes and truths for `vramline plan` from a real GPU.

    python tests/gpu/plan_probes.py OUT [--only torch,vramline,jax,held-out,second,third,fourth] [--cases A,B] [--workers N] [--until SECONDS]

Needs PyTorch and JAX with CUDA; no network. OUT gets, each from a process of its own, because an allocator remembers:
- `torch/CASE-BATCH.pickle.gz`: PyTorch's memory snapshot of a few steps at a small batch, from the first allocation on;
- `vram/CASE-BATCH.tar.gz`: for some of the cases the recording of the same by `vramline run`, where that is installed;
- `jax/CASE-BATCH.hlo.pb`: XLA's program of a training step with its plan of memory, at small and at large batches;
- `truths.jsonl`: for every run, small or large, recorded or not, the peaks that the framework counted and what NVML says of the process;
- `recordings-N.tar`: all of `vram/` in few archives of at most 15 MiB. `fixtures/keep_probes.py` turns them and the truths into fixtures.

Most models are written here in plain PyTorch; the held-out groups also use torchvision and transformers. Several processes run at once as long
as most of the device's memory stays free: libraries choose their workspaces by what is free.
"""

import argparse
import gzip
import itertools
import json
import math
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 3
PROBES = (2, 4, 8)
TRUTHS = (16, 32, 64, 128, 256)
JAX_TRUTHS = (64, 128)
DEADLINE = 240
# Memory in GiB that processes may take together; a larger one runs alone.
TOGETHER = 64
# The most bytes of recordings in one archive.
ARCHIVE = 15 << 20

# name: (model, optimizer, whether cuDNN tries its algorithms out, about how many MiB a sample takes)
CASES = {
    "resnet50-sgd": ("resnet50", "sgd", False, 110),
    "resnet50-adam": ("resnet50", "adam", False, 110),
    "resnet50-sgd-benchmark": ("resnet50", "sgd", True, 160),
    "vgg16-sgd": ("vgg16", "sgd", False, 320),
    "vgg16-adam": ("vgg16", "adam", False, 320),
    "convnext-adamw": ("convnext", "adamw", False, 230),
    "gpt-adamw": ("gpt", "adamw", False, 260),
    "gpt-adam": ("gpt", "adam", False, 260),
}
# Models that nobody tuned for: recorded by `vramline run`, as `vramline plan -- CMD` does, and not as bare snapshots.
HELD_OUT = {
    "lstm-adam": ("lstm", "adam", False, 40),
    "gru-adamw": ("gru", "adamw", False, 40),
    "swin-amp": ("swin", "adamw", False, 120),
    "vit-amp": ("vit", "adamw", False, 120),
    "efficientnet-sgd": ("efficientnet", "sgd", False, 110),
    "densenet-sgd": ("densenet", "sgd", False, 140),
    "gpt-compiled": ("gpt", "adamw", False, 260),
    "unet-adam": ("unet", "adam", False, 200),
    "bert-trainer": ("bert", "adamw", False, 150),
}
# A second group, for what was changed after the first one was known.
SECOND = {
    "bilstm-adam": ("tagger", "adam", False, 60),
    "speech-adamw": ("speech", "adamw", False, 90),
    "regnet-amp": ("regnet", "sgd", False, 130),
    "deeplab-bf16": ("deeplab", "adam", False, 330),
    "mixer-compiled": ("mixer", "adamw", False, 170),
    "gpt2-trainer": ("gpt2", "adamw", False, 340),
    "mobilenet-sgd": ("mobilenet", "sgd", False, 70),
    "t5-adam": ("t5", "adam", False, 260),
    "resnext-adam": ("resnext", "adam", False, 150),
    "video-adam": ("video", "adam", False, 260),
}
# A third group, for what was changed after the second one was known.
THIRD = {
    "forecast-adamw": ("forecaster", "adamw", False, 12),
    "translator-adam": ("translator", "adam", False, 12),
    "diffusion-amp": ("diffusion", "adamw", False, 115),
    "wavenet-bf16": ("wavenet", "adam", False, 110),
    "perceiver-compiled": ("perceiver", "adamw", False, 50),
    "whisper-trainer": ("whisper", "adamw", False, 70),
    "graph-adam": ("graph", "adam", False, 45),
    "pairs-adamw": ("pairs", "adamw", False, 16),
    "retina-sgd": ("retina", "sgd", False, 60),
    "vnet-adam": ("vnet", "adam", False, 100),
    "fourier-adamw": ("fourier", "adamw", False, 40),
}
# A fourth group, for what was changed after the third one was known.
FOURTH = {
    "captioner-adam": ("captioner", "adam", False, 45),
    "sessions-adamw": ("sessions", "adamw", False, 30),
    "shufflenet-amp": ("shufflenet", "sgd", False, 60),
    "superres-bf16": ("superres", "adam", False, 130),
    "llama-compiled": ("llama", "adamw", False, 170),
    "albert-trainer": ("albert", "adamw", False, 110),
    "vqvae-adam": ("vqvae", "adam", False, 110),
    "pointnet-adam": ("pointnet", "adam", False, 40),
    "hourglass-sgd": ("hourglass", "sgd", False, 170),
}
HELD_OUT_PROBES = {
    "lstm-adam": (3, 6, 12),
    "gru-adamw": (5, 10, 15),
    "bilstm-adam": (3, 6, 12),
    "speech-adamw": (3, 5, 9),
    "forecast-adamw": (7, 13, 19),
    "translator-adam": (5, 7, 13),
    "pairs-adamw": (6, 12, 20),
    "captioner-adam": (4, 8, 12),
    "sessions-adamw": (6, 11, 17),
    "pointnet-adam": (3, 6, 12),
}
HELD_OUT_GROUPS = {"held-out": HELD_OUT, "second": SECOND, "third": THIRD, "fourth": FOURTH}
CASES |= HELD_OUT | SECOND | THIRD | FOURTH
# Also recorded by `vramline run`.
RECORDED = ("resnet50-sgd", "gpt-adamw", *HELD_OUT, *SECOND, *THIRD, *FOURTH)
JAX_CASES = ("mlp", "convolution")


# Models. They are made inside a function: this file is also read where there is no PyTorch.


def resnet50(torch):
    nn = torch.nn

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, width, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, 4 * width, 1, bias=False),
                nn.BatchNorm2d(4 * width),
            )
            self.short = None
            if stride > 1 or inputs != 4 * width:
                self.short = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
            self.last = nn.ReLU(inplace=True)

        def forward(self, x):
            short = x if self.short is None else self.short(x)
            return self.last(self.body(x) + short)

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers.append(Bottleneck(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)), images


def vgg16(torch):
    nn = torch.nn
    layers, inputs = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 4096)]
    return nn.Sequential(*layers, *head, nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)), images


def convnext(torch):
    """ConvNeXt-T."""
    nn = torch.nn

    class LastFirst(nn.Module):
        """A norm over channels of images that have them first."""

        def __init__(self, width):
            super().__init__()
            self.norm = nn.LayerNorm(width, eps=1e-6)

        def forward(self, x):
            return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width, eps=1e-6)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(1e-6 * torch.ones(width))

        def forward(self, x):
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            y = self.scale * self.narrow(nn.functional.gelu(self.wide(y)))
            return x + y.permute(0, 3, 1, 2)

    layers, inputs = [nn.Conv2d(3, 96, 4, 4), LastFirst(96)], 96
    for width, count in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if width != inputs:
            layers += [LastFirst(inputs), nn.Conv2d(inputs, width, 2, 2)]
        layers += [Block(width) for _ in range(count)]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000)), images


def gpt(torch):
    nn, length, words, width, heads = torch.nn, 384, 16000, 512, 8

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x):
            batch, count, _ = x.shape
            parts = self.inner(self.first(x)).view(batch, count, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.outer(y.transpose(1, 2).reshape(batch, count, width))
            return x + self.mlp(self.second(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(8)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, x):
            x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    def text(batch):
        told = torch.randint(0, words, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), text


def recurrent(torch, kind):
    nn, length, words, width = torch.nn, 128, 8000, 512

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
            self.body = getattr(nn, kind)(width, width, 3, batch_first=True, dropout=0.1)

        def forward(self, x):
            return self.head(self.body(self.words(x))[0]).flatten(0, 1)

    def text(batch):
        told = torch.randint(0, words, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), text


def lstm(torch):
    return recurrent(torch, "LSTM")


def gru(torch):
    return recurrent(torch, "GRU")


def of_torchvision(name):
    import torchvision

    return getattr(torchvision.models, name)(weights=None), images


def swin(torch):
    return of_torchvision("swin_t")


def vit(torch):
    return of_torchvision("vit_b_16")


def efficientnet(torch):
    return of_torchvision("efficientnet_b0")


def densenet(torch):
    return of_torchvision("densenet121")


def unet(torch):
    """As diffusion models use it: norms over groups, attention in the middle."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, width):
            super().__init__()
            self.body = nn.Sequential(
                *(nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, width, 3, padding=1)),
                *(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)),
            )
            self.short = nn.Conv2d(inputs, width, 1)

        def forward(self, x):
            return self.body(x) + self.short(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, widths = nn.Conv2d(3, 64, 3, padding=1), (64, 128, 256)
            self.down = nn.ModuleList([Block(a, b) for a, b in zip((64, *widths), widths, strict=False)])
            self.attention, self.middle = nn.MultiheadAttention(256, 4, batch_first=True), Block(256, 256)
            self.up = nn.ModuleList([Block(a + b, b) for a, b in zip((256, 256, 128), reversed(widths), strict=False)])
            self.last = nn.Conv2d(64, 3, 3, padding=1)

        def forward(self, x):
            x, kept = self.first(x), []
            for block in self.down:
                kept.append(block(x))
                x = nn.functional.avg_pool2d(kept[-1], 2)
            flat = x.flatten(2).transpose(1, 2)
            x = self.middle(x + self.attention(flat, flat, flat)[0].transpose(1, 2).view_as(x))
            for block in self.up:
                x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2), kept.pop()], 1))
            return self.last(x).permute(0, 2, 3, 1).reshape(-1, 3)

    return Model(), lambda batch: (torch.randn(batch, 3, 64, 64), torch.randint(0, 3, (batch * 64 * 64,)))


def tagger(torch):
    """Tags the words of sentences: a bidirectional LSTM."""
    nn, length, words, width, tags = torch.nn, 96, 12000, 384, 64

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(words, width), nn.Linear(2 * width, tags)
            self.body = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)

        def forward(self, x):
            return self.head(self.body(self.words(x))[0]).flatten(0, 1)

    return Model(), lambda batch: (torch.randint(0, words, (batch, length)), torch.randint(0, tags, (batch * length,)))


def speech(torch):
    """Recognises speech: convolutions over a spectrogram, then a bidirectional GRU of five layers."""
    nn, width, letters = torch.nn, 320, 29

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Sequential(
                *(nn.Conv2d(1, 32, (11, 11), (2, 2), (5, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
                *(nn.Conv2d(32, 32, (11, 11), (2, 1), (5, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
            )
            self.body = nn.GRU(32 * 20, width, 5, batch_first=True, bidirectional=True, dropout=0.1)
            self.head = nn.Linear(2 * width, letters)

        def forward(self, x):
            x = self.front(x).flatten(1, 2).transpose(1, 2)
            return self.head(self.body(x)[0]).flatten(0, 1)

    return Model(), lambda batch: (torch.randn(batch, 1, 80, 240), torch.randint(0, letters, (batch * 120,)))


def regnet(torch):
    return of_torchvision("regnet_y_1_6gf")


def mobilenet(torch):
    return of_torchvision("mobilenet_v3_large")


def resnext(torch):
    return of_torchvision("resnext50_32x4d")


def deeplab(torch):
    """Labels the pixels of images."""
    import torchvision

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21)

        def forward(self, x):
            return self.inner(x)["out"].permute(0, 2, 3, 1).flatten(0, 2)

    return Model(), lambda batch: (torch.randn(batch, 3, 192, 192), torch.randint(0, 21, (batch * 192 * 192,)))


def mixer(torch):
    """MLP-Mixer."""
    nn, width, patches = torch.nn, 512, 196

    def dense(inputs, inner):
        return nn.Sequential(nn.Linear(inputs, inner), nn.GELU(), nn.Linear(inner, inputs))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.places, self.channels = dense(patches, 256), dense(width, 2048)

        def forward(self, x):
            x = x + self.places(self.first(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.second(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.blocks = nn.Conv2d(3, width, 16, 16), nn.Sequential(*(Block() for _ in range(8)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

        def forward(self, x):
            return self.head(self.norm(self.blocks(self.cut(x).flatten(2).transpose(1, 2))).mean(1))

    return Model(), images


def t5(torch):
    """An encoder with a decoder, of Hugging Face."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=8000, d_model=512, d_kv=64, d_ff=1024, num_layers=6, num_heads=8, decoder_start_token_id=0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = T5ForConditionalGeneration(config)

        def forward(self, x):
            return self.inner(input_ids=x, decoder_input_ids=x[:, :128].contiguous()).logits.flatten(0, 1)

    return Model(), lambda batch: (torch.randint(0, 8000, (batch, 256)), torch.randint(0, 8000, (batch * 128,)))


def video(torch):
    """Convolutions over three dimensions."""
    import torchvision

    made = torchvision.models.video.r3d_18(weights=None)
    return made, lambda batch: (torch.randn(batch, 3, 8, 112, 112), torch.randint(0, 400, (batch,)))


def forecaster(torch):
    """Forecasts series: a GRU, a norm and a residual in each layer."""
    nn, length, series, width, ahead = torch.nn, 336, 12, 256, 48

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(series, width), nn.Linear(width, ahead * series)
            self.layers = nn.ModuleList([nn.GRU(width, width, batch_first=True) for _ in range(4)])
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in self.layers])
            self.loss = nn.MSELoss()

        def forward(self, x):
            x = self.first(x)
            for layer, norm in zip(self.layers, self.norms):
                x = x + norm(layer(x)[0])
            return self.head(x[:, -1])

    return Model(), lambda batch: (torch.randn(batch, length, series), torch.randn(batch, ahead * series))


def translator(torch):
    """Translates sentences: an LSTM that reads, and one that writes and attends to what was read."""
    nn, words, width, read, written = torch.nn, 10000, 256, 64, 48

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.read_words, self.written_words = nn.Embedding(words, width), nn.Embedding(words, width)
            self.encoder = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True, dropout=0.2)
            self.decoder = nn.LSTM(width, 2 * width, 2, batch_first=True, dropout=0.2)
            self.score, self.mix = nn.Linear(2 * width, 2 * width, bias=False), nn.Linear(4 * width, 2 * width)
            self.dropout, self.head = nn.Dropout(0.2), nn.Linear(2 * width, words)

        def forward(self, x, before):
            memory, last = self.encoder(self.read_words(x))
            # Both directions of a layer are the first state of one layer of the decoder.
            state = tuple(each.view(2, 2, x.shape[0], width).transpose(1, 2).flatten(2).contiguous() for each in last)
            y = self.decoder(self.written_words(before), state)[0]
            weights = (self.score(y) @ memory.transpose(1, 2)).softmax(-1)
            return self.head(self.dropout(torch.tanh(self.mix(torch.cat([y, weights @ memory], -1))))).flatten(0, 1)

    def sentences(batch):
        told = torch.randint(0, words, (batch, written + 1))
        return torch.randint(0, words, (batch, read)), told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), sentences


def diffusion(torch):
    """Removes noise from images: a U-Net that is told the time, with attention at its smallest size."""
    nn, base, heads, side = torch.nn, 64, 4, 64

    class Block(nn.Module):
        def __init__(self, inputs, width):
            super().__init__()
            self.body = nn.Sequential(nn.GroupNorm(16, inputs), nn.SiLU(), nn.Conv2d(inputs, width, 3, padding=1))
            self.time, self.norm = nn.Linear(4 * base, 2 * width), nn.GroupNorm(16, width)
            self.last = nn.Sequential(nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(width, width, 3, padding=1))
            self.short = nn.Identity() if inputs == width else nn.Conv2d(inputs, width, 1)

        def forward(self, x, time):
            scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
            return self.short(x) + self.last(self.norm(self.body(x)) * (1 + scale) + shift)

    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.inner, self.outer = nn.GroupNorm(16, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

        def forward(self, x):
            batch, width, rows, columns = x.shape
            q, k, v = self.inner(self.norm(x)).reshape(batch, 3 * heads, width // heads, rows * columns).chunk(3, 1)
            weights = (q.transpose(2, 3) @ k * (width // heads) ** -0.5).softmax(-1)
            return x + self.outer((v @ weights.transpose(2, 3)).reshape(batch, width, rows, columns))

    class Stage(nn.Module):
        def __init__(self, *parts):
            super().__init__()
            self.parts = nn.ModuleList(parts)

        def forward(self, x, time):
            for part in self.parts:
                x = part(x, time) if isinstance(part, Block) else part(x)
            return x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(base, 4 * base), nn.SiLU(), nn.Linear(4 * base, 4 * base), nn.SiLU())
            self.first = nn.Conv2d(3, base, 3, padding=1)
            down, up, kept, width, levels = [], [], [base], base, (base, 2 * base, 4 * base)
            for wide in levels:
                for _ in range(2):
                    down.append(Stage(Block(width, wide), *([Attention(wide)] if wide == levels[-1] else [])))
                    kept.append(wide)
                    width = wide
                if wide != levels[-1]:
                    down.append(Stage(nn.Conv2d(wide, wide, 3, 2, 1)))
                    kept.append(wide)
            for wide in reversed(levels):
                for number in range(3):
                    parts = [Block(width + kept.pop(), wide), *([Attention(wide)] if wide == levels[-1] else [])]
                    if number == 2 and wide != levels[0]:
                        parts += [nn.Upsample(scale_factor=2), nn.Conv2d(wide, wide, 3, padding=1)]
                    up.append(Stage(*parts))
                    width = wide
            self.down, self.up = nn.ModuleList(down), nn.ModuleList(up)
            self.middle = Stage(Block(levels[-1], levels[-1]), Attention(levels[-1]))
            self.last = nn.Sequential(nn.GroupNorm(16, base), nn.SiLU(), nn.Conv2d(base, 3, 3, padding=1))
            self.loss = nn.MSELoss()

        def forward(self, x, time):
            angles = time[:, None] * 1e4 ** -torch.linspace(0, 1, base // 2, device=x.device)
            time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
            x = self.first(x)
            kept = [x]
            for stage in self.down:
                x = stage(x, time)
                kept.append(x)
            x = self.middle(x, time)
            for stage in self.up:
                x = stage(torch.cat([x, kept.pop()], 1), time)
            return self.last(x)

    def noisy(batch):
        return torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,)), torch.randn(batch, 3, side, side)

    return Model(), noisy


def wavenet(torch):
    """Predicts the next sample of sound: separable causal convolutions with gates, whose reach doubles."""
    nn, values, width, length = torch.nn, 256, 64, 4096

    class Layer(nn.Module):
        def __init__(self, reach):
            super().__init__()
            self.before = 2 * reach
            self.along = nn.Conv1d(width, width, 3, dilation=reach, groups=width)
            self.gates, self.outer = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, 2 * width, 1)

        def forward(self, x):
            y, gate = self.gates(self.along(nn.functional.pad(x, (self.before, 0)))).chunk(2, 1)
            y, skipped = self.outer(torch.tanh(y) * torch.sigmoid(gate)).chunk(2, 1)
            return x + y, skipped

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Embedding(values, width)
            self.layers = nn.ModuleList([Layer(2**power) for _ in range(2) for power in range(8)])
            self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, values, 1), nn.ReLU(), nn.Conv1d(values, values, 1))

        def forward(self, x):
            x, total = self.first(x).transpose(1, 2), 0
            for layer in self.layers:
                x, skipped = layer(x)
                total = total + skipped
            return self.head(total)

    def sound(batch):
        told = torch.randint(0, values, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].contiguous()

    return Model(), sound


def perceiver(torch):
    """Perceiver: few latents attend to all pixels of an image, then to each other."""
    nn, width, heads, latents, side, bands = torch.nn, 384, 8, 128, 64, 16

    class Attention(nn.Module):
        def __init__(self, inputs):
            super().__init__()
            self.norm, self.of_seen, self.query = nn.LayerNorm(width), nn.LayerNorm(inputs), nn.Linear(width, width)
            self.seen, self.outer = nn.Linear(inputs, 2 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x, seen):
            batch, count, size = seen.shape[0], seen.shape[1], width // heads
            q = self.query(self.norm(x)).view(batch, latents, heads, size).transpose(1, 2)
            k, v = self.seen(self.of_seen(seen)).view(batch, count, 2, heads, size).permute(2, 0, 3, 1, 4).unbind(0)
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.outer(y.transpose(1, 2).reshape(batch, latents, width))
            return x + self.mlp(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            line = torch.linspace(-1, 1, side)
            places = torch.stack([line[:, None].expand(side, side), line.expand(side, side)], -1).reshape(side * side, 2, 1)
            angles = (places * torch.linspace(1, side / 2, bands) * 3.14159).flatten(1)
            self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1))
            self.latents = nn.Parameter(0.02 * torch.randn(latents, width))
            self.cross = nn.ModuleList([Attention(3 + 4 * bands) for _ in range(2)])
            self.own = nn.ModuleList([Attention(width) for _ in range(6)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

        def forward(self, x):
            batch = x.shape[0]
            seen = torch.cat([x.flatten(2).transpose(1, 2), self.places.expand(batch, side * side, 4 * bands)], 2)
            y = self.latents.expand(batch, latents, width)
            for number, each in enumerate(self.own):
                if number % 3 == 0:
                    y = self.cross[number // 3](y, seen)
                y = each(y, y)
            return self.head(self.norm(y).mean(1))

    return Model(), lambda batch: (torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,)))


def graph(torch):
    """Passes messages along the links of graphs, which are one large graph for the device."""
    nn, nodes, links, about, width, answers = torch.nn, 256, 2048, 8, 96, 12

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.message = nn.Sequential(nn.Linear(2 * width + about, 2 * width), nn.SiLU(), nn.Linear(2 * width, width), nn.SiLU())
            self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
            self.norm = nn.LayerNorm(width)

        def forward(self, x, begins, ends, features):
            told = self.message(torch.cat([x[begins], x[ends], features], 1))
            sums = torch.zeros_like(x).index_add(0, ends, told)
            return self.norm(x + self.update(torch.cat([x, sums], 1)))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.layers = nn.Linear(16, width), nn.ModuleList([Layer() for _ in range(5)])
            self.head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, answers))
            self.loss = nn.SmoothL1Loss()

        def forward(self, x, linked, features):
            batch = x.shape[0]
            offsets = nodes * torch.arange(batch, device=x.device)
            begins, ends = (linked + offsets[:, None, None]).transpose(0, 1).flatten(1).unbind(0)
            x, features = self.first(x.flatten(0, 1)), features.flatten(0, 1)
            for layer in self.layers:
                x = layer(x, begins, ends, features)
            return self.head(x.view(batch, nodes, width).mean(1))

    def graphs(batch):
        linked = torch.randint(0, nodes, (batch, 2, links))
        return torch.randn(batch, nodes, 16), linked, torch.randn(batch, links, about), torch.randn(batch, answers)

    return Model(), graphs


def pairs(torch):
    """Finds the text of an image: a tower for each of them, and each image is compared with all texts of the batch."""
    nn, words, width, length, side = torch.nn, 8000, 256, 64, 128

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layers = []
            for inputs, outputs in itertools.pairwise((3, 64, 128, 256, 512)):
                layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.GELU()]
            self.seen = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, width))
            self.words, self.places = nn.Embedding(words, width), nn.Parameter(0.02 * torch.randn(length, width))
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, activation="gelu", batch_first=True, norm_first=True)
            self.read = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.last, self.scale = nn.Linear(width, width), nn.Parameter(torch.tensor(2.66))

        def forward(self, x, text):
            seen = nn.functional.normalize(self.seen(x), dim=1)
            read = nn.functional.normalize(self.last(self.read(self.words(text) + self.places).mean(1)), dim=1)
            return seen @ read.t() * self.scale.exp()

        def loss(self, told, y):
            return (nn.functional.cross_entropy(told, y) + nn.functional.cross_entropy(told.t(), y)) / 2

    def captioned(batch):
        return torch.randn(batch, 3, side, side), torch.randint(0, words, (batch, length)), torch.arange(batch)

    return Model(), captioned


def retina(torch):
    """Finds objects: a pyramid of features over ResNet-18, and two heads for all of its levels."""
    import torchvision

    nn, width, kinds, shapes, side = torch.nn, 128, 20, 6, 256
    boxes = shapes * sum((side // size) ** 2 for size in (8, 16, 32, 64))

    def head(outputs):
        layers = [layer for _ in range(4) for layer in (nn.Conv2d(width, width, 3, padding=1), nn.ReLU())]
        return nn.Sequential(*layers, nn.Conv2d(width, shapes * outputs, 3, padding=1))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            body = torchvision.models.resnet18(weights=None)
            self.first = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1)
            self.body = nn.ModuleList([body.layer2, body.layer3, body.layer4])
            self.across = nn.ModuleList([nn.Conv2d(inputs, width, 1) for inputs in (128, 256, 512)])
            self.smooth = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(3)])
            self.coarse, self.kinds, self.places = nn.Conv2d(512, width, 3, 2, 1), head(kinds), head(4)
            nn.init.constant_(self.kinds[-1].bias, -4.6)

        def forward(self, x):
            x, levels = self.first(x), []
            for layer, across in zip(self.body, self.across):
                x = layer(x)
                levels.append(across(x))
            found, above = [self.coarse(x)], None
            for level, smooth in zip(reversed(levels), self.smooth):
                above = level if above is None else level + nn.functional.interpolate(above, scale_factor=2)
                found.append(smooth(above))

            def told(part, outputs):
                rows = [part(level).unflatten(1, (shapes, outputs)).permute(0, 3, 4, 1, 2).flatten(1, 3) for level in found]
                return torch.cat(rows, 1)

            return told(self.kinds, kinds), told(self.places, 4)

        def loss(self, told, y):
            kind, place = y[..., 0].long(), y[..., 1:]
            wanted, is_object = nn.functional.one_hot(kind, kinds + 1)[..., 1:].float(), kind > 0
            right = torchvision.ops.sigmoid_focal_loss(told[0], wanted, reduction="sum")
            near = nn.functional.smooth_l1_loss(told[1][is_object], place[is_object], reduction="sum")
            return (right + near) / is_object.sum().clamp(min=1)

    def labelled(batch):
        kind = torch.randint(1, kinds + 1, (batch, boxes, 1)) * (torch.rand(batch, boxes, 1) < 0.01)
        return torch.randn(batch, 3, side, side), torch.cat([kind.float(), torch.randn(batch, boxes, 4)], 2)

    return Model(), labelled


def vnet(torch):
    """V-Net: labels the voxels of a volume, down and up through residual convolutions over three dimensions."""
    nn, kinds, side = torch.nn, 4, 40

    class Block(nn.Module):
        def __init__(self, inputs, width, count):
            super().__init__()
            layers = []
            for number in range(count):
                layers += [nn.Conv3d(width if number else inputs, width, 3, padding=1), nn.InstanceNorm3d(width, affine=True), nn.PReLU(width)]
            self.body, self.short = nn.Sequential(*layers), nn.Conv3d(inputs, width, 1)

        def forward(self, x):
            return self.body(x) + self.short(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([Block(1, 16, 1), Block(32, 32, 2), Block(64, 64, 2)])
            self.shrink = nn.ModuleList([nn.Conv3d(each, 2 * each, 2, 2) for each in (16, 32, 64)])
            self.middle = Block(128, 128, 2)
            self.grow = nn.ModuleList([nn.ConvTranspose3d(2 * each, each, 2, 2) for each in (64, 32, 16)])
            self.up = nn.ModuleList([Block(128, 64, 2), Block(64, 32, 2), Block(32, 16, 1)])
            self.last = nn.Conv3d(16, kinds, 1)

        def forward(self, x):
            kept = []
            for block, shrink in zip(self.down, self.shrink):
                kept.append(block(x))
                x = shrink(kept[-1])
            x = self.middle(x)
            for grow, block in zip(self.grow, self.up):
                x = block(torch.cat([grow(x), kept.pop()], 1))
            return self.last(x)

        def loss(self, told, y):
            shares, wanted = told.softmax(1), nn.functional.one_hot(y, kinds).movedim(-1, 1).float()
            both, either = (shares * wanted).sum((0, 2, 3, 4)), (shares + wanted).sum((0, 2, 3, 4))
            return nn.functional.cross_entropy(told, y) + 1 - (2 * both / either).mean()

    return Model(), lambda batch: (torch.randn(batch, 1, side, side, side), torch.randint(0, kinds, (batch, side, side, side)))


def fourier(torch):
    """Fourier neural operator: learns what a field becomes, with weights for its lowest frequencies."""
    nn, width, kept, side = torch.nn, 32, 12, 96

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.high = (nn.Parameter(torch.randn(width, width, kept, kept, 2) / width**2) for _ in range(2))

        def forward(self, x):
            found = torch.fft.rfft2(x)
            out = torch.zeros_like(found)
            for rows, weights in ((slice(None, kept), self.low), (slice(-kept, None), self.high)):
                out[:, :, rows, :kept] = torch.einsum("bixy,ioxy->boxy", found[:, :, rows, :kept], torch.view_as_complex(weights))
            return torch.fft.irfft2(out, s=(side, side))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.spectral = nn.Conv2d(3, width, 1), nn.ModuleList([Spectral() for _ in range(4)])
            self.local = nn.ModuleList([nn.Conv2d(width, width, 1) for _ in range(4)])
            self.head = nn.Sequential(nn.Conv2d(width, 128, 1), nn.GELU(), nn.Conv2d(128, 1, 1))
            self.loss = nn.MSELoss()

        def forward(self, x):
            x = self.first(x)
            for spectral, local in zip(self.spectral, self.local):
                x = nn.functional.gelu(spectral(x) + local(x))
            return self.head(x)

    return Model(), lambda batch: (torch.randn(batch, 3, side, side), torch.randn(batch, 1, side, side))


def captioner(torch):
    """Describes images: convolutions whose means are the first state of an LSTM that writes the words."""
    nn, words, width, length = torch.nn, 9000, 512, 40

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layers = []
            for inputs, outputs in itertools.pairwise((3, 32, 64, 128, 256)):
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
            self.seen = nn.Sequential(*layers)
            self.hidden, self.cell = nn.Linear(256, width), nn.Linear(256, width)
            self.words, self.body = nn.Embedding(words, width), nn.LSTM(width, width, batch_first=True)
            self.dropout, self.head = nn.Dropout(0.3), nn.Linear(width, words)

        def forward(self, x, before):
            mean = self.seen(x).mean((2, 3))
            state = self.hidden(mean)[None], self.cell(mean)[None]
            return self.head(self.dropout(self.body(self.words(before), state)[0])).flatten(0, 1)

    def described(batch):
        told = torch.randint(0, words, (batch, length + 1))
        return torch.randn(batch, 3, 112, 112), told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), described


def sessions(torch):
    """Recommends what comes next in a session: a GRU whose answers are compared with the same embedding that it reads."""
    nn, items, width, length = torch.nn, 20000, 320, 50

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.items, self.dropout = nn.Embedding(items, width), nn.Dropout(0.25)
            self.body, self.last = nn.GRU(width, 2 * width, 2, batch_first=True, dropout=0.25), nn.Linear(2 * width, width)

        def forward(self, x):
            y = self.last(self.body(self.dropout(self.items(x)))[0])
            return (y @ self.items.weight.t()).flatten(0, 1)

    def visits(batch):
        told = torch.randint(0, items, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), visits


def shufflenet(torch):
    return of_torchvision("shufflenet_v2_x1_5")


def superres(torch):
    """Enlarges images four times: residual blocks without norms, and channels that become pixels."""
    nn, width, side = torch.nn, 64, 48

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))

        def forward(self, x):
            return x + 0.1 * self.body(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.blocks = nn.Conv2d(3, width, 3, padding=1), nn.Sequential(*(Block() for _ in range(16)))
            self.after = nn.Conv2d(width, width, 3, padding=1)
            grow = [layer for _ in range(2) for layer in (nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2))]
            self.last, self.loss = nn.Sequential(*grow, nn.Conv2d(width, 3, 3, padding=1)), nn.L1Loss()

        def forward(self, x):
            x = self.first(x)
            return self.last(x + self.after(self.blocks(x)))

    return Model(), lambda batch: (torch.randn(batch, 3, side, side), torch.randn(batch, 3, 4 * side, 4 * side))


def llama(torch):
    """A language model with rotated positions, gated MLPs and fewer keys than queries."""
    nn, length, words, width, heads, shared = torch.nn, 256, 12000, 512, 8, 2
    size = width // heads

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale

    def rotated(x, angles):
        first, second = x.chunk(2, -1)
        return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.query, self.seen = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * shared * size, bias=False)
            self.outer, self.wide = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * 1408, bias=False)
            self.narrow = nn.Linear(1408, width, bias=False)

        def forward(self, x, angles):
            batch, count, _ = x.shape
            y = self.first(x)
            q = rotated(self.query(y).view(batch, count, heads, size).transpose(1, 2), angles)
            k, v = self.seen(y).view(batch, count, 2, shared, size).permute(2, 0, 3, 1, 4).unbind(0)
            k, v = (each.repeat_interleave(heads // shared, 1) for each in (rotated(k, angles), v))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.outer(y.transpose(1, 2).reshape(batch, count, width))
            gate, y = self.wide(self.second(x)).chunk(2, -1)
            return x + self.narrow(nn.functional.silu(gate) * y)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.blocks = nn.Embedding(words, width), nn.ModuleList([Block() for _ in range(8)])
            self.norm, self.head = Norm(), nn.Linear(width, words, bias=False)
            places = torch.arange(length)[:, None] * 1e4 ** -torch.linspace(0, 1, size // 2)
            self.register_buffer("angles", places)

        def forward(self, x):
            x = self.tokens(x)
            for block in self.blocks:
                x = block(x, self.angles)
            return self.head(self.norm(x)).flatten(0, 1)

    def text(batch):
        told = torch.randint(0, words, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), text


def vqvae(torch):
    """Makes images from words of a book: each place of what the encoder made becomes the nearest word."""
    nn, width, book, side = torch.nn, 128, 512, 96

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(width, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, width, 1))

        def forward(self, x):
            return x + self.body(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            shrink = [nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
            self.encoder, self.book = nn.Sequential(*shrink, Block(), Block()), nn.Embedding(book, width)
            grow = [nn.ConvTranspose2d(width, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1)]
            self.decoder = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), Block(), Block(), nn.ReLU(), *grow)

        def forward(self, x):
            made = self.encoder(x)
            flat = made.movedim(1, -1).flatten(0, 2)
            nearest = torch.cdist(flat, self.book.weight).argmin(1)
            word = self.book(nearest).view(made.shape[0], *made.shape[2:], width).movedim(-1, 1)
            return self.decoder(made + (word - made).detach()), made, word

        def loss(self, told, y):
            image, made, word = told
            mse = nn.functional.mse_loss
            return mse(image, y) + mse(word, made.detach()) + 0.25 * mse(made, word.detach())

    def same(batch):
        image = torch.randn(batch, 3, side, side)
        return image, image

    return Model(), same


def pointnet(torch):
    """Labels clouds of points: the same layers for each point, and the largest of each feature."""
    nn, points, parts = torch.nn, 1024, 24

    def dense(*widths):
        layers = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    class Turn(nn.Module):
        """A matrix for each cloud that turns its features."""

        def __init__(self, width):
            super().__init__()
            self.width, self.each = width, dense(width, 64, 128, 512)
            self.all = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width * width))

        def forward(self, x):
            turn = self.all(self.each(x).amax(2)).view(-1, self.width, self.width)
            return (turn + torch.eye(self.width, device=x.device)) @ x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.low, self.second, self.high = Turn(3), dense(3, 64, 64), Turn(64), dense(64, 128, 1024)
            self.head = nn.Sequential(dense(1024 + 64, 512, 256, 128), nn.Conv1d(128, parts, 1))

        def forward(self, x):
            low = self.second(self.low(self.first(x)))
            whole = self.high(low).amax(2, keepdim=True).expand(-1, -1, points)
            return self.head(torch.cat([low, whole], 1))

    return Model(), lambda batch: (torch.randn(batch, 3, points), torch.randint(0, parts, (batch, points)))


def hourglass(torch):
    """Finds the joints of a body: two hourglasses one after the other, each of which is told how wrong it is."""
    nn, width, joints, side = torch.nn, 128, 16, 128

    class Block(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            layers = []
            for before, after, size in ((inputs, outputs // 2, 1), (outputs // 2, outputs // 2, 3), (outputs // 2, outputs, 1)):
                layers += [nn.BatchNorm2d(before), nn.ReLU(), nn.Conv2d(before, after, size, padding=size // 2)]
            self.body, self.short = nn.Sequential(*layers), nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

        def forward(self, x):
            return self.short(x) + self.body(x)

    class Hourglass(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.beside, self.down, self.up = (Block(width, width) for _ in range(3))
            self.inner = Hourglass(depth - 1) if depth > 1 else Block(width, width)

        def forward(self, x):
            low = self.up(self.inner(self.down(nn.functional.max_pool2d(x, 2))))
            return self.beside(x) + nn.functional.interpolate(low, scale_factor=2)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            first = [nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU(), Block(32, 64), nn.MaxPool2d(2), Block(64, width)]
            self.first = nn.Sequential(*first)
            self.glasses = nn.ModuleList([Hourglass(3) for _ in range(2)])
            self.after = nn.ModuleList([Block(width, width) for _ in range(2)])
            self.maps = nn.ModuleList([nn.Conv2d(width, joints, 1) for _ in range(2)])
            self.back, self.on = nn.Conv2d(joints, width, 1), nn.Conv2d(width, width, 1)

        def forward(self, x):
            x = self.first(x)
            y = self.after[0](self.glasses[0](x))
            found = self.maps[0](y)
            x = x + self.on(y) + self.back(found)
            return found, self.maps[1](self.after[1](self.glasses[1](x)))

        def loss(self, told, y):
            return sum(nn.functional.mse_loss(each, y) for each in told)

    return Model(), lambda batch: (torch.randn(batch, 3, side, side), torch.rand(batch, joints, side // 4, side // 4))


def images(batch):
    import torch

    return torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))


def nvml_figures():
    """What NVML says of this process and of the device; None where it does not tell."""
    try:
        from driver import Nvml

        nvml = Nvml()
        device = nvml.devices[0]
        _, _, _, used = nvml.memory(device)
        listed = nvml.processes(device)
    except (OSError, AssertionError) as error:
        return {"process_bytes": None, "device_used_bytes": None, "why": repr(error)}
    return {"process_bytes": listed.get(os.getpid()), "device_used_bytes": used, "listed_bytes": list(listed.values())}


def job_torch(case, batch, snapshot):
    """Trains. `snapshot` is the file for one from the first allocation on, or None."""
    import torch

    model, optimizer, is_tried, _ = CASES[case]
    if case.endswith("-trainer"):
        return job_trainer(model, batch)
    assert not torch.cuda.is_initialized()
    torch.backends.cudnn.benchmark = is_tried
    torch.manual_seed(0)
    if snapshot:
        # Without stack frames: they are most of a snapshot's bytes.
        torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=1 << 20)
    made, samples = globals()[model](torch)
    made = made.cuda()
    optimizers = {
        "sgd": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=1e-4),
        "adam": lambda p: torch.optim.Adam(p, 1e-4),
        "adamw": lambda p: torch.optim.AdamW(p, 1e-4),
    }
    stepper = optimizers[optimizer](made.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=case.endswith("-amp"))
    called = torch.compile(made) if case.endswith("-compiled") else made
    loss_of = getattr(made, "loss", torch.nn.functional.cross_entropy)
    peaks = []
    for _ in range(STEPS):
        *x, y = (each.cuda() for each in samples(batch))
        with torch.autocast("cuda", torch.bfloat16 if case.endswith("-bf16") else None, enabled=case.endswith(("-amp", "-bf16"))):
            loss = loss_of(called(*x), y)
        stepper.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(stepper)
        scaler.update()
        peaks.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
    torch.cuda.synchronize()
    told = {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        "so_far": peaks,
        "parameters": sum(p.numel() for p in made.parameters()),
        "loss": float(loss.detach()),
        "versions": [torch.__version__, torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.get_device_name(0)],
        **nvml_figures(),
    }
    if snapshot:
        taken = torch.cuda.memory._snapshot()
        told["events"] = sum(map(len, taken["device_traces"]))
        with gzip.open(snapshot, "wb", 6) as file:
            pickle.dump(taken, file)
    return told


def bert(torch):
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048)
    return BertForSequenceClassification(config), lambda number: {"input_ids": torch.randint(0, 8000, (256,)), "labels": torch.tensor(number % 2)}


def gpt2(torch):
    from transformers import GPT2Config, GPT2LMHeadModel

    def row(_):
        words = torch.randint(0, 10000, (320,))
        return {"input_ids": words, "labels": words}

    return GPT2LMHeadModel(GPT2Config(vocab_size=10000, n_positions=512, n_embd=576, n_layer=6, n_head=9)), row


def whisper(torch):
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "begin_suppress_tokens": None}
    config = WhisperConfig(vocab_size=8000, max_source_positions=300, max_target_positions=128, **ends)

    def row(_):
        return {"input_features": torch.randn(80, 600), "labels": torch.randint(3, 8000, (96,))}

    return WhisperForConditionalGeneration(config), row


def albert(torch):
    from transformers import AlbertConfig, AlbertForMaskedLM

    config = AlbertConfig(vocab_size=8000, embedding_size=128, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048)

    def row(_):
        words = torch.randint(5, 8000, (192,))
        return {"input_ids": words, "labels": words}

    return AlbertForMaskedLM(config), row


def job_trainer(name, batch):
    """Trains with the Trainer of Hugging Face."""
    import torch
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    model, row = globals()[name](torch)
    rows = [row(each) for each in range(batch * STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, per_device_train_batch_size=batch, max_steps=STEPS, report_to=[],
            save_strategy="no", disable_tqdm=True)  # fmt: skip
        Trainer(model, arguments, train_dataset=rows).train()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": [torch.__version__, torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.get_device_name(0)],
        **nvml_figures(),
    }


def made_jax(case, batch):
    """A training step, and what it is given."""
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    if case == "mlp":
        widths = (1024, 4096, 4096, 2048, 512)
        params = [jax.random.normal(key, shape) * 0.02 for shape in itertools.pairwise(widths)]
        x = jax.random.normal(key, (batch, 1024))

        def apply(params, x):
            for each in params:
                x = jax.nn.gelu(x @ each)
            return x

    else:
        shapes = ((32, 3, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3), (128, 64, 3, 3))
        params = [jax.random.normal(key, shape) * 0.05 for shape in shapes]
        x = jax.random.normal(key, (batch, 3, 128, 128))

        def apply(params, x):
            for number, each in enumerate(params):
                stride = 2 if number == 2 else 1
                x = jax.nn.relu(jax.lax.conv_general_dilated(x, each, (stride, stride), "SAME"))
            return x.mean((2, 3))

    def loss(params, x):
        return (apply(params, x) ** 2).mean()

    def train_step(params, first, second, x):
        gradients = jax.grad(loss)(params, x)
        first = [0.9 * a + 0.1 * g for a, g in zip(first, gradients)]
        second = [0.99 * a + 0.01 * g * g for a, g in zip(second, gradients)]
        return [p - 1e-3 * a / (jnp.sqrt(b) + 1e-8) for p, a, b in zip(params, first, second)], first, second

    first, second = [jnp.zeros_like(p) for p in params], [jnp.zeros_like(p) for p in params]
    return train_step, (params, first, second, x)


def step_jax(case, batch):
    """Runs a few steps, and prints what XLA itself says of them."""
    import jax

    train_step, (params, first, second, x) = made_jax(case, batch)
    step = jax.jit(train_step)
    for _ in range(STEPS):
        params, first, second = step(params, first, second, x)
    jax.block_until_ready(params)
    analysis = step.lower(params, first, second, x).compile().memory_analysis()
    print(json.dumps({name: getattr(analysis, name) for name in dir(analysis) if name.endswith("_in_bytes")}))


def job_jax(case, batch, dump):
    """Compiles a step and runs it. XLA was told by the environment where to put its programs."""
    import jax

    train_step, (params, first, second, x) = made_jax(case, batch)
    compiled = jax.jit(train_step).lower(params, first, second, x).compile()
    analysis = compiled.memory_analysis()
    names = [name for name in dir(analysis) if name.endswith("_in_bytes")]
    # A CPU counts nothing.
    before = jax.devices()[0].memory_stats() or {}
    for _ in range(STEPS):
        params, first, second = compiled(params, first, second, x)
    jax.block_until_ready(params)
    stats = jax.devices()[0].memory_stats() or {}
    (program,) = pathlib.Path(dump).parent.glob("dump/*train_step*after_optimizations.hlo.pb")
    shutil.copy(program, dump)
    return {
        "analysis": {name: getattr(analysis, name) for name in names},
        "before_bytes": before.get("bytes_in_use"),
        "before_peak_bytes": before.get("peak_bytes_in_use"),
        "allocated_bytes": stats.get("peak_bytes_in_use"),
        "reserved_bytes": stats.get("peak_pool_bytes", stats.get("pool_bytes")),
        "stats": {name: value for name, value in stats.items() if isinstance(value, int)},
        "versions": [jax.__version__, jax.devices()[0].device_kind],
        **nvml_figures(),
    }


class Room:
    """Lets processes run at once as long as they leave most of the device free."""

    def __init__(self):
        self.taken, self.changed = 0.0, threading.Condition()

    def enter(self, need):
        with self.changed:
            self.changed.wait_for(lambda: self.taken == 0 or self.taken + need <= TOGETHER)
            self.taken += need

    def leave(self, need):
        with self.changed:
            self.taken -= need
            self.changed.notify_all()


def jobs(asked):
    """What is run: (kind, case, batch, GiB). The large ones come first, so that the small ones fill the gaps."""
    listed = []
    kinds = asked.only.split(",")
    cases = [case for case in CASES if not asked.cases or case in asked.cases.split(",")]
    for case in cases:
        per_sample = CASES[case][3] / 1024
        group = next((name for name, cases in HELD_OUT_GROUPS.items() if case in cases), None)
        if group:
            if group in kinds:
                probes = HELD_OUT_PROBES.get(case, PROBES)
                listed += [("vramline", case, batch, 3 + batch * per_sample) for batch in probes]
                listed += [("free", case, batch * probes[-1], 3 + batch * probes[-1] * per_sample) for batch in (2, 4, 8)]
            continue
        if "torch" in kinds:
            listed += [("snapshot", case, batch, 3 + batch * per_sample) for batch in PROBES]
            listed += [("free", case, batch, 3 + batch * per_sample) for batch in TRUTHS]
        if "vramline" in kinds and case in RECORDED and shutil.which("vramline"):
            listed += [("vramline", case, batch, 3 + batch * per_sample) for batch in PROBES]
    if "jax" in kinds:
        listed += [("jax", case, batch, 4) for case in JAX_CASES for batch in PROBES + JAX_TRUTHS]
    return sorted(listed, key=lambda job: -job[3])


def run(out, kind, case, batch):
    """One job in a process of its own; what it told."""
    name = f"{case}-{batch}"
    own = [sys.executable, str(HERE / "plan_probes.py"), "--job", "jax" if kind == "jax" else "torch", case, str(batch)]
    environment = dict(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as folder:
        if kind == "snapshot":
            own.append(str(out / "torch" / f"{name}.pickle.gz"))
        if kind == "vramline":
            own = ["vramline", "run", "--no-report", "--trace", f"steps={STEPS}", "-o", f"{folder}/{name}.vram", "--", *own]
        if kind == "jax":
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
            environment["XLA_FLAGS"] = f"--xla_dump_to={folder}/dump --xla_dump_hlo_as_proto --xla_dump_hlo_module_re=.*train_step.*"
            own.append(f"{folder}/{name}.hlo.pb")
        begin = time.monotonic()
        done = subprocess.run(own, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
        seconds = round(time.monotonic() - begin, 1)
        row = {"kind": kind, "case": case, "batch": batch, "seconds": seconds, "exit": done.returncode}
        if done.returncode != 0:
            return row | {"error": (done.stdout + done.stderr)[-1500:]}
        if kind == "jax":
            shutil.copy(f"{folder}/{name}.hlo.pb", out / "jax")
        if kind == "vramline":
            with tarfile.open(out / "vram" / f"{name}.tar.gz", "w:gz") as archive:
                archive.add(f"{folder}/{name}.vram", f"{name}.vram")
        return row | json.loads(done.stdout.splitlines()[-1])


def pack(out):
    """Puts the recordings into few archives, for machines that give back few files of a limited size."""
    for old in out.glob("recordings-*.tar"):
        old.unlink()
    parts, room = [], 0
    for path in sorted((out / "vram").glob("*.tar.gz")):
        # Headers and padding of an entry, and the end of the archive.
        size = path.stat().st_size + (16 << 10)
        if not parts or size > room:
            parts.append([])
            room = ARCHIVE
        parts[-1].append(path)
        room -= size
    for number, part in enumerate(parts, 1):
        with tarfile.open(out / f"recordings-{number}.tar", "w") as archive:
            for path in part:
                archive.add(path, path.name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", default="torch,vramline,jax,held-out,second,third,fourth")
    parser.add_argument("--cases", default="")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--until", type=float, default=math.inf, help="begin no run after so many seconds")
    asked = parser.parse_args()
    for folder in ("torch", "vram", "jax"):
        (asked.out / folder).mkdir(parents=True, exist_ok=True)
    truths = asked.out / "truths.jsonl"
    done = set()
    if truths.exists():
        rows = map(json.loads, truths.read_text(encoding="utf-8").splitlines())
        done = {(row["kind"], row["case"], row["batch"]) for row in rows if row["exit"] == 0}
    room, writing, failed, begin = Room(), threading.Lock(), [], time.monotonic()

    def one(job):
        kind, case, batch, need = job
        if (kind, case, batch) in done:
            return
        room.enter(need)
        if time.monotonic() - begin > asked.until:
            room.leave(need)
            with writing:
                failed.append(job)
            return
        try:
            row = run(asked.out, kind, case, batch)
        except Exception as error:
            # One job that hangs must not cost the others.
            row = {"kind": kind, "case": case, "batch": batch, "exit": None, "error": repr(error)[:1500]}
        finally:
            room.leave(need)
        with writing:
            with truths.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            if row["exit"] != 0:
                failed.append(job)
            shown = {name: row.get(name) for name in ("kind", "case", "batch", "seconds", "allocated_bytes", "reserved_bytes", "process_bytes", "events")}
            print(f"{time.monotonic() - begin:.0f}", json.dumps(shown), row.get("error", "")[-600:], flush=True)

    with ThreadPoolExecutor(asked.workers) as pool:
        list(pool.map(one, jobs(asked)))
    pack(asked.out)
    size = sum(path.stat().st_size for path in asked.out.rglob("*") if path.is_file())
    print(f"{time.monotonic() - begin:.0f} s, {size / 1e6:.1f} MB; failed: {failed or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    if sys.argv[1] == "--job":
        _, _, framework, case, batch, *path = sys.argv
        job = {"torch": job_torch, "jax": job_jax}[framework]
        print(json.dumps(job(case, int(batch), path[0] if path else None)))
    else:
        sys.exit(main())
