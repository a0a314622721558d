"""The models that plans are compared with on a GPU, and the cases made of them.

Each model is a function of PyTorch's module, in the files of this package by what the model is for. It returns the model and a function that makes
a batch (of the Trainer's models: one row). Reading this package needs no PyTorch. How a case is trained is in plan_probes.py.
"""

from plan_models import images, pictures, signals, trainer, words

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
# A fifth group, for what was changed after the fourth one was known.
FIFTH = {
    "letters-amp": ("letters", "adamw", False, 30),
    "reviews-adam": ("reviews", "adam", False, 25),
    "lines-sgd": ("lines", "sgd", False, 40),
    "mnasnet-bf16": ("mnasnet", "sgd", False, 70),
    "googlenet-amp": ("googlenet", "sgd", False, 60),
    "dit-compiled": ("dit", "adamw", False, 90),
    "distilbert-trainer": ("distilbert", "adamw", False, 90),
    "clicks-adam": ("clicks", "adam", False, 1),
    "segformer-adamw": ("segformer", "adamw", False, 140),
    "series-adamw": ("series", "adamw", False, 20),
    "boxes-adamw": ("boxes", "adamw", False, 60),
    "clips-sgd": ("clips", "sgd", False, 160),
}
# A sixth group, for what was changed after the fifth one was known.
SIXTH = {
    "melody-adam": ("melody", "adam", False, 15),
    "keywords-amp": ("keywords", "adamw", False, 12),
    "maxvit-bf16": ("maxvit", "adamw", False, 90),
    "vae-compiled": ("vae", "adam", False, 20),
    "electra-trainer": ("electra", "adamw", False, 70),
    "opt-adam": ("opt", "adam", False, 170),
    "stylizer-adam": ("stylizer", "adam", False, 110),
    "lraspp-sgd": ("lraspp", "sgd", False, 90),
    "tables-adamw": ("tables", "adamw", False, 12),
    "flow-adamw": ("flow", "adamw", False, 70),
}
# A seventh group, for what was changed after the sixth one was known.
SEVENTH = {
    "accents-adam": ("accents", "adam", False, 20),
    "sensors-amp": ("sensors", "adamw", False, 20),
    "inception-amp": ("inception", "sgd", False, 60),
    "wideresnet-sgd": ("wideresnet", "sgd", False, 150),
    "squeezenet-adam": ("squeezenet", "adam", False, 60),
    "masked-compiled": ("masked", "adamw", False, 40),
    "roberta-trainer": ("roberta", "adamw", False, 90),
    "experts-bf16": ("experts", "adamw", False, 110),
    "depths-adamw": ("depths", "adamw", False, 60),
    "rays-adam": ("rays", "adam", False, 60),
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
    "letters-amp": (5, 9, 14),
    "reviews-adam": (6, 10, 16),
    "lines-sgd": (4, 6, 10),
    "clicks-adam": (96, 160, 256),
    "series-adamw": (5, 9, 15),
    "melody-adam": (6, 10, 16),
    "keywords-amp": (5, 9, 15),
    "vae-compiled": (6, 12, 20),
    "tables-adamw": (7, 13, 21),
    "accents-adam": (6, 10, 16),
    "sensors-amp": (5, 9, 14),
    "squeezenet-adam": (4, 6, 10),
    "masked-compiled": (5, 9, 14),
    "rays-adam": (3, 5, 9),
}
HELD_OUT_GROUPS = {"held-out": HELD_OUT, "second": SECOND, "third": THIRD, "fourth": FOURTH, "fifth": FIFTH, "sixth": SIXTH, "seventh": SEVENTH}
# Groups whose further probes are recorded too: those that a plan asks for, at these multiples of the largest probe.
WITH_FURTHER = {"seventh": (2, 4)}
for group in HELD_OUT_GROUPS.values():
    CASES |= group


def made_model(torch, case):
    """Returns the model of a case, and what makes its data."""
    name = CASES[case][0]
    makers = [getattr(module, name) for module in (images, pictures, signals, trainer, words) if hasattr(module, name)]
    assert len(makers) == 1, f"{name} has {len(makers)} models"
    return makers[0](torch)
