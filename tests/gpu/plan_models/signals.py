"""Models of sound, series, graphs and clouds of points. They are made inside functions, because PyTorch may be missing."""

import itertools


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


def clicks(torch):
    """Predicts clicks: embeddings of many columns, their products with each other, and a deep and a wide part."""
    nn, columns, rows, width, numbers = torch.nn, 24, 20000, 32, 13

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.columns = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(columns)])
            self.low = nn.Sequential(nn.Linear(numbers, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
            self.high = nn.Sequential(nn.Linear(width + columns * (columns + 1) // 2, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
            self.register_buffer("pairs", torch.tril_indices(columns + 1, columns + 1, -1))
            self.loss = nn.BCEWithLogitsLoss()

        def forward(self, x, chosen):
            low = self.low(x)
            each = torch.stack([low, *(column(chosen[:, number]) for number, column in enumerate(self.columns))], 1)
            products = (each @ each.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.high(torch.cat([low, products], 1))

    def seen(batch):
        return torch.randn(batch, numbers), torch.randint(0, rows, (batch, columns, 4)), torch.randint(0, 2, (batch, 1)).float()

    return Model(), seen


def series(torch):
    """Classifies series of sensors: causal convolutions whose reach doubles, with norms of their weights."""
    nn, sensors, width, length, kinds = torch.nn, 24, 128, 1024, 18

    class Block(nn.Module):
        def __init__(self, inputs, reach):
            super().__init__()
            norm, self.before = torch.nn.utils.parametrizations.weight_norm, 4 * reach
            self.first, self.second = (norm(nn.Conv1d(size, width, 5, dilation=reach)) for size in (inputs, width))
            self.dropout, self.short = nn.Dropout(0.2), nn.Conv1d(inputs, width, 1)

        def forward(self, x):
            y = x
            for layer in (self.first, self.second):
                y = self.dropout(nn.functional.relu(layer(nn.functional.pad(y, (self.before, 0)))))
            return nn.functional.relu(y + self.short(x))

    layers = [Block(width if number else sensors, 2**number) for number in range(6)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, kinds))
    return model, lambda batch: (torch.randn(batch, sensors, length), torch.randint(0, kinds, (batch,)))


def keywords(torch):
    """Hears keywords: convolutions along the sound, a bidirectional LSTM, and the largest of each feature."""
    nn, width, length, kinds = torch.nn, 224, 8000, 35

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layers = []
            for (inputs, outputs), (size, stride) in zip(itertools.pairwise((1, 64, 128, width)), ((80, 8), (5, 4), (5, 2))):
                layers += [nn.Conv1d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm1d(outputs), nn.SiLU()]
            self.seen = nn.Sequential(*layers)
            self.body, self.head = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True), nn.Linear(2 * width, kinds)

        def forward(self, x):
            return self.head(self.body(self.seen(x).transpose(1, 2))[0].amax(1))

    return Model(), lambda batch: (torch.randn(batch, 1, length), torch.randint(0, kinds, (batch,)))


def accents(torch):
    """Tells accents apart: a bidirectional GRU of three layers over a spectrogram, and attention that weighs its moments."""
    nn, bands, length, width, kinds = torch.nn, 64, 260, 288, 24

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.body = nn.LayerNorm(bands), nn.GRU(bands, width, 3, batch_first=True, bidirectional=True, dropout=0.2)
            self.weigh, self.head = nn.Sequential(nn.Linear(2 * width, 128), nn.Tanh(), nn.Linear(128, 1)), nn.Linear(2 * width, kinds)

        def forward(self, x):
            y = self.body(self.norm(x))[0]
            return self.head((self.weigh(y).softmax(1) * y).sum(1))

    return Model(), lambda batch: (torch.randn(batch, length, bands), torch.randint(0, kinds, (batch,)))


def sensors(torch):
    """Finds faults of machines: an LSTM of two layers that projects its state, and a head that is told each moment."""
    nn, channels, length, width, kinds = torch.nn, 36, 420, 320, 11

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(nn.Linear(channels, 128), nn.GELU(), nn.LayerNorm(128))
            self.body = nn.LSTM(128, width, 2, batch_first=True, proj_size=160)
            self.head = nn.Sequential(nn.Linear(160, 128), nn.GELU(), nn.Linear(128, kinds))

        def forward(self, x):
            return self.head(self.body(self.first(x))[0]).flatten(0, 1)

    return Model(), lambda batch: (torch.randn(batch, length, channels), torch.randint(0, kinds, (batch * length,)))
