"""Models that name what an image or a video shows, and transformers over its patches. They are made inside functions, because PyTorch may be missing."""


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


def regnet(torch):
    return of_torchvision("regnet_y_1_6gf")


def mobilenet(torch):
    return of_torchvision("mobilenet_v3_large")


def resnext(torch):
    return of_torchvision("resnext50_32x4d")


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


def shufflenet(torch):
    return of_torchvision("shufflenet_v2_x1_5")


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


def video(torch):
    """Convolutions over three dimensions."""
    import torchvision

    made = torchvision.models.video.r3d_18(weights=None)
    return made, lambda batch: (torch.randn(batch, 3, 8, 112, 112), torch.randint(0, 400, (batch,)))


def images(batch):
    import torch

    return torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))


def mnasnet(torch):
    return of_torchvision("mnasnet1_0")


def googlenet(torch):
    import torchvision

    return torchvision.models.googlenet(weights=None, aux_logits=False, init_weights=False), images


def clips(torch):
    """Names what a short video shows: convolutions over three dimensions at first, over two later."""
    import torchvision

    made = torchvision.models.video.mc3_18(weights=None)
    return made, lambda batch: (torch.randn(batch, 3, 8, 96, 96), torch.randint(0, 400, (batch,)))


def maxvit(torch):
    """MaxViT: attention in windows and over a grid, between convolutions."""
    import torchvision

    sizes = {"stem_channels": 48, "block_channels": [48, 96, 192], "block_layers": [1, 2, 2], "head_dim": 24}
    model = torchvision.models.MaxVit((112, 112), partition_size=7, stochastic_depth_prob=0.1, num_classes=100, **sizes)
    return model, lambda batch: (torch.randn(batch, 3, 112, 112), torch.randint(0, 100, (batch,)))


def inception(torch):
    import torchvision

    model = torchvision.models.inception_v3(weights=None, aux_logits=False, init_weights=False)
    return model, lambda batch: (torch.randn(batch, 3, 160, 160), torch.randint(0, 1000, (batch,)))


def wideresnet(torch):
    return of_torchvision("wide_resnet50_2")


def squeezenet(torch):
    return of_torchvision("squeezenet1_1")
