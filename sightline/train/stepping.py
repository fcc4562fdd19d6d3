"""One step of the optimizer, and all the tensors that steps change."""

import copy
import dataclasses
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sightline.data.batches import seed_of
from sightline.train.checkpoint import Checkpoint, check_same_model, weights_of
from sightline.train.config import TrainConfig
from sightline.train.launch import launched
from sightline.train.objective import Loss, Objective
from sightline.train.optimizer import adamw, empty_state, named_state, restore
from sightline.train.processes import join
from sightline.train.sharding import local, shard, unsharded
from sightline.train.weights import Ema

__all__ = ["INTERRUPTED", "LossModule", "Part", "Stepper", "accelerator_for", "to_device"]

Part = tuple[Any, bool]  # a batch, and whether it counts
_T = TypeVar("_T")
INTERRUPTED = "processes/interrupted"  # among the sums: how many processes were told to stop
_MEAN, _COUNT = _OF_MEAN = ("loss/mean", "loss/mean_count")


class Stepper:
    """A model with its optimizer and moving mean, on Accelerate.

    Attributes:
        model: What learns: the model that was given, or where weights are sharded a copy of it.
        sharded: Whether they are.

    Args:
        model: What is to learn.
        objective: Gives the loss.
        config: Settings of the stage.
        accelerator: Accelerate's engine.
        name: Of the stage; each has random numbers of its own.
    """

    def __init__(
        self, model: nn.Module, objective: Objective, config: TrainConfig, accelerator: Any, *, name: str
    ) -> None:
        self.sharded = config.sharding == "fsdp" and accelerator.num_processes > 1
        self.model = (copy.deepcopy(model) if self.sharded else model).to(accelerator.device)
        if self.sharded:
            model.cpu()  # until the training has ended
        self.config, self.accelerator, self._name = config, accelerator, name
        mean = copy.deepcopy(self.model) if config.ema and self.sharded else None
        if config.compile:
            objective.compile(self.model)
        losing = LossModule(self.model, objective)
        if self.sharded:
            shard(losing, accelerator.device)
            if mean is not None:
                shard(mean, accelerator.device)
        self.ema = Ema(self.model, config.ema, copied=mean) if config.ema else None
        self._adamw = adamw(self.model, config)
        optimizer: Any = self._adamw
        if self.sharded:  # all that is left to Accelerate is the precision
            self._losing = accelerator.prepare_model(losing, evaluation_mode=True)
        else:
            self._losing, optimizer = accelerator.prepare(losing, self._adamw)
        # Accelerate's optimizer looks for a package on the disk at every step; it is needed to unscale alone.
        self._optimizer = self._adamw if accelerator.scaler is None else optimizer
        self._parameters = list(self.model.parameters())

    def evaluated(self) -> nn.Module:
        """What is evaluated and kept: the moving mean, or the model itself."""
        return self.model if self.ema is None else self.ema.evaluated()

    def unsharded(self, model: nn.Module) -> AbstractContextManager[None]:
        """Have the weights of what is evaluated whole on every process."""
        return unsharded(self._losing if model is self.model else model)

    def where(self) -> str:
        """The device, and how many processes train on how many of them."""
        world, device = self.accelerator.num_processes, self.accelerator.device
        sharded = ", weights sharded" if self.sharded else ""
        return str(device) if world == 1 else f"{device.type}, {world} processes{sharded}"

    def share(self, indices: Sequence[int]) -> list[tuple[Sequence[int], bool]]:
        """This process's share of a batch, in parts; where it has none, an example that counts 0.

        Every process must take part in every step, be the last batch ever so small.
        """
        world = self.accelerator.num_processes
        share = indices[self.accelerator.process_index :: world]
        k = min(self.config.accumulate, math.ceil(len(indices) / world))  # the same for all
        parts = [share[i::k] for i in range(k)]
        return [(part, True) if part else (indices[:1], False) for part in parts]

    def step(
        self, parts: Sequence[Part], *, n_examples: int, step: int, lr: float, interrupted: bool = False
    ) -> dict[str, Tensor]:
        """Learn from one batch, and give its sums: loss, terms and what else the objective counts.

        The gradient is that of (sum of all totals) / (sum of all terms), over parts and processes. In one
        part the terms of all processes are known before the backward pass; else only after it.

        Args:
            parts: This process's parts of the batch.
            n_examples: Of the whole batch, over all processes.
            step: Number of the step, from 0; seeds what is drawn.
            lr: The learning rate.
            interrupted: Whether this process was told to stop; the sums of several processes say how many
                were.
        """
        accelerator = self.accelerator
        _seed(seed_of(self.config.seed, self._name, step, accelerator.process_index), accelerator.device)
        for group in self._adamw.param_groups:
            group["lr"] = lr * group["share"]
        world = accelerator.num_processes
        whole = len(parts) == 1  # the same for all processes
        sums: dict[str, Tensor] = {}
        for i, (batch, counts) in enumerate(parts):
            last = i == len(parts) - 1
            with nullcontext() if last or self.sharded else accelerator.no_sync(self._losing):
                loss: Loss = self._losing(to_device(batch, accelerator.device))
                own = _sums(loss, 1.0 if counts else 0.0)
                if whole:
                    sums = self._over_processes(own, interrupted=interrupted)
                    accelerator.backward(self._mean(loss, own, sums))
                else:
                    own = {name: value for name, value in own.items() if name not in _OF_MEAN}
                    sums = {name: sums[name] + own[name] if sums else own[name] for name in own}
                    accelerator.backward(_with_mean(loss) * (world / n_examples if counts else 0.0))
        if not whole:
            sums = self._over_processes(sums, interrupted=interrupted)
            grads = [local(p.grad) for p in self._parameters if p.grad is not None]
            torch._foreach_mul_(grads, (n_examples / sums["terms"].clamp(min=1)).float())
        if self.config.clip is not None:
            accelerator.clip_grad_norm_(self._parameters, self.config.clip)
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update(step + 1)
        return {name: value for name, value in sums.items() if name not in _OF_MEAN}

    def _mean(self, loss: Loss, own: Mapping[str, Tensor], sums: Mapping[str, Tensor]) -> Tensor:
        """What is differentiated, so that its mean over the processes is the mean loss of the whole batch."""
        world = self.accelerator.num_processes
        if world == 1:
            return _with_mean(loss) * (1 / loss.terms.clamp(min=1))
        counts = own["terms"] > 0
        mean = loss.total * (world * counts / sums["terms"].clamp(min=1)).to(loss.total.dtype)
        if loss.mean is not None:
            mean = mean + loss.mean * (world * own[_COUNT] / sums[_COUNT]).to(loss.mean.dtype)
        return mean

    def _over_processes(self, sums: dict[str, Tensor], *, interrupted: bool) -> dict[str, Tensor]:
        """The sums of all processes; the mean that a loss has beside its terms is put into the loss."""
        if self.accelerator.num_processes == 1:
            return sums
        device = self.accelerator.device
        sums[INTERRUPTED] = torch.tensor(float(interrupted), dtype=torch.float64, device=device)
        if _MEAN in sums:
            sums["loss"] = sums["loss"] - sums["terms"] * sums[_MEAN]
            sums[_MEAN] = sums[_MEAN] * sums[_COUNT]
        names = sorted(sums)
        together = torch.stack([sums[name].to(device) for name in names])
        torch.distributed.all_reduce(together)
        total = dict(zip(names, together.unbind(), strict=True))
        if _MEAN in total:
            total["loss"] = total["loss"] + total["terms"] * total[_MEAN] / total[_COUNT]
        return total

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

    def restore(self, checkpoint: Checkpoint, where: str) -> None:
        """Take up the state of a checkpoint, written by however many processes, sharded or not."""
        shapes = checkpoint.shapes()
        targets: dict[str, Tensor] = {}
        for part, model in {"model": self.model, **({"ema": self.ema.model} if self.ema else {})}.items():
            own = weights_of(model)
            saved = {name: shape for name, (shape, _) in _under(part, shapes).items()}
            check_same_model({name: tensor.shape for name, tensor in own.items()}, saved, where)
            targets |= {f"{part}/{name}": tensor for name, tensor in own.items()}
        state = empty_state(self.model, _under("optimizer", shapes))
        checkpoint.read_into(targets | {f"optimizer/{name}": tensor for name, tensor in state.items()})
        restore(self._adamw, self.model, state)
        if "scaler" in checkpoint.state and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(checkpoint.state["scaler"])


