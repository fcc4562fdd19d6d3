"""What Accelerate does for the loop: the device, the processes, mixed precision."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sightline.train.config import TrainConfig
from sightline.train.objective import Loss, Objective

__all__ = ["LossModule", "accelerator_for", "is_main_process", "to_device"]


class LossModule(nn.Module):
    """A model and its objective as one module, from a batch to a loss.

    What several processes share and what mixed precision covers is then the whole loss, and an objective
    may call whichever methods of its model it likes.
    """

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self._objective = objective

    def forward(self, batch: Any) -> Loss:
        """The objective's loss of the batch."""
        return self._objective.loss(self.model, batch)


def is_main_process() -> bool:
    """Whether this process speaks and writes for all, known before any engine is started."""
    return os.environ.get("RANK", "0") == "0"


def accelerator_for(config: TrainConfig) -> Any:
    """Accelerate's engine for these settings.

    Raises:
        ValueError: If the device is not there, or can't do the precision.
        ImportError: If Accelerate is not installed.
    """
    try:
        from accelerate import Accelerator  # type: ignore[import-untyped]  # noqa: PLC0415
        from accelerate.state import AcceleratorState  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as missing:
        raise ImportError(
            "training needs accelerate, which is not installed; pip install 'sightline[train]'",
            name="accelerate",
        ) from missing
    on_cpu = config.device == "cpu" or not torch.cuda.is_available()
    name, _, number = config.device.partition(":")
    n = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cuda" and int(number or 0) >= n:
        seen = f"{n} CUDA device{'s' * (n != 1)}" if n else "no CUDA device"
        raise ValueError(
            f"device {config.device!r} is not there: torch {torch.__version__} sees {seen}; choose "
            + ("'cpu'" if not n else f"one below 'cuda:{n}'")
        )
    if number and "LOCAL_RANK" not in os.environ:
        os.environ["ACCELERATE_TORCH_DEVICE"] = config.device
    precision = config.precision
    if precision == "auto":
        precision = "no" if on_cpu or not torch.cuda.is_bf16_supported() else "bf16"
    if precision == "fp16" and on_cpu:
        raise ValueError("precision 'fp16' needs a GPU, got the CPU; choose 'bf16' or 'no'")
    state = AcceleratorState._shared_state  # noqa: SLF001 - there is no public way to ask
    if state and (state.get("_mixed_precision"), state.get("_cpu")) != (precision, on_cpu):
        # One process may train more than once, each time with its own precision and device.
        AcceleratorState._reset_state(not torch.distributed.is_initialized())  # noqa: SLF001
    return Accelerator(mixed_precision=precision, cpu=on_cpu)


def to_device(batch: Any, device: torch.device | None, *, pin: bool = False) -> Any:  # noqa: PLR0911 - a kind each
    """A batch with all its tensors on the device, or pinned for the way there; other values stay.

    Example:
        >>> to_device({"ids": torch.ones(2), "names": ("a", "b")}, torch.device("cpu"))["names"]
        ('a', 'b')
    """
    if isinstance(batch, Tensor):
        if device is not None:
            return batch.to(device, non_blocking=True)
        return batch.pin_memory() if pin and batch.device.type == "cpu" else batch
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        values = {
            field.name: to_device(getattr(batch, field.name), device, pin=pin)
            for field in dataclasses.fields(batch)
        }
        return dataclasses.replace(batch, **values)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device, pin=pin) for value in batch))
    if isinstance(batch, Mapping):
        return {name: to_device(value, device, pin=pin) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device, pin=pin) for value in batch)
    return batch
