"""The loop: one for every model, on Accelerate, that can be killed at any instant and goes on to the bit.

    fit(model, task, TrainConfig(epochs=20), Path("runs/mine"))                     # a new run
    fit(model, task, TrainConfig(epochs=20), Path("runs/mine"), resume=True)        # goes on where it was

A step's learning rate, batch and random numbers are functions of (seed, step), so the state of a run is its
weights, the optimizer's and the moving mean's tensors, and a few numbers: see :class:`Place`.
"""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.data.batches import ahead, seed_of
from sightline.models.saved import WEIGHTS
from sightline.shapes import did_you_mean
from sightline.train.average import Ema, mean_of
from sightline.train.checkpoint import Checkpoints, load_weights, read_tensors, weights_of, write_tensors
from sightline.train.config import LOWER_IS_BETTER, TrainConfig
from sightline.train.curve import Curve
from sightline.train.engine import Losing, accelerator_for, moved
from sightline.train.optimizer import adamw, named_state, restore
from sightline.train.progress import Progress
from sightline.train.run import open_run
from sightline.train.schedule import rate
from sightline.train.task import Task

__all__ = ["Place", "Stage", "fit"]

MAIN = "main"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A further stage of a run, which starts from the best weights of the one before.

    Attributes:
        name: Names its checkpoints.
        task: What is learned.
        config: How; a stage's settings are its own.
    """

    name: str
    task: Task
    config: TrainConfig


@dataclass(kw_only=True, slots=True)
class Place:
    """Where a stage is, plain values all: what a checkpoint says besides its tensors.

    Attributes:
        step, epoch, batch: Steps and epochs done, and batches of the present epoch.
        sums: Loss, terms and further sums since the last row of the curve.
        best: The best score so far; ``since`` counts the evaluations after it.
        done: Whether the stage has ended.
        rows: The curve of the whole run.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    since: int = 0
    done: bool = False
    rows: list[dict[str, float]] = field(default_factory=list)


def fit(
    model: nn.Module,
    task: Task,
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    then: Sequence[Stage] = (),
    shown: bool = True,
) -> Path:
    """Train a model and leave a run folder; its ``model.safetensors`` holds the best weights.

    Args:
        model: What is trained, in place; its ``config`` goes into the folder's config.json.
        task: What it learns and how well it does.
        config: How it is trained.
        out: The run folder.
        resume: Go on with the run in the folder, if there is one; without, a folder in use is refused.
        then: Further stages, each from the best weights of the one before.
        shown: Whether progress is shown on standard error.

    Returns:
        ``out``.

    Raises:
        ValueError: If the folder or a setting is no good, or the loss is no number any more.
        OSError: If the disk is full; the last checkpoint is whole.
    """
    accelerator = accelerator_for(config)
    if accelerator.is_main_process:
        stages = {stage.name: stage.config for stage in then}
        open_run(out, model, task, config, stages, resume=resume)
    accelerator.wait_for_everyone()
    before: Place | None = None
    for stage in (Stage(name=MAIN, task=task, config=config), *then):
        trainer = _Trainer(model, stage, out, accelerator, before, shown=shown)
        before = trainer.train()
    return out


