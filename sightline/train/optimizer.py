"""AdamW over a model's weights, and its state as named tensors, so that it is kept without pickle."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sightline.train.config import TrainConfig

__all__ = ["adamw", "empty_state", "named_state", "rate", "restore", "warmup_steps"]


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
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}//{key}"] = torch.as_tensor(value)
    return tensors


def empty_state(model: nn.Module, shapes: Mapping[str, tuple[torch.Size, torch.dtype]]) -> dict[str, Tensor]:
    """Tensors to read such a state into: those that are as large as their parameter lie as it does."""
    parameters = dict(model.named_parameters())
    state: dict[str, Tensor] = {}
    for name, (shape, dtype) in shapes.items():
        parameter = parameters.get(name.rpartition("//")[0])
        if parameter is not None:
            alike = shape == parameter.shape
            state[name] = (
                torch.empty_like(parameter, dtype=dtype, requires_grad=False)
                if alike
                else torch.empty(shape, dtype=dtype, device=parameter.device)
            )
    return state


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


def warmup_steps(config: TrainConfig, total: int) -> int:
    """How many steps the warm-up takes; below 1 it is a share of all steps."""
    return round(config.warmup * total) if config.warmup < 1 else round(config.warmup)


def rate(config: TrainConfig, step: int, total: int) -> float:
    """The learning rate of a step, counted from 0, of ``total``.

        constant:      lr
        inverse_sqrt:  lr √(warmup / step)
        linear:        lr (1 - done), to ``final_lr``
        cosine:        lr (1 + cos(π done)) / 2, to ``final_lr``

    A function of the step alone: a run that goes on needs no state for it.

    Example:
        >>> config = TrainConfig(lr=1.0, warmup=2.0, schedule="linear")
        >>> [rate(config, step, 6) for step in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    warm = warmup_steps(config, total)
    if step < warm:
        return config.lr * (step + 1) / warm
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(1, warm) / max(1, step + 1))
    done = min(1.0, (step - warm) / max(1, total - warm))
    share = 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return config.lr * (config.final_lr + (1 - config.final_lr) * share)
