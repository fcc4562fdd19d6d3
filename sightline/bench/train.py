"""``bench train``: a step of the training loop with our layers, beside the same model on ``torch.nn``'s.

Both contestants are the same model with the same weights, trained by the same loop: batch to device, loss,
backward pass, clipping, AdamW, moving mean of the weights. Only the classes of the layers differ.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.result import Outcome
from sightline.bench.timing import Repeats, Stopwatch
from sightline.layers import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from sightline.models.captioner import Captioner, CaptionerConfig, TextDecoder
from sightline.tasks.caption.loss import caption_loss
from sightline.train.config import TrainConfig
from sightline.train.objective import Loss, Objective
from sightline.train.stepping import Stepper, accelerator_for

__all__ = ["LossOnlyObjective", "StepCase", "bar", "cases", "contestant", "settings", "with_torch_layers"]


def bar(device: torch.device) -> float:
    """The least ratio of torch's time to ours."""
    return 1.1 if device.type == "cuda" else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCase:
    """Single training steps, timed; the rate in examples per second is noted too.

    Attributes:
        timed: The timed case.
        examples: How many a step sees, and what they are called.
    """

    timed: TimedCase
    examples: tuple[int, str]

    @property
    def name(self) -> str:
        """What ``--only`` matches."""
        return self.timed.name

    def measure(self, watch: Stopwatch, repeats: Repeats) -> Outcome:
        """Measure every contestant, and note its rate."""
        outcome = self.timed.measure(watch, repeats)
        n, what = self.examples
        rates = [
            f"{result.contestant}: {1000 * n / result.milliseconds:,.0f} {what}/s"
            for result in outcome.results
            if result.milliseconds
        ]
        return dataclasses.replace(outcome, notes=(*outcome.notes, ", ".join(rates)))


def settings(device: torch.device) -> TrainConfig:
    """How both contestants are trained: as a user would, in bfloat16 on a GPU."""
    precision = "bf16" if device.type == "cuda" else "no"
    return TrainConfig(device=device.type, precision=precision, ema=0.999, label_smoothing=0.1)


def contestant(
    name: str, model: nn.Module, objective: Objective, batch: Any, device: torch.device
) -> Contestant:
    """One who takes a step of the loop at a time, always with the same batch."""
    config = settings(device)
    stepper = Stepper(model.to(device).train(), objective, config, accelerator_for(config), name="bench")
    n = len(batch)

    def step() -> list[Tensor]:
        return [stepper.step([(batch, True)], n_examples=n, step=0, lr=1e-6)["loss"]]

    return Contestant(name=name, run=step)


def with_torch_layers(model: nn.Module) -> nn.Module:
    """The same model with our Transformer layers and stacks replaced by torch's, with the same weights.

    Example:
        >>> stack = nn.Sequential(TransformerEncoderLayer(8, 2, 16, batch_first=True))
        >>> type(with_torch_layers(stack)[0]) is nn.TransformerEncoderLayer
        True
    """
    for name, child in model.named_children():
        setattr(model, name, _torch_twin(with_torch_layers(child)))
    return model


def _torch_twin(ours: Any) -> nn.Module:
    """Torch's own for a layer or a stack of ours; anything else is left as it is."""
    twin: nn.Module
    if isinstance(ours, TransformerDecoder):
        twin = nn.TransformerDecoder(ours.layers[0], len(ours.layers), ours.norm)
    elif isinstance(ours, TransformerEncoder):
        twin = nn.TransformerEncoder(
            ours.layers[0],
            len(ours.layers),
            ours.norm,
            enable_nested_tensor=False,
        )
    elif isinstance(ours, TransformerEncoderLayer):
        twin = _layer(nn.TransformerEncoderLayer, ours)
    elif isinstance(ours, TransformerDecoderLayer):
        twin = _layer(nn.TransformerDecoderLayer, ours)
    else:
        return cast("nn.Module", ours)
    twin.load_state_dict(ours.state_dict())
    return twin


