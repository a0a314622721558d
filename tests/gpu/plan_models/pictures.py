"""Models whose output has the size of an image or a volume, or boxes in it. They are made inside functions, because PyTorch may be missing."""

import itertools


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


def dit(torch):
    """Removes noise from images: a transformer over patches whose norms are told the time and the kind of image."""
    nn, width, heads, side, patch, kinds = torch.nn, 384, 6, 32, 2, 100
    count = (side // patch) ** 2

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
            self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
            self.told = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

        def forward(self, x, about):
            shift, scale, gate, low, high, last = self.told(about)[:, None].chunk(6, 2)
            y = self.first(x) * (1 + scale) + shift
            q, k, v = self.inner(y).view(len(x), count, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
            y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(len(x), count, width)
            x = x + gate * self.outer(y)
            return x + last * self.mlp(self.second(x) * (1 + high) + low)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.places = nn.Conv2d(4, width, patch, patch), nn.Parameter(0.02 * torch.randn(count, width))
            self.time, self.kinds = nn.Sequential(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, width)), nn.Embedding(kinds, width)
            self.blocks, self.norm = nn.ModuleList([Block() for _ in range(8)]), nn.LayerNorm(width)
            self.last, self.loss = nn.Linear(width, patch * patch * 4), nn.MSELoss()

        def forward(self, x, time, kind):
            angles = time[:, None] * 1e4 ** -torch.linspace(0, 1, 32, device=x.device)
            about = self.time(torch.cat([angles.sin(), angles.cos()], 1)) + self.kinds(kind)
            x = self.cut(x).flatten(2).transpose(1, 2) + self.places
            for block in self.blocks:
                x = block(x, about)
            return nn.functional.pixel_shuffle(self.last(self.norm(x)).transpose(1, 2).unflatten(2, (side // patch, side // patch)), patch)

    def noisy(batch):
        return torch.randn(batch, 4, side, side), torch.randint(0, 1000, (batch,)), torch.randint(0, kinds, (batch,)), torch.randn(batch, 4, side, side)

    return Model(), noisy


def segformer(torch):
    """Labels the pixels of images: SegFormer of Hugging Face, whose attention looks at fewer places than it has."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = SegformerForSemanticSegmentation(SegformerConfig(num_labels=19))

        def forward(self, x):
            return self.inner(pixel_values=x).logits

    return Model(), lambda batch: (torch.randn(batch, 3, 192, 192), torch.randint(0, 19, (batch, 48, 48)))


def boxes(torch):
    """Finds objects as DETR does: a transformer whose queries ask the features of an image, each for one box."""
    nn, width, queries, kinds, side = torch.nn, 256, 60, 30, 192

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layers = []
            for inputs, outputs in itertools.pairwise((3, 32, 64, 128, width)):
                layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            self.seen, self.places = nn.Sequential(*layers), nn.Parameter(torch.randn((side // 16) ** 2, width))
            self.body = nn.Transformer(width, 8, 3, 3, 1024, batch_first=True)
            self.queries, self.kinds = nn.Parameter(torch.randn(queries, width)), nn.Linear(width, kinds + 1)
            self.box = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4), nn.Sigmoid())

        def forward(self, x):
            x = self.seen(x).flatten(2).transpose(1, 2) + self.places
            y = self.body(x, self.queries.expand(len(x), queries, width))
            return self.kinds(y), self.box(y)

        def loss(self, told, y):
            kind, box = y[..., 0].long(), y[..., 1:]
            return nn.functional.cross_entropy(told[0].flatten(0, 1), kind.flatten()) + 5 * nn.functional.l1_loss(told[1], box)

    def labelled(batch):
        return torch.randn(batch, 3, side, side), torch.cat([torch.randint(0, kinds + 1, (batch, queries, 1)), torch.rand(batch, queries, 4)], 2)

    return Model(), labelled


def stylizer(torch):
    """Paints images in a style: residual blocks with a norm for each image, between shrinking and growing."""
    nn, width, side = torch.nn, 32, 128

    def layer(inputs, outputs, size, stride=1):
        return [nn.ReflectionPad2d(size // 2), nn.Conv2d(inputs, outputs, size, stride), nn.InstanceNorm2d(outputs, affine=True)]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(*layer(4 * width, 4 * width, 3), nn.ReLU(), *layer(4 * width, 4 * width, 3))

        def forward(self, x):
            return x + self.body(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            shrink = [*layer(3, width, 9), nn.ReLU(), *layer(width, 2 * width, 3, 2), nn.ReLU(), *layer(2 * width, 4 * width, 3, 2), nn.ReLU()]
            grow = []
            for inputs in (4 * width, 2 * width):
                grow += [nn.Upsample(scale_factor=2), *layer(inputs, inputs // 2, 3), nn.ReLU()]
            self.body = nn.Sequential(*shrink, *(Block() for _ in range(5)), *grow, nn.ReflectionPad2d(4), nn.Conv2d(width, 3, 9))

        def forward(self, x):
            return torch.tanh(self.body(x))

        def loss(self, told, y):
            rough = (told.diff(dim=2).square().mean() + told.diff(dim=3).square().mean()) / 100
            return nn.functional.mse_loss(told, y) + rough

    return Model(), lambda batch: (torch.randn(batch, 3, side, side), torch.randn(batch, 3, side, side))


def lraspp(torch):
    """Labels the pixels of images: MobileNet with a small head."""
    import torchvision

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=12)

        def forward(self, x):
            return self.inner(x)["out"]

    return Model(), lambda batch: (torch.randn(batch, 3, 224, 224), torch.randint(0, 12, (batch, 224, 224)))


def vae(torch):
    """Makes faces from few numbers: convolutions down to a mean and a spread, and up again."""
    nn, width, code, side = torch.nn, 48, 128, 64

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            widths, shrink, grow = [3, width, 2 * width, 4 * width, 8 * width], [], []
            for inputs, outputs in itertools.pairwise(widths):
                shrink += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
            for inputs, outputs in itertools.pairwise(reversed([2 * width, *widths[1:]])):
                grow += [nn.ConvTranspose2d(inputs, outputs, 3, 2, 1, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
            self.encoder, self.told = nn.Sequential(*shrink, nn.Flatten()), nn.Linear(8 * width * 16, 2 * code)
            self.first, self.decoder = nn.Linear(code, 8 * width * 16), nn.Sequential(*grow, nn.Conv2d(2 * width, 3, 3, padding=1))

        def forward(self, x):
            mean, spread = self.told(self.encoder(x)).chunk(2, 1)
            z = mean + torch.randn_like(mean) * (spread / 2).exp()
            return self.decoder(self.first(z).unflatten(1, (8 * width, 4, 4))), mean, spread

        def loss(self, told, y):
            image, mean, spread = told
            return nn.functional.mse_loss(image, y) - 1e-3 * (1 + spread - mean.square() - spread.exp()).mean()

    def same(batch):
        image = torch.randn(batch, 3, side, side)
        return image, image

    return Model(), same


def flow(torch):
    """Finds how pixels move between two images: RAFT, which mends its answer again and again with convolutional GRUs."""
    import torchvision

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torchvision.models.optical_flow.raft_small(weights=None)

        def forward(self, first, second):
            return self.inner(first, second, num_flow_updates=6)

        def loss(self, told, y):
            return sum(0.8 ** (len(told) - number) * (each - y).abs().mean() for number, each in enumerate(told))

    return Model(), lambda batch: (torch.randn(batch, 3, 128, 160), torch.randn(batch, 3, 128, 160), torch.randn(batch, 2, 128, 160))


def masked(torch):
    """Paints the hidden patches of images: a transformer over the patches that are shown, and a smaller one over all of them."""
    nn, wide, narrow, side, patch = torch.nn, 384, 192, 96, 8
    count = (side // patch) ** 2
    shown = count // 4

    def body(width, heads, layers):
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.between, self.last = nn.Linear(3 * patch * patch, wide), nn.Linear(wide, narrow), nn.Linear(narrow, 3 * patch * patch)
            self.wide, self.narrow = body(wide, 6, 6), body(narrow, 6, 3)
            self.places, self.hidden = nn.Parameter(0.02 * torch.randn(count, narrow)), nn.Parameter(torch.zeros(narrow))
            self.loss = nn.MSELoss()

        def forward(self, x):
            seen = self.between(self.wide(self.first(x[:, :shown])))
            hidden = self.hidden.expand(len(x), count - shown, narrow)
            return self.last(self.narrow(torch.cat([seen, hidden], 1) + self.places))

    def patches(batch):
        found = torch.randn(batch, count, 3 * patch * patch)
        return found, found

    return Model(), patches


def depths(torch):
    """Tells how far pixels are: a ResNet-18 down, and convolutions up that join each size again."""
    import torchvision

    nn, widths = torch.nn, (64, 64, 128, 256, 512)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            inner = torchvision.models.resnet18(weights=None)
            first = nn.Sequential(inner.conv1, inner.bn1, inner.relu)
            self.down = nn.ModuleList([first, nn.Sequential(inner.maxpool, inner.layer1), inner.layer2, inner.layer3, inner.layer4])
            self.up = nn.ModuleList(
                nn.Sequential(nn.Conv2d(small + large, large, 3, padding=1), nn.BatchNorm2d(large), nn.ELU())
                for large, small in itertools.pairwise(widths)
            )
            self.last, self.loss = nn.Conv2d(64, 1, 3, padding=1), nn.L1Loss()

        def forward(self, x):
            seen = []
            for part in self.down:
                x = part(x)
                seen.append(x)
            for part, skip in zip(reversed(self.up), seen[-2::-1]):
                x = part(torch.cat([nn.functional.interpolate(x, skip.shape[2:]), skip], 1))
            return nn.functional.interpolate(self.last(x), scale_factor=2, mode="bilinear")

    return Model(), lambda batch: (torch.randn(batch, 3, 128, 160), torch.rand(batch, 1, 128, 160))


def rays(torch):
    """Learns a scene: for rays through it a network says colour and density of points, which are summed up along each ray."""
    nn, many, points, width = torch.nn, 96, 48, 192

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            inputs = 3 * 2 * 8
            self.first = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
            self.second = nn.Sequential(nn.Linear(width + inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))
            self.loss = nn.MSELoss()

        def forward(self, begin, along):
            far = torch.linspace(0.1, 4, points, device=begin.device)
            at = begin[..., None, :] + along[..., None, :] * far[:, None]
            angles = at[..., None] * 2.0 ** torch.arange(8, device=begin.device)
            told = torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)
            colour, density = self.second(torch.cat([self.first(told), told], -1)).split((3, 1), -1)
            opaque = 1 - (-nn.functional.softplus(density) * (far[1] - far[0])).exp()
            left = torch.cumprod(1 - opaque + 1e-6, 2)
            return (colour.sigmoid() * opaque * left).sum(2)

    return Model(), lambda batch: (torch.randn(batch, many, 3), torch.randn(batch, many, 3), torch.rand(batch, many, 3))
