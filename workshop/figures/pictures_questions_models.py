"""The small models of the how-to pages' pictures, trained here on a CPU, about a minute each."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sightline as sl
from sightline.data.digits import digits
from sightline.models.vit import VisionTransformer, VisionTransformerConfig

PERIOD, N_SYMBOLS = 24, 16
N_FRAMES, N_WORDS = 40, 12
PATCH = 2


def digit_images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images in [0, 1] and labels, to train on and to test on."""
    sets = digits(fold=0, val=0)
    train, test = sets.split("train"), sets.split("test")
    return train.images / 255, train.labels, test.images / 255, test.labels


def make_digit_model() -> VisionTransformer:
    """The same untrained."""
    torch.manual_seed(0)
    config = VisionTransformerConfig(
        n_classes=10, channels=1, image_size=8, patch=PATCH, d_model=32, n_heads=4, n_layers=2, d_ff=64
    )
    return VisionTransformer(config)


def digit_model(
    n_steps: int = 300, lr: float = 3e-3, follow: Callable[[nn.Module], object] = lambda _model: None
) -> VisionTransformer:
    """A vision transformer that reads digits, four heads in each of two layers; ``follow`` may monitor it."""
    model = make_digit_model()
    x, y, _, _ = digit_images()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    follow(model)
    for _ in range(n_steps):
        batch = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return model.eval()


class Block(nn.Module):
    """Causal attention, without a feed-forward layer."""

    def __init__(self, d: int, n_heads: int) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(d), sl.nn.MultiheadAttention(d, n_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Add what was looked at."""
        causal = nn.Transformer.generate_square_subsequent_mask(x.size(1), dtype=x.dtype)
        y = self.norm(x)
        return x + self.attn(y, y, y, attn_mask=causal, is_causal=True, need_weights=False)[0]


class Repeater(nn.Module):
    """Two layers of attention that predict the next symbol."""

    def __init__(self, d: int = 64, n_heads: int = 4) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(N_SYMBOLS, d), nn.Embedding(2 * PERIOD, d)
        self.layers = nn.Sequential(Block(d, n_heads), Block(d, n_heads))
        self.out = nn.Linear(d, N_SYMBOLS)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, V)."""
        x = self.embed(ids) + self.place(torch.arange(ids.size(1)))
        return self.out(self.layers(x))


def repeated(n: int) -> Tensor:
    """Random symbols, and the same again; the length of what is repeated varies while training."""
    period = int(torch.randint(6, PERIOD + 1, ()))
    half = torch.randint(N_SYMBOLS, (n, period))
    return torch.cat([half, half], 1)


def repeater(n_steps: int = 3000) -> Repeater:
    """A model that has learned to copy what it has seen before."""
    torch.manual_seed(0)
    model = Repeater()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=n_steps)
    for _ in range(n_steps):
        ids = repeated(32)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def stretched(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words, the frames in which they were spoken, two to five each, and where each begins."""
    words = torch.randint(1, N_SYMBOLS, (n, N_WORDS))
    times = torch.randint(2, 6, (n, N_WORDS))
    frames, starts = torch.zeros(n, N_FRAMES, dtype=torch.long), torch.zeros(n, N_WORDS, dtype=torch.long)
    for i in range(n):
        spoken = words[i].repeat_interleave(times[i])[:N_FRAMES]
        frames[i, : len(spoken)] = spoken
        starts[i] = (times[i].cumsum(0) - times[i]).clamp(max=N_FRAMES - 1)
    return frames, words, starts


class Listener(nn.Module):
    """Frames to words: one layer each of torch's encoder and decoder."""

    def __init__(self, d: int = 64) -> None:
        super().__init__()
        self.frames, self.words = nn.Embedding(N_SYMBOLS, d), nn.Embedding(N_SYMBOLS, d)
        self.frame_place, self.word_place = nn.Embedding(N_FRAMES, d), nn.Embedding(N_WORDS, d)
        options = {"dim_feedforward": 128, "dropout": 0.0, "batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoderLayer(d, 4, **options)  # type: ignore[arg-type]
        self.decoder = nn.TransformerDecoderLayer(d, 4, **options)  # type: ignore[arg-type]
        self.out = nn.Linear(d, N_SYMBOLS)

    def forward(self, frames: Tensor, words: Tensor) -> Tensor:
        """Teacher forcing: (B, S) frames and (B, T) words -> (B, T, V)."""
        told = F.pad(words[:, :-1], (1, 0))
        x = self.encoder(self.frames(frames) + self.frame_place(torch.arange(N_FRAMES)))
        y = self.words(told) + self.word_place(torch.arange(N_WORDS))
        causal = nn.Transformer.generate_square_subsequent_mask(N_WORDS)
        return self.out(self.decoder(y, x, tgt_mask=causal, tgt_is_causal=True))


def listener(n_steps: int = 3500) -> Listener:
    """A model that writes down what was said."""
    torch.manual_seed(0)
    model = Listener()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=n_steps)
    for _ in range(n_steps):
        frames, words, _ = stretched(32)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(frames, words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()