def _layer(kind: type[nn.Module], ours: Any) -> nn.Module:
    return kind(
        ours.linear1.in_features,
        ours.self_attn.num_heads,
        ours.linear1.out_features,
        ours.dropout.p,
        ours.activation,
        ours.norm1.eps,
        True,
        ours.norm_first,
    )


class LossOnlyObjective(Objective):
    """A task that is asked for the loss of a batch, and for nothing else."""

    def plan(self, epoch: int) -> list[list[int]]:
        """No epochs here."""
        raise NotImplementedError

    def load(self, indices: Sequence[int], epoch: int) -> Any:
        """The batch is on the device."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Nothing is evaluated."""
        raise NotImplementedError


# Captions


@dataclass(frozen=True, eq=False)
class _CaptionBatch:
    """Pictures, or their grids, and their captions."""

    images: Tensor
    ids: Tensor

    def __len__(self) -> int:
        return self.images.size(0)


class _CaptionObjective(LossOnlyObjective):
    """The loss of captioning."""

    kind = "caption"

    def loss(self, model: nn.Module, batch: _CaptionBatch) -> Loss:
        """As in a training."""
        assert isinstance(model, Captioner)  # noqa: S101
        return caption_loss(model, batch.images, batch.ids, smoothing=0.1)


def cases(device: torch.device, *, quick: bool) -> list[Case]:
    """A captioner on the grids of a frozen encoder, and one on patches; five captions for each picture.

    On a GPU in two sizes: launching the kernels takes the time of a small step, running them that of a large.
    """
    large = device.type == "cuda"
    sizes = (64, 256) if large and not quick else (64,) if large else (8,)
    base = CaptionerConfig(
        vocab_size=6000 if large else 1000,
        encoder="efficientnet_lite0",
        d_model=512 if large else 256,
        n_heads=8 if large else 4,
        d_ff=2048 if large else 1024,
        dropout=0.3 if large else 0.1,
        max_length=20,
    )
    chosen = {"grids": base}
    if not quick:
        chosen["patches"] = dataclasses.replace(
            base, encoder="patches", image_size=64, patch=8, stem=2, n_encoder_layers=2
        )
    return [
        StepCase(
            timed=TimedCase(
                name=f"{device} train caption {name} {n} images x 5",
                device=device,
                bar=bar(device),
                setup=partial(_compare_captioners, config, n, device),
            ),
            examples=(n, "images"),
        )
        for name, config in chosen.items()
        for n in sizes
    ]


def _compare_captioners(config: CaptionerConfig, n: int, device: torch.device) -> Comparison:
    batch = _caption_batch(config, n, device)
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Captioner(config))
    ours, theirs = models[0], with_torch_layers(models[1])
    assert isinstance(theirs, Captioner)  # noqa: S101
    assert isinstance(theirs.decoder, TextDecoder)  # noqa: S101
    theirs.decoder.layers.register_forward_pre_hook(_repeat_memory)
    return Comparison(
        contestants=(
            contestant(OURS, ours, _CaptionObjective(), batch, device),
            contestant("torch.nn", theirs, _CaptionObjective(), batch, device),
        ),
        notes=("same weights, same loop; no float64 check: dropout is random",),
    )


def _caption_batch(config: CaptionerConfig, n: int, device: torch.device) -> _CaptionBatch:
    generator = torch.Generator().manual_seed(0)
    if config.encoder == "patches":
        images = torch.randn(n, 3, config.image_size, config.image_size, generator=generator)
    else:
        side = config.image_size // 32
        images = torch.randn(n, side * side, 1280, generator=generator)
    lengths = torch.randint(9, 16, (n, 5), generator=generator)
    ids = torch.randint(4, config.vocab_size, (n, 5, 16), generator=generator)
    ids = ids.masked_fill(torch.arange(16) >= lengths[..., None], 0)
    return _CaptionBatch(images.to(device), ids.to(device))


def _repeat_memory(_: nn.Module, args: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Torch's layers want a memory for every row."""
    x, memory = args
    return x, memory.repeat_interleave(x.size(0) // memory.size(0), 0)