def _sums(loss: Loss, weight: float) -> dict[str, Tensor]:
    """What is summed over parts and processes, in float64; nothing where the batch does not count."""
    values = {"loss": _with_mean(loss), "terms": loss.terms, **loss.also}
    if loss.mean is not None:
        values |= {_MEAN: loss.mean, _COUNT: torch.full_like(loss.mean, loss.mean_count)}
    return {name: value.detach().double() * weight for name, value in values.items()}


def _with_mean(loss: Loss) -> Tensor:
    """The total, with what is added to the mean of its terms counted once a term."""
    return loss.total if loss.mean is None else loss.total + loss.terms * loss.mean


def _under(part: str, shapes: Mapping[str, _T]) -> dict[str, _T]:
    prefix = f"{part}/"
    return {name.removeprefix(prefix): value for name, value in shapes.items() if name.startswith(prefix)}


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
    _check_launch(config.device, 0 if on_cpu else n)
    if number and "LOCAL_RANK" not in os.environ:
        os.environ["ACCELERATE_TORCH_DEVICE"] = config.device
    precision = config.precision
    if precision == "auto":
        precision = "no" if on_cpu or not torch.cuda.is_bf16_supported() else "bf16"
    if precision == "fp16" and on_cpu:
        raise ValueError("precision 'fp16' needs a GPU, got the CPU; choose 'bf16' or 'no'")
    if precision == "fp16" and config.sharding == "fsdp":
        raise ValueError(
            "precision 'fp16' scales the loss, which is not done for sharding 'fsdp'; choose 'bf16' or 'no'"
        )
    join()
    state = AcceleratorState._shared_state  # noqa: SLF001 - there is no public way to ask
    if state and (state.get("_mixed_precision"), state.get("_cpu")) != (precision, on_cpu):
        # One process may train more than once, each time with its own precision and device.
        AcceleratorState._reset_state(not torch.distributed.is_initialized())  # noqa: SLF001
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="OMP_NUM_THREADS/MKL_NUM_THREADS unset")
        return Accelerator(mixed_precision=precision, cpu=on_cpu)


def _check_launch(device: str, n_gpus: int) -> None:
    """Refuse a way of starting several processes that can't work; ``n_gpus`` is 0 on the CPU."""
    n_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if n_gpus and n_here > n_gpus:
        raise ValueError(
            f"each process takes a GPU of its own, and there are {n_here} processes and {n_gpus} GPUs on "
            f"this machine; start {n_gpus}, or choose --device cpu"
        )
    if launched() and ":" in device:
        raise ValueError(
            f"of several processes each takes the GPU of its own number, got device {device!r}; choose "
            "'cuda', or set CUDA_VISIBLE_DEVICES for all"
        )
    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() == "true":
            raise ValueError(
                f"how weights are sharded is said to sightline, and Accelerate was told to use {name}; start "
                "it without, and with --sharding fsdp"
            )


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
