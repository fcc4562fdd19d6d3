"""What a Vision Transformer looked at in an image, layer by layer, and whether that is where the ink is.

The class token's rollout is its share of every patch after all layers, residual paths included (see
``look/flow.py``); without a class token it is the mean over the patches, which such a model classifies.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.augment import as_floats
from sightline.look.flow import rollout
from sightline.look.sight import Sight
from sightline.models.vit import VisionTransformer
from sightline.shapes import Float, Shaped
from sightline.watch.watch import watch

__all__ = ["INKED", "PatchAttention", "ink_scores", "patch_attention", "patch_distances"]

INKED = 0.5  # a patch counts as inked from this share of full ink on


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchAttention:
    """What was looked at in some images; weights over the patches sum to one.

    Attributes:
        layers: The weights of each layer over all tokens, by module name.
        rollout: The share of each patch in what is classified, after all layers.
        heads: What each head of each layer looked at on behalf of the class.
        grid: Rows and columns of patches.
        n_extra: Tokens before the patches: one, if there is a class token.
    """

    layers: dict[str, Float[Tensor, "B H T T"]]
    rollout: Float[Tensor, "B P"]
    heads: Float[Tensor, "B L H P"]
    grid: tuple[int, int]
    n_extra: int

    @property
    def received(self) -> Float[Tensor, "B L P"]:
        """The share of all weight that each patch received, by layer."""
        n = self.n_extra
        return torch.stack([_shares(w[..., n:].sum((1, 2))) for w in self.layers.values()], 1)


@torch.no_grad()
def patch_attention(model: VisionTransformer, images: Shaped[Tensor, "B C h w"]) -> PatchAttention:
    """Run a model over images, bytes as they are read, and see where it looked."""
    device = model.head.weight.device
    with watch(model, keep=True) as seen:
        model(as_floats(images.to(device)))
    sights = {name: _single(seen.calls(name)) for name in seen.names()}
    n, patch = model.n_extra, model.config.patch
    # (B, H, T, T): images have few tokens
    layers = {name: sight.map(sight.t).float() for name, sight in sights.items()}
    heads = [_shares((w[:, :, 0] if n else w.mean(2))[..., n:]) for w in layers.values()]
    through = rollout(list(sights.values())).float()
    classified = through[:, 0] if n else through.mean(1)
    return PatchAttention(
        layers=layers,
        rollout=_shares(classified[:, n:]),
        heads=torch.stack(heads, 1),
        grid=(images.size(2) // patch, images.size(3) // patch),
        n_extra=n,
    )


def patch_distances(weights: Float[Tensor, "... P P"], grid: tuple[int, int]) -> Float[Tensor, "..."]:
    """How far a head looks from a patch to others, in patches: the mean over patches."""
    places = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float32) for n in grid))
    apart = torch.cdist(places, places).to(weights.device)
    return (_shares(weights) * apart).sum(-1).mean(-1)


def ink_scores(
    model: VisionTransformer,
    images: Shaped[Tensor, "N C h w"],
    *,
    threshold: float = INKED,
    batch_size: int = 128,
) -> dict[str, float]:
    """The share of rollout that lies on inked patches, beside their share of the area, which is chance.

    Returns:
        ``ink``, ``ink_chance`` and ``ink_ratio``, the first over the second; means over the images that have
        inked patches, NaN where none has. Ink is light on dark.
    """
    on, area, n = 0.0, 0.0, 0
    for part in images.split(batch_size):
        light = part.float().mean(1, keepdim=True) / 255
        inked = F.avg_pool2d(light, model.config.patch).flatten(1) >= threshold  # (B, P)
        has_ink = inked.any(1)
        if not bool(has_ink.any()):
            continue
        mass = patch_attention(model, part[has_ink]).rollout.cpu()
        shares = inked[has_ink].float()
        on += float((mass * shares).sum())
        area += float(shares.mean(1).sum())
        n += len(shares)
    if not n:
        return dict.fromkeys(("ink", "ink_chance", "ink_ratio"), math.nan)
    return {"ink": on / n, "ink_chance": area / n, "ink_ratio": on / area}


def _single(calls: list[Sight]) -> Sight:
    (sight,) = calls
    return sight


def _shares(weights: Float[Tensor, "... P"]) -> Float[Tensor, "... P"]:
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-12)