class _Trainer:
    """One stage under way."""

    def __init__(
        self,
        model: nn.Module,
        stage: Stage,
        out: Path,
        accelerator: Any,
        before: Place | None,
        *,
        shown: bool,
    ) -> None:
        self.task, self.config, self.out = stage.task, stage.config, out
        self.name = stage.name
        self.accelerator = accelerator
        self.main = bool(accelerator.is_main_process)
        self.shown = shown and self.main
        self.folder = out / "checkpoints" / stage.name
        self.checkpoints = Checkpoints(self.folder)
        self.model = model.to(accelerator.device).train()
        self.place = Place()
        if before is not None:
            self.place.best, self.place.rows = before.best, before.rows
        self.first = self.place.rows[-1] if self.place.rows else {"step": 0, "epoch": 0}
        self.total = self._total_steps()

    def train(self) -> Place:
        """Train to the end and hand back the place."""
        found = self.checkpoints.latest()
        if found is not None:
            kept = {f.name: found.state[f.name] for f in dataclasses.fields(Place)}
            self.place = Place(**kept)
        if not self.place.done:
            self._go_on(
                found.tensors if found is not None else None, found.state if found is not None else {}
            )
        if (self.folder / WEIGHTS).exists():  # a stage that found nothing better leaves the weights it got
            load_weights(self.model, read_tensors(self.folder / WEIGHTS), str(self.folder))
        return self.place

    def _go_on(self, tensors: dict[str, Tensor] | None, state: Mapping[str, Any]) -> None:
        config, accelerator = self.config, self.accelerator
        if tensors is not None:
            load_weights(self.model, _part(tensors, "model"), str(self.folder))
        self.ema = Ema(self.model, config.ema) if config.ema else None
        self.raw_optimizer = adamw(self.model, config)
        if tensors is not None:
            restore(self.raw_optimizer, self.model, _part(tensors, "optimizer"))
            if self.ema is not None:
                load_weights(self.ema.model, _part(tensors, "ema"), str(self.folder))
        if tensors is not None and state.get("scaler") and accelerator.scaler is not None:
            accelerator.scaler.load_state_dict(state["scaler"])
        if config.compile:
            self.model.compile()
        self.losing, self.optimizer = accelerator.prepare(Losing(self.model, self.task), self.raw_optimizer)
        self.task.prepare(accelerator.device)
        self.sums = {
            name: torch.tensor(value, dtype=torch.float64, device=accelerator.device)
            for name, value in self.place.sums.items()
        }
        self.curve = Curve(self.out, self.place.rows, tensorboard=config.tensorboard) if self.main else None
        accelerator.wait_for_everyone()
        try:
            with Progress(self.total, self.place.step, self.name, shown=self.shown) as self.progress:
                if tensors is not None:
                    self.progress.say(f"going on after step {self.place.step} of {self.total}")
                while not self.place.done:
                    self._epoch()
        finally:
            if self.curve is not None:
                self.curve.close()

    def _total_steps(self) -> int:
        total = len(self.task.plan(0)) * self.config.epochs
        return total if self.config.steps is None else min(self.config.steps, total)

    # One epoch, one step

    def _epoch(self) -> None:
        place, config = self.place, self.config
        epoch = place.epoch
        whole = self.task.plan(epoch)
        plan = whole[place.batch :]
        pin = self.accelerator.device.type == "cuda"

        def load(indices: Sequence[int]) -> list[tuple[Any, bool]]:
            return [
                (moved(self.task.load(part, epoch), None, pin=pin), real)
                for part, real in self._parts(indices)
            ]

        with ahead(load, plan, threads=config.threads) as loaded:
            for indices, parts in zip(plan, loaded, strict=True):
                self._step(parts, len(indices))
                place.step += 1
                place.batch += 1
                self.progress.step(place.step, len(indices))
                if self._out_of_steps() or place.batch == len(whole):
                    break
                if place.step % config.log_every == 0:
                    self._row({}, within=place.batch / len(whole))
                if config.save_steps and place.step % config.save_steps == 0:
                    self._save()
        place.epoch, place.batch = epoch + 1, 0
        self._end_of_epoch()

    def _out_of_steps(self) -> bool:
        return self.config.steps is not None and self.place.step >= self.config.steps

    def _parts(self, indices: Sequence[int]) -> list[tuple[Sequence[int], bool]]:
        """This process's share of a batch, in parts; where it has none, an example that counts 0."""
        share = indices[self.accelerator.process_index :: self.accelerator.num_processes]
        if not share:
            return [(indices[:1], False)]
        k = min(self.config.accumulate, len(share))
        return [(share[i::k], True) for i in range(k)]

    def _step(self, parts: Sequence[tuple[Any, bool]], n_examples: int) -> None:
        """One step of the optimizer.

        The gradient is that of (sum of all totals) / (sum of all terms), over parts and processes. Alone
        and in one part that is divided before the backward pass; else the terms are known only after it.
        """
        place, accelerator = self.place, self.accelerator
        torch.manual_seed(seed_of(self.config.seed, self.name, place.step, accelerator.process_index))
        lr = rate(self.config, place.step, self.total)
        for group in self.raw_optimizer.param_groups:
            group["lr"] = lr
        world = accelerator.num_processes
        alone = world == 1 and len(parts) == 1
        sums: dict[str, Tensor] = {}
        for i, (batch, real) in enumerate(parts):
            last = i == len(parts) - 1
            with accelerator.no_sync(self.losing) if not last else nullcontext():
                loss = self.losing(moved(batch, accelerator.device))
                weight = 1.0 if real else 0.0
                scale = 1 / loss.terms.clamp(min=1) if alone else weight * world / n_examples
                accelerator.backward(loss.total * scale)
            for name, value in {"loss": loss.total, "terms": loss.terms, **loss.also}.items():
                new = value.detach().double() * weight
                sums[name] = sums[name] + new if name in sums else new
        if not alone:
            sums = self._over_processes(sums)
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            torch._foreach_mul_(grads, (n_examples / sums["terms"].clamp(min=1)).float())
        if self.config.clip is not None:
            accelerator.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update(place.step + 1)
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def _over_processes(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.accelerator.num_processes == 1:
            return sums
        names = sorted(sums)
        together = self.accelerator.reduce(torch.stack([sums[name] for name in names]), reduction="sum")
        return dict(zip(names, together.unbind(), strict=True))

    # What happens between steps

    def _row(
        self, scores: Mapping[str, float], *, within: float = 0.0, best: bool = False, say: bool = False
    ) -> None:
        """A row of the curve: means since the last row, and scores if there are new ones."""
        place = self.place
        sums = {name: value.item() for name, value in self.sums.items()}
        self.sums = {}
        terms = sums.pop("terms", 0.0)
        means = {name: value / terms for name, value in sums.items()} if terms else {}
        if not all(map(math.isfinite, means.values())):
            raise ValueError(
                f"the loss must be a number, it is {means.get('loss')} at step {place.step}; train again with a "
                f"lower lr than {self.config.lr}, a longer warmup or a clip"
            )
        row = {
            "step": self.first["step"] + place.step,
            "epoch": self.first["epoch"] + place.epoch + round(within, 4),
            **means,
            "lr": rate(self.config, max(0, place.step - 1), self.total),
            **{f"val_{name}": value for name, value in scores.items()},
        }
        if self.curve is not None:
            self.curve.add(row)
        if say:
            self.progress.row(row, best=best, total_epochs=int(self.first["epoch"]) + self.config.epochs)

    def _end_of_epoch(self) -> None:
        place, config = self.place, self.config
        last = place.epoch >= config.epochs or self._out_of_steps()
        if config.average_last and self.main:
            self._keep_epoch()
        if last or place.epoch % config.evaluate_every == 0:
            scores, better = self._evaluate(self.ema.evaluated() if self.ema is not None else self.model)
            self._row(scores, best=better, say=True)
            place.since = 0 if better else place.since + 1
            place.done = last or (config.patience is not None and place.since >= config.patience)
            if place.done and config.average_last:
                self._try_mean()
        else:
            self._row({}, say=True)
        if place.done or place.epoch % config.save_every == 0:
            self._save()

    def _evaluate(self, model: nn.Module) -> tuple[dict[str, float], bool]:
        """Scores of a model, and whether they are the best so far: then its weights are kept."""
        place, metric = self.place, self.config.metric
        scores: dict[str, float] = {}
        value = torch.zeros((), dtype=torch.float64, device=self.accelerator.device)
        if self.main:
            was_training = model.training
            with torch.no_grad():
                scores = dict(self.task.evaluate(model.eval()))
            model.train(was_training)
            if metric not in scores:
                raise ValueError(f"unknown metric {metric!r}, {did_you_mean(metric, scores)}")
            value.fill_(scores[metric])
        score = self._from_main(value)
        sign = -1 if metric in LOWER_IS_BETTER else 1
        better = not math.isnan(score) and (place.best is None or sign * score > sign * place.best)
        if better:
            place.best = score
            if self.main:
                self._keep(model)
        return scores, better

    def _from_main(self, value: Tensor) -> float:
        if self.accelerator.num_processes > 1:
            torch.distributed.broadcast(value, src=0)
        return value.item()

    def _keep(self, model: nn.Module) -> None:
        """Write the weights to use: for the next stage, and for all later commands."""
        write_tensors(self.folder / WEIGHTS, weights_of(model))
        beside = self.out / f".{WEIGHTS}-{os.getpid()}"
        beside.unlink(missing_ok=True)
        try:
            os.link(self.folder / WEIGHTS, beside)  # no second copy, where the file system can
            beside.replace(self.out / WEIGHTS)
        except OSError:
            write_tensors(self.out / WEIGHTS, weights_of(model))

    def _keep_epoch(self) -> None:
        """Keep this epoch's weights for the mean, and those that a checkpoint still in use may need."""
        weights = weights_of(self.ema.evaluated() if self.ema is not None else self.model)
        write_tensors(self.folder / f"epoch-{self.place.epoch:05d}.safetensors", weights)
        reach = self.config.average_last + 2 * self.config.save_every
        for path in self.folder.glob("epoch-*.safetensors"):
            if int(path.stem.partition("-")[2]) <= self.place.epoch - reach:
                path.unlink()

    def _try_mean(self) -> None:
        """Evaluate the mean of the last epochs' weights, and keep it if it is better."""
        place = self.place
        self.accelerator.wait_for_everyone()
        first = max(1, place.epoch - self.config.average_last + 1)
        files = [self.folder / f"epoch-{n:05d}.safetensors" for n in range(first, place.epoch + 1)]
        now = weights_of(self.model)
        now = {name: tensor.clone() for name, tensor in now.items()}
        load_weights(self.model, mean_of(files, self.model), str(self.folder))
        scores, better = self._evaluate(self.model)
        load_weights(self.model, now, str(self.folder))
        self.progress.say(
            f"mean of {len(files)} epochs: {self.config.metric} {scores.get(self.config.metric, 0):.4g}, "
            + ("better, kept" if better else "not better")
        )

    def _save(self) -> None:
        """Write a checkpoint."""
        place = self.place
        place.sums = {name: value.item() for name, value in self.sums.items()}
        if not all(map(math.isfinite, place.sums.values())):
            self._row({})  # which refuses with a sentence
        if not self.main:
            return
        tensors = {
            **_named("model", weights_of(self.model)),
            **_named("optimizer", named_state(self.raw_optimizer, self.model)),
            **(_named("ema", weights_of(self.ema.evaluated())) if self.ema is not None else {}),
        }
        scaler = self.accelerator.scaler
        state = dataclasses.asdict(place) | {"scaler": scaler.state_dict() if scaler is not None else None}
        self.checkpoints.save(tensors, state)


def _named(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}/{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.partition("/")[2]: t for name, t in tensors.items() if name.startswith(f"{part}/")}
