"""``bench train`` of translation: a step of the loop with our Transformer, beside ``torch.nn``'s."""

from functools import partial

import torch
from torch import nn

from sightline.bench.case import OURS, Case, Comparison, TimedCase
from sightline.bench.train import LossOnlyObjective, StepCase, bar, contestant, with_torch_layers
from sightline.data.tokens import BOS, EOS
from sightline.models.translator import Translator, TranslatorConfig
from sightline.tasks.translate.objective import PairBatch, translation_loss
from sightline.train.objective import Loss

__all__ = ["cases"]

_LONGEST = 28  # tokens of the longest sentence


class _TranslationTask(LossOnlyObjective):
    """The loss of translation."""

    kind = "translate"

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        """As in a training."""
        return translation_loss(model, batch, smoothing=0.1)


def cases(device: torch.device, *, quick: bool) -> list[Case]:
    """A Transformer of the size that Multi30k is translated with; on a GPU larger ones and batches too."""
    large = device.type == "cuda"
    small, wide = ("256 wide", 256, 4, 3, 1024), ("512 wide", 512, 8, 6, 2048)
    chosen = [(small, 256 if large else 32)]
    if large and not quick:
        chosen += [(wide, 256), (wide, 1024)]
    found: list[Case] = []
    for (name, e, h, layers, d_ff), n in chosen:
        batch = _batch(n, 8000, device)
        tokens = int((batch.target[:, 1:] != 0).sum())
        config = TranslatorConfig(
            source_vocab_size=8000,
            vocab_size=8000,
            shared=True,
            d_model=e,
            n_heads=h,
            n_layers=layers,
            d_ff=d_ff,
            dropout=0.3,
        )
        timed = TimedCase(
            name=f"{device} train translate {name} {n} pairs",
            device=device,
            bar=bar(device),
            setup=partial(_compare, config, batch, device),
        )
        found.append(StepCase(timed=timed, examples=(tokens, "target tokens")))
    return found


def _compare(config: TranslatorConfig, batch: PairBatch, device: torch.device) -> Comparison:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Translator(config))
    return Comparison(
        contestants=(
            contestant(OURS, models[0], _TranslationTask(), batch, device),
            contestant("torch.nn", with_torch_layers(models[1]), _TranslationTask(), batch, device),
        ),
        notes=("same weights, same loop; no float64 check: dropout is random",),
    )


def _batch(n: int, vocab_size: int, device: torch.device) -> PairBatch:
    """Sentences of the lengths that a bucket of Multi30k has: alike, with a little padding."""
    generator = torch.Generator().manual_seed(0)

    def side(*, begun: bool) -> torch.Tensor:
        lengths = torch.randint(_LONGEST - 6, _LONGEST, (n,), generator=generator)
        ids = torch.randint(4, vocab_size, (n, _LONGEST), generator=generator)
        place = torch.arange(_LONGEST)
        ids = ids.masked_fill(place > lengths[:, None], 0).masked_fill(place == lengths[:, None], EOS)
        return torch.cat([torch.full((n, 1), BOS), ids], 1) if begun else ids

    return PairBatch(side(begun=False).to(device), side(begun=True).to(device))
