"""What a Vision Transformer looked at in an image, layer by layer, and whether that is where the ink is.

The class token's rollout is its share of every patch after all layers, residual paths included (see
``look/flow.py``); without a class token it is the mean over the patches, which such a model classifies.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.augment import as_floats
from sightline.look.flow import rollout
from sightline.look.sight import Sight
from sightline.look.watch import watch
from sightline.models.vit import VisionTransformer
from sightline.shapes import Float, Shaped

__all__ = ["INKED", "Glance", "glance", "ink"]

INKED = 0.5  # a patch counts as inked from this share of full ink on


@dataclass(frozen=True, kw_only=True, eq=False)
class Glance:
    """What was looked at in some images; weights over the patches sum to one.

    Attributes:
        logits: Of the classes.
        rollout: The share of each patch in what is classified, after all layers.
        heads: What each head of each layer looked at on behalf of the class.
        received: The share of all weight that each patch received, by layer.
        distance: How far each head looks from a patch, in pixels: the mean over patches and images.
        grid: Rows and columns of patches.
        with_token: Whether there was a class token to ask, or the mean of the patches.
    """

    logits: Float[Tensor, "B V"]
    rollout: Float[Tensor, "B P"]
    heads: Float[Tensor, "B L H P"]
    received: Float[Tensor, "B L P"]
    distance: Float[Tensor, "L H"]
    grid: tuple[int, int]
    with_token: bool


@torch.no_grad()
def glance(model: VisionTransformer, images: Shaped[Tensor, "B C h w"]) -> Glance:
    """Run a model over images, bytes as they are read, and see where it looked."""
    device = model.head.weight.device
    with watch(model, keep=True) as seen:
        logits = model(as_floats(images.to(device))).float()
    sights = [_one(seen.calls(name)) for name in seen.names()]
    n, patch = model.n_extra, model.config.patch
    grid = (images.size(2) // patch, images.size(3) // patch)
    apart = _apart(grid).to(device) * patch
    heads, received, distance = [], [], []
    for sight in sights:
        weights = sight.map(sight.t).float()  # (B, H, T, T): images have few tokens
        asked = weights[:, :, 0] if n else weights.mean(2)  # (B, H, T)
        heads.append(_shares(asked[..., n:]))
        received.append(_shares(weights[..., n:].sum((1, 2))))
        among = _shares(weights[..., n:, n:])
        distance.append((among * apart).sum(-1).mean((0, 2)))
    mixed = rollout(sights).float()
    asked = mixed[:, 0] if n else mixed.mean(1)
    return Glance(
        logits=logits,
        rollout=_shares(asked[:, n:]),
        heads=torch.stack(heads, 1),
        received=torch.stack(received, 1),
        distance=torch.stack(distance),
        grid=grid,
        with_token=bool(n),
    )


def ink(
    model: VisionTransformer,
    images: Shaped[Tensor, "N C h w"],
    *,
    threshold: float = INKED,
    batch_size: int = 128,
) -> dict[str, float]:
    """The share of rollout that lies on inked patches, beside their share of the area, which is chance.

    Returns:
        ``ink``, ``ink_chance`` and ``ink_ratio``, the first over the second; means over the images that have
        inked patches. Ink is light on dark.
    """
    on, area, n = 0.0, 0.0, 0
    for part in images.split(batch_size):
        light = part.float().mean(1, keepdim=True) / 255
        inked = F.avg_pool2d(light, model.config.patch).flatten(1) >= threshold  # (B, P)
        counts = inked.any(1)
        if not bool(counts.any()):
            continue
        mass = glance(model, part[counts]).rollout.cpu()
        inked = inked[counts].float()
        on += float((mass * inked).sum())
        area += float(inked.mean(1).sum())
        n += len(inked)
    if not n:
        raise ValueError(f"no image has a patch with at least {threshold} of full ink; lower the threshold")
    return {"ink": on / n, "ink_chance": area / n, "ink_ratio": on / area}


def _one(calls: list[Sight]) -> Sight:
    (sight,) = calls
    return sight


def _shares(weights: Float[Tensor, "... P"]) -> Float[Tensor, "... P"]:
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-12)


def _apart(grid: tuple[int, int]) -> Float[Tensor, "P P"]:
    """How far patches are apart, in patches."""
    places = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float32) for n in grid))
    return torch.cdist(places, places)
