"""A step of training a Vision Transformer, beside timm's of the same size and one on ``torch.nn``'s layers.

All are trained by the same loop on the same batch. The one on ``torch.nn`` is as one would write it: a
strided convolution, then ``nn.TransformerEncoderLayer``, with our model's very weights.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.bench.case import OURS, Case, Comparison, TimedCase
from sightline.bench.train import LossOnlyObjective, StepCase, contestant, with_torch_layers
from sightline.models.vit import SIZES, VisionTransformer, VisionTransformerConfig
from sightline.models.vit_parts import PatchStem
from sightline.shapes import Float
from sightline.train.objective import Loss

__all__ = ["cases"]

_BAR = 1.0  # the least ratio of the best peer's time to ours


def cases(device: torch.device, *, quick: bool) -> list[Case]:
    """Photos in patches of 16 on a GPU, small images on a CPU."""
    large = device.type == "cuda"
    photos = VisionTransformerConfig(n_classes=1000, image_size=224, patch=16)
    small = VisionTransformerConfig(n_classes=10, image_size=64, patch=8)
    chosen = (
        {"small": (photos, 256), "base": (photos, 128)}
        if large
        else {"mini": (small, 32), "tiny": (small, 16)}
    )
    if quick:
        chosen = dict(list(chosen.items())[:1])
    return [
        StepCase(
            timed=TimedCase(
                name=f"{device} train classify {name} {n} images of {config.image_size} px",
                device=device,
                bar=_BAR,
                setup=partial(_compare, name, config, n, device),
            ),
            examples=(n, "images"),
        )
        for name, (config, n) in chosen.items()
    ]


@dataclass(frozen=True, eq=False)
class _ImageBatch:
    """Images and their classes."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return self.images.size(0)


class _ClassificationTask(LossOnlyObjective):
    """The loss of classification, of any module from images to logits."""

    kind = "classify"

    def loss(self, model: nn.Module, batch: _ImageBatch) -> Loss:
        """Cross-entropy."""
        total = F.cross_entropy(
            model(batch.images).float(), batch.labels, label_smoothing=0.1, reduction="sum"
        )
        return Loss(total, torch.full((), float(len(batch)), device=total.device))


def _compare(size: str, config: VisionTransformerConfig, n: int, device: torch.device) -> Comparison:
    config = dataclasses.replace(config, **SIZES[size]._asdict())
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(n, 3, config.image_size, config.image_size, generator=generator)
    labels = torch.randint(0, config.n_classes, (n,), generator=generator)
    batch = _ImageBatch(images.to(device), labels.to(device))
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {OURS: VisionTransformer(config)}
    models["torch.nn"] = _vit_with_torch_layers(config, models[OURS].state_dict())
    notes = ["same loop, same batch; no float64 check of a step"]
    peer = _timm_vit(config)
    if peer is None:
        notes.append("timm left out: it is not installed")
    else:
        models["timm"] = peer
    contestants = [
        contestant(name, model, _ClassificationTask(), batch, device) for name, model in models.items()
    ]
    return Comparison(contestants=tuple(contestants), notes=tuple(notes))


class _StridedPatches(nn.Module):
    """Patches by a convolution, the usual way."""

    def __init__(self, stem: PatchStem) -> None:
        super().__init__()
        self.weight, self.bias, self.patch = stem.weight, stem.bias, stem.patch

    def forward(self, images: Float[Tensor, "B C h w"]) -> Float[Tensor, "B rows columns E"]:
        """Tokens in their grid."""
        return F.conv2d(images, self.weight, self.bias, stride=self.patch).permute(0, 2, 3, 1)


def _vit_with_torch_layers(config: VisionTransformerConfig, weights: Mapping[str, Tensor]) -> nn.Module:
    model = VisionTransformer(config)
    model.load_state_dict(weights)
    twin = with_torch_layers(model)
    assert isinstance(twin, VisionTransformer)  # noqa: S101
    assert isinstance(twin.stem, PatchStem)  # noqa: S101
    twin.stem = _StridedPatches(twin.stem)  # type: ignore[assignment]
    return twin


def _timm_vit(config: VisionTransformerConfig) -> nn.Module | None:
    try:
        from timm.models.vision_transformer import (  # type: ignore[import-not-found]  # noqa: PLC0415
            VisionTransformer as TimmVisionTransformer,
        )
    except ImportError:
        return None
    model: nn.Module = TimmVisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch,
        in_chans=config.channels,
        num_classes=config.n_classes,
        embed_dim=config.d_model,
        depth=config.n_layers,
        num_heads=config.n_heads,
        mlp_ratio=config.d_ff / config.d_model,
    )
    return model
