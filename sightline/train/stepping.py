"""One step of the optimizer, and all the tensors that steps change."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from sightline.data.batches import seed_of
from sightline.train.checkpoint import load_weights, weights_of
from sightline.train.config import TrainConfig
from sightline.train.objective import Loss, Objective
from sightline.train.optimizer import adamw, named_state, restore
from sightline.train.weights import Ema

__all__ = ["LossModule", "Part", "Stepper", "accelerator_for", "is_main_process", "to_device"]

Part = tuple[Any, bool]  # a batch, and whether it counts


class Stepper:
    """A model with its optimizer and moving mean, on Accelerate.

    Args:
        model: On the accelerator's device.
        objective: Gives the loss.
        config: Settings of the stage.
        accelerator: Accelerate's engine.
        name: Of the stage; each has random numbers of its own.
    """

    def __init__(
        self, model: nn.Module, objective: Objective, config: TrainConfig, accelerator: Any, *, name: str
    ) -> None:
        self.model, self.config, self.accelerator, self._name = model, config, accelerator, name
        self.ema = Ema(model, config.ema) if config.ema else None
        self._adamw = adamw(model, config)
        if config.compile:
            objective.compile(model)
        self._losing, optimizer = accelerator.prepare(LossModule(model, objective), self._adamw)
        # Accelerate's optimizer looks for a package on the disk at every step; it is needed to unscale alone.
        self._optimizer = self._adamw if accelerator.scaler is None else optimizer
        self._parameters = list(model.parameters())

    def evaluated(self) -> nn.Module:
        """What is evaluated and kept: the moving mean, or the model itself."""
        return self.model if self.ema is None else self.ema.evaluated()

    def share(self, indices: Sequence[int]) -> list[tuple[Sequence[int], bool]]:
        """This process's share of a batch, in parts; where it has none, an example that counts 0.

        Every process must take part in every step, be the last batch ever so small.
        """
        share = indices[self.accelerator.process_index :: self.accelerator.num_processes]
        if not share:
            return [(indices[:1], False)]
        k = min(self.config.accumulate, len(share))
        return [(share[i::k], True) for i in range(k)]

    def step(self, parts: Sequence[Part], *, n_examples: int, step: int, lr: float) -> dict[str, Tensor]:
        """Learn from one batch, and give its sums: loss, terms and what else the objective counts.

        The gradient is that of (sum of all totals) / (sum of all terms), over parts and processes. Alone
        and in one part that is divided before the backward pass; else the terms are known only after it.

        Args:
            parts: This process's parts of the batch.
            n_examples: Of the whole batch, over all processes.
            step: Number of the step, from 0; seeds what is drawn.
            lr: The learning rate.
        """
        accelerator = self.accelerator
        _seed(seed_of(self.config.seed, self._name, step, accelerator.process_index), accelerator.device)
        for group in self._adamw.param_groups:
            group["lr"] = lr * group["share"]
        world = accelerator.num_processes
        alone = world == 1 and len(parts) == 1
        sums: dict[str, Tensor] = {}
        for i, (batch, counts) in enumerate(parts):
            last = i == len(parts) - 1
            with nullcontext() if last else accelerator.no_sync(self._losing):
                loss = self._losing(to_device(batch, accelerator.device))
                weight = 1.0 if counts else 0.0
                scale = 1 / loss.terms.clamp(min=1) if alone else weight * world / n_examples
                accelerator.backward(loss.total * scale)
            for name, value in {"loss": loss.total, "terms": loss.terms, **loss.also}.items():
                new = value.detach().double() * weight
                sums[name] = sums[name] + new if name in sums else new
        if not alone:
            sums = self._over_processes(sums)
            grads = [p.grad for p in self._parameters if p.grad is not None]
            torch._foreach_mul_(grads, (n_examples / sums["terms"].clamp(min=1)).float())
        if self.config.clip is not None:
            accelerator.clip_grad_norm_(self._parameters, self.config.clip)
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update(step + 1)
        return sums

    def _over_processes(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.accelerator.num_processes == 1:
            return sums
        names = sorted(sums)
        own = torch.stack([sums[name].to(self.accelerator.device) for name in names])
        together = self.accelerator.reduce(own, reduction="sum")
        return dict(zip(names, together.unbind(), strict=True))

    # Its state, as tensors and plain values

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint keeps, by name."""
        parts = {
            "model": weights_of(self.model),
            "optimizer": named_state(self._adamw, self.model),
            "ema": weights_of(self.ema.evaluated()) if self.ema is not None else {},
        }
        return {f"{part}/{name}": t for part, tensors in parts.items() for name, t in tensors.items()}

    def plain(self) -> dict[str, Any]:
        """What else it keeps: the scale of losses in float16."""
        scaler = self.accelerator.scaler
        return {} if scaler is None else {"scaler": scaler.state_dict()}

    def restore(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], where: str) -> None:
        """Take up the state of a checkpoint."""
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "ema": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor
        load_weights(self.model, parts["model"], where)
        restore(self._adamw, self.model, parts["optimizer"])
        if self.ema is not None:
            load_weights(self.ema.model, parts["ema"], where)
        if "scaler" in plain and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(plain["scaler"])


def _seed(seed: int, device: torch.device) -> None:
    """As ``torch.manual_seed``, which takes its time over all the kinds of devices that are not there."""
    if device.type not in {"cpu", "cuda"}:
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


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
