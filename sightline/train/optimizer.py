"""AdamW over a model's weights, and its state as named tensors, so that it is kept without pickle."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sightline.train.config import TrainConfig

__all__ = ["adamw", "named_state", "restore"]


def adamw(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW over all weights that are to be learned; only matrices decay.

    What a model calls ``pretrained`` learns at a share of the rate: its group's ``share`` says which.

    Raises:
        ValueError: If the model has no weight to learn.
    """
    learned = [p for p in model.parameters() if p.requires_grad]
    if not learned:
        raise ValueError("a model must have weights to learn, got one whose weights are all frozen")
    gentle = {id(p) for p in getattr(model, "pretrained", ())}
    groups = [
        {
            "params": [p for p in learned if (id(p) in gentle) is known and (p.dim() >= 2) is decays],
            "weight_decay": config.weight_decay if decays else 0.0,
            "share": config.pretrained_lr if known else 1.0,
        }
        for known in (False, True)
        for decays in (True, False)
    ]
    fused = all(p.is_floating_point() and p.device.type in {"cpu", "cuda"} for p in learned)
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=(0.9, config.beta2),
        fused=fused,
    )


def named_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as ``PARAMETER//KEY`` to tensor, for the parameters that have any."""
    found: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            found[f"{name}//{key}"] = torch.as_tensor(value)
    return found


def restore(optimizer: torch.optim.Optimizer, model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give an optimizer the state that :func:`named_state` took from another of the same model."""
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        owner, _, key = name.rpartition("//")
        by_parameter.setdefault(owner, {})[key] = value
    for name, parameter in model.named_parameters():
        if name in by_parameter:
            own: dict[str, Any] = {}
            for key, value in by_parameter[name].items():
                # Unless it is fused, the optimizer counts its steps on the CPU.
                stays = key == "step" and not optimizer.defaults.get("fused")
                like = parameter if value.shape == parameter.shape else value  # its order in memory, too
                own[key] = torch.empty_like(
                    like, dtype=value.dtype, device="cpu" if stays else parameter.device, requires_grad=False
                ).copy_(value)
            optimizer.state[parameter] = own
