"""Models of text and of other sequences of items. They are made inside functions, because PyTorch may be missing."""

import itertools


def gpt(torch, length=384, words=16000, width=512, heads=8, blocks=8):
    nn = torch.nn

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
            self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, x):
            x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    def text(batch):
        told = torch.randint(0, words, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), text


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


def letters(torch):
    """A language model of letters: an LSTM of four layers that goes on where the batch before ended."""
    nn, signs, width, length = torch.nn, 128, 640, 160

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.signs, self.dropout = nn.Embedding(signs, width), nn.Dropout(0.2)
            self.body, self.head = nn.LSTM(width, width, 4, batch_first=True, dropout=0.2), nn.Linear(width, signs)
            self.state = None

        def forward(self, x):
            y, state = self.body(self.dropout(self.signs(x)), self.state)
            self.state = tuple(each.detach() for each in state)
            return self.head(y).flatten(0, 1)

    def text(batch):
        told = torch.randint(0, signs, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), text


def reviews(torch):
    """Rates reviews: a bidirectional GRU, and attention that sums up its states."""
    nn, words, width, length, grades = torch.nn, 15000, 256, 144, 5

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.body = nn.Embedding(words, width, padding_idx=0), nn.GRU(width, width, 2, batch_first=True, bidirectional=True)
            self.score = nn.Sequential(nn.Linear(2 * width, width), nn.Tanh(), nn.Linear(width, 1))
            self.head = nn.Sequential(nn.Dropout(0.4), nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, grades))

        def forward(self, x):
            y = self.body(self.words(x))[0]
            weights = self.score(y).masked_fill(x[..., None] == 0, -1e4).softmax(1)
            return self.head((weights * y).sum(1))

    return Model(), lambda batch: (torch.randint(0, words, (batch, length)), torch.randint(0, grades, (batch,)))


def lines(torch):
    """Reads lines of handwriting: convolutions, a bidirectional LSTM over the columns, and CTC."""
    nn, signs, width, high, wide, length = torch.nn, 80, 256, 32, 384, 32

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layers = []
            for (inputs, outputs), pool in zip(itertools.pairwise((1, 48, 96, 192, 256)), ((2, 2), (2, 2), (2, 1), (4, 1))):
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1, inplace=True), nn.MaxPool2d(pool)]
            self.seen = nn.Sequential(*layers)
            self.body, self.head = nn.LSTM(256, width, 2, bidirectional=True, dropout=0.1), nn.Linear(2 * width, signs)

        def forward(self, x):
            return self.head(self.body(self.seen(x).squeeze(2).permute(2, 0, 1))[0]).log_softmax(2)

        def loss(self, told, y):
            steps, batch = told.shape[:2]
            lengths = [torch.full((batch,), size, dtype=torch.long) for size in (steps, length)]
            return nn.functional.ctc_loss(told, y, *lengths, zero_infinity=True)

    return Model(), lambda batch: (torch.randn(batch, 1, high, wide), torch.randint(1, signs, (batch, length)))


def opt(torch):
    """A language model of Hugging Face."""
    from transformers import OPTConfig, OPTForCausalLM

    sizes = {"hidden_size": 448, "num_hidden_layers": 7, "num_attention_heads": 7, "ffn_dim": 1792, "word_embed_proj_dim": 448}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = OPTForCausalLM(OPTConfig(vocab_size=11000, max_position_embeddings=512, **sizes))

        def forward(self, x):
            return self.inner(input_ids=x, use_cache=False).logits.flatten(0, 1)

    def text(batch):
        told = torch.randint(3, 11000, (batch, 289))
        return told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), text


def melody(torch):
    """Continues melodies: plain recurrent layers over pitch and length of each note."""
    nn, pitches, lengths, width, notes = torch.nn, 128, 48, 448, 200

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.pitches, self.lengths = nn.Embedding(pitches, 192), nn.Embedding(lengths, 64)
            self.body = nn.RNN(256, width, 3, batch_first=True, dropout=0.15)
            self.norm, self.pitch, self.long = nn.LayerNorm(width), nn.Linear(width, pitches), nn.Linear(width, lengths)

        def forward(self, pitch, long):
            y = self.norm(self.body(torch.cat([self.pitches(pitch), self.lengths(long)], -1))[0]).flatten(0, 1)
            return self.pitch(y), self.long(y)

        def loss(self, told, y):
            return sum(nn.functional.cross_entropy(each, wanted) for each, wanted in zip(told, y.unbind(1)))

    def song(batch):
        pitch, long = torch.randint(0, pitches, (batch, notes + 1)), torch.randint(0, lengths, (batch, notes + 1))
        return pitch[:, :-1].contiguous(), long[:, :-1].contiguous(), torch.stack([pitch[:, 1:].flatten(), long[:, 1:].flatten()], 1)

    return Model(), song


def tables(torch):
    """Classifies rows of tables: a word for each column, numbers too, and a transformer over the columns."""
    nn, columns, numbers, rows, width, kinds = torch.nn, 40, 24, 300, 192, 9

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.slopes = nn.Embedding(columns * rows, width), nn.Parameter(0.02 * torch.randn(2, numbers, width))
            self.first = nn.Parameter(torch.zeros(1, 1, width))
            layer = nn.TransformerEncoderLayer(width, 6, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
            self.body, self.head = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(width, kinds)

        def forward(self, chosen, x):
            chosen = self.words(chosen + rows * torch.arange(columns, device=x.device))
            x = x[..., None] * self.slopes[0] + self.slopes[1]
            return self.head(self.body(torch.cat([self.first.expand(len(x), 1, width), chosen, x], 1))[:, 0])

    return Model(), lambda batch: (torch.randint(0, rows, (batch, columns)), torch.randn(batch, numbers), torch.randint(0, kinds, (batch,)))


def experts(torch):
    """A language model whose blocks have four networks each; a gate weighs what they say of each word."""
    nn, words, width, heads, length, count = torch.nn, 9000, 320, 5, 224, 4

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
            self.inner, self.outer, self.gate = nn.Linear(width, 3 * width, False), nn.Linear(width, width, False), nn.Linear(width, count, False)
            self.wide = nn.Parameter(width**-0.5 * torch.randn(count, width, 2 * width))
            self.narrow = nn.Parameter((2 * width) ** -0.5 * torch.randn(count, 2 * width, width))

        def forward(self, x):
            q, k, v = self.inner(self.first(x)).view(len(x), length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            x = x + self.outer(y)
            y = self.second(x)
            told = torch.einsum("blew,ewo->bleo", nn.functional.silu(torch.einsum("blw,ewi->blei", y, self.wide)), self.narrow)
            return x + (self.gate(y).softmax(-1)[..., None] * told).sum(2)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.norm, self.last = nn.Embedding(words, width), nn.RMSNorm(width), nn.Linear(width, words, False)
            self.blocks = nn.ModuleList(Block() for _ in range(5))

        def forward(self, x):
            x = self.words(x)
            for block in self.blocks:
                x = block(x)
            return self.last(self.norm(x)).flatten(0, 1)

    def text(batch):
        told = torch.randint(0, words, (batch, length + 1))
        return told[:, :-1].contiguous(), told[:, 1:].flatten()

    return Model(), text
