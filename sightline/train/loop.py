"""The loop: one for every model, on Accelerate, that can be killed at any instant and goes on to the bit.

    fit(model, objective, TrainConfig(epochs=20), Path("runs/mine"))                # a new run
    fit(model, objective, TrainConfig(epochs=20), Path("runs/mine"), resume=True)   # goes on where it was

A step's learning rate, batch and random numbers are functions of (seed, step), so the state of a run is its
weights, the optimizer's and the moving mean's tensors, and a few numbers: see :class:`TrainState`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.data.batches import prefetch
from sightline.messages import check_bool, did_you_mean, logger
from sightline.models.manifest import write_manifest
from sightline.models.without_cudnn_sdpa import without_cudnn_sdpa
from sightline.settings import as_json
from sightline.train.checkpoint import Checkpoint, Checkpoints, load_weights, weights_of
from sightline.train.config import MAIN, TrainConfig, with_min_steps
from sightline.train.folder import (
    check_alike,
    check_same_data,
    check_seen_by_all,
    check_there,
    lock_folder,
    prepare_folder,
)
from sightline.train.interrupt import Interrupt, Interrupted, interruptible
from sightline.train.objective import Objective, Stage
from sightline.train.optimizer import rate
from sightline.train.processes import (
    ProcessLost,
    from_main,
    is_main_process,
    process_lost,
    together,
    watch_for_the_end,
    world_size,
)
from sightline.train.progress import Curve, Progress
from sightline.train.record import Record
from sightline.train.sharding import share_weights, whole_weights
from sightline.train.state import TrainState, check_finite
from sightline.train.stepping import INTERRUPTED, Part, Stepper, accelerator_for, to_device
from sightline.train.weights import BestWeights

__all__ = ["fit"]


def fit(
    model: nn.Module,
    objective: Objective,
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    then: Sequence[Stage] = (),
    finish: Callable[[Path], None] | None = None,
    shown: bool = True,
) -> Path:
    """Train a model and leave a run folder; its ``model.safetensors`` holds the best weights.

    Args:
        model: What is trained, in place, and left with the best weights; its ``config`` goes into the
            folder's config.json.
        objective: What it learns and how well it does.
        config: How it is trained.
        out: The run folder.
        resume: Go on with the run in the folder, if there is one; without, a folder in use is refused.
        then: Further stages, each from the best weights of the one before.
        finish: Called with ``out`` when all has been trained, before the run vouches for its files.
        shown: Whether progress is shown on standard error.

    Returns:
        ``out``.

    Raises:
        ValueError: If the folder or a setting is no good, or the loss is no number any more.
        OSError: If the disk is full; the last checkpoint is whole.
        Interrupted: After Ctrl-C or SIGTERM; everything is saved.
    """
    check_bool("resume", resume)
    accelerator = accelerator_for(config)
    main = is_main_process()
    stages_in_order = (Stage(name=MAIN, objective=objective, config=config), *then)
    record: Record = {}
    with ExitStack() as held:
        with together():
            if main:
                held.enter_context(lock_folder(out, resume=resume))
                stages = {stage.name: as_json(stage.settings or stage.config) for stage in then}
                record = prepare_folder(out, model, objective, config, stages)
        check_seen_by_all(out)
        try:
            was_done = _train_stages(model, stages_in_order, out, accelerator, record, shown=shown)
            with together():
                if finish is not None and main:
                    finish(out)
        except Interrupted:
            if main:
                write_manifest(out)
            raise
        with together():
            if main:
                write_manifest(out)
    if was_done and shown and main:
        logger.info("the run was finished before: nothing was left to train; more --epochs train longer")
    return out


def _train_stages(
    model: nn.Module, stages: Sequence[Stage], out: Path, accelerator: Any, record: Record, *, shown: bool
) -> bool:
    """Train every stage from the best weights of the one before; whether all were finished already."""
    state: TrainState | None = None
    metric, was_done = stages[0].config.metric, True
    for stage in stages:
        if state is not None and stage.config.metric != metric:
            state.best, metric = None, stage.config.metric  # scores of two kinds can't be compared
        with nullcontext() if stage.objective.one_shape else without_cudnn_sdpa():
            trainer = _Trainer(model, stage, out, accelerator, state, record, shown=shown)
            state = trainer.train()
        was_done &= trainer.was_done
    return was_done


class _Trainer:
    """One stage under way."""

    def __init__(
        self,
        model: nn.Module,
        stage: Stage,
        out: Path,
        accelerator: Any,
        before: TrainState | None,
        record: Record,
        *,
        shown: bool,
    ) -> None:
        self.name, self.objective, self.config, self.out = stage.name, stage.objective, stage.config, out
        self.accelerator, self.main = accelerator, is_main_process()
        self.model, self.shown = model, shown and self.main
        self.folder = out / "checkpoints" / stage.name
        self.best_weights = BestWeights(out, self.folder)
        self.checkpoints = Checkpoints(self.folder, record)
        self.state, self.interrupt = TrainState(), Interrupt()
        if before is not None:
            self.state = TrainState(best=before.best, best_loss=before.best_loss, rows=list(before.rows))
        self.first = self.state.rows[-1] if self.state.rows else {"step": 0, "epoch": 0}
        self.begins_anew = before is not None and before.best is None
        self.sums: dict[str, Tensor] = {}

    def train(self) -> TrainState:
        """Train to the end, give the model its best weights, and hand back the place."""
        checkpoint = self.checkpoints.latest()
        if checkpoint is not None:
            self.state = TrainState.restored(checkpoint.state)
        self.config = with_min_steps(self.config, len(self.objective.plan(0)))
        self._reopen()
        self.was_done = self.state.done
        if not self.was_done:
            with interruptible() as self.interrupt, watch_for_the_end(self._last_words):
                self._go_on(checkpoint)
        with together():
            if self.main:
                self.best_weights.drop_epochs()
            self.best_weights.load_best(self.model.to(self.accelerator.device))
        return self.state

    def _last_words(self) -> str:
        """What is left where a process was lost."""
        step = self.checkpoints.step()
        kept = "nothing was saved yet" if step is None else f"step {step:,} is saved"
        return (
            f"the training stopped in step {self.state.step + 1:,}: one of its {world_size()} processes has "
            f"ended or was told to; {kept}: go on with --resume, on as many processes as you like"
        )

    def _reopen(self) -> None:
        """Go on with a stage that had ended, where it is now to train longer.

        Raises:
            ValueError: If a later stage has begun from where this one ended.
        """
        state, config = self.state, self.config
        out_of_patience = config.patience is not None and state.since >= config.patience
        if not state.done or state.epoch >= config.epochs or self._out_of_steps() or out_of_patience:
            return
        later = (
            [x.name for x in self.folder.parent.iterdir() if x.name != self.name] if self.name == MAIN else []
        )
        if later:
            raise ValueError(
                f"the stage {later[0]!r} of {str(self.out)!r} began where {self.name!r} ended after "
                f"{state.epoch} epochs, got epochs={config.epochs}; start a new run with --from {self.out}"
            )
        state.done = False

    def _go_on(self, checkpoint: Checkpoint | None) -> None:
        device, state = self.accelerator.device, self.state
        self.digest = self.objective.digest()
        check_alike(self.digest, self.model, self.objective.plan(0))
        share_weights(self.model)
        with together():
            if checkpoint is not None:
                check_same_data(self.out, checkpoint.state.get("digest", ""), self.digest)
        self.stepper = Stepper(self.model, self.objective, self.config, self.accelerator, name=self.name)
        self.stepper.model.train()
        with together():  # none may write while another still reads
            if checkpoint is not None:
                self.stepper.restore(checkpoint, str(self.folder))
            self.objective.prepare(device)
        plan = self.objective.plan(0)
        whole = len(plan) * self.config.epochs
        self.total = whole if self.config.steps is None else min(whole, self.config.steps)
        self.sums = {k: torch.tensor(v, dtype=torch.float64, device=device) for k, v in state.sums.items()}
        self.curve = Curve(self.out, state.rows, tensorboard=self.config.tensorboard) if self.main else None
        try:
            if checkpoint is None and self.begins_anew:
                self._evaluate(self.stepper.model)  # what the stage starts from is what it has to beat
            with Progress(self.total, state.step, self.name, shown=self.shown) as self.progress:
                after = None if checkpoint is None else state.step
                self.progress.plan(plan, self.config, self.model, self.stepper.where(), after)
                while not state.done:
                    self._epoch()
        except (RuntimeError, ProcessLost) as problem:
            if not process_lost(problem):
                raise
            raise ProcessLost(self._last_words()) from problem
        finally:
            if self.curve is not None:
                self.curve.close()

    def _epoch(self) -> None:
        state, config = self.state, self.config
        epoch = state.epoch
        plan = self.objective.plan(epoch)
        rest = plan[state.batch :]
        with prefetch(lambda indices: self._loaded(indices, epoch), rest, threads=config.threads) as loaded:
            for indices, parts in zip(rest, loaded, strict=True):
                lr = rate(config, state.step, self.total)
                interrupted = self.interrupt.number is not None
                sums = self.stepper.step(
                    parts, n_examples=len(indices), step=state.step, lr=lr, interrupted=interrupted
                )
                self.interrupt.agree(sums.pop(INTERRUPTED, None))
                for name, value in sums.items():
                    self.sums[name] = self.sums[name] + value if name in self.sums else value
                state.step += 1
                state.batch += 1
                self.progress.step(state.step, len(indices))
                self._stop_if_interrupted(len(plan))
                if self._out_of_steps() or state.batch == len(plan):
                    break  # the end of an epoch has a row and a checkpoint of its own
                if state.step % config.log_every == 0:
                    self._row({}, within=state.batch / len(plan))
                if config.save_steps and state.step % config.save_steps == 0:
                    self._save()
        state.epoch, state.batch = epoch + 1, 0
        self._end_of_epoch()

    def _stop_if_interrupted(self, n_batches: int) -> None:
        """Save and stop, if a signal has come; the end of an epoch is left to the epoch."""
        number = self.interrupt.agreed
        if number is None or self.state.batch == n_batches or self._out_of_steps():
            return
        self._save()
        raise Interrupted(self.state.step, self.total, number)

    def _loaded(self, indices: Sequence[int], epoch: int) -> list[Part]:
        pin = self.accelerator.device.type == "cuda"
        parts = self.stepper.share(indices)
        return [
            (to_device(self.objective.load(part, epoch), None, pin=pin), counts) for part, counts in parts
        ]

    def _out_of_steps(self) -> bool:
        return self.config.steps is not None and self.state.step >= self.config.steps

    def _end_of_epoch(self) -> None:
        """Evaluate, write a row and a checkpoint, each when it is due; decide whether to go on."""
        state, config = self.state, self.config
        last = state.epoch >= config.epochs or self._out_of_steps()
        if config.average_last:
            # Those that the checkpoint before the last would need are kept as well.
            reach = config.average_last + 2 * config.save_every
            weights = whole_weights(weights_of(self.stepper.evaluated()), keep=self.main)
            with together():
                if self.main:
                    self.best_weights.keep_epoch(weights, state.epoch, reach=reach)
        if last or state.epoch % config.evaluate_every == 0:
            self.progress.describe("evaluating")
            scores, better = self._evaluate(self.stepper.evaluated())
            self.progress.describe(self.name)
            self._row(scores, best=better, say=True)
            state.since = 0 if better else state.since + 1
            state.done = last or (config.patience is not None and state.since >= config.patience)
            if state.done and config.average_last:
                self._try_mean()
        else:
            self._row({}, say=True)
        self.interrupt.agree_now()
        interrupted = self.interrupt.agreed
        if state.done or state.epoch == 1 or state.epoch % config.save_every == 0 or interrupted is not None:
            self._save()
        if interrupted is not None and not state.done:
            raise Interrupted(state.step, self.total, interrupted)

    def _evaluate(self, model: nn.Module) -> tuple[dict[str, float], bool]:
        """Scores of a model, and whether they are the best so far; keeps the weights that are to be kept."""
        metric = self.config.metric
        was_training = model.training
        with torch.no_grad(), self.stepper.unsharded(model):
            scores = dict(self.objective.evaluate(model.eval()))
        model.train(was_training)
        scores = from_main(lambda: scores)
        if metric not in scores:
            raise ValueError(f"unknown metric {metric!r}, {did_you_mean(metric, scores)}")
        score, loss = scores[metric], scores.get("loss", math.nan)
        loss = math.inf if math.isnan(loss) else loss
        better = self.state.is_better(score, loss, metric)
        if better:
            self.state.best, self.state.best_loss = score, loss
        if better or self._keeps_last(score):
            weights = whole_weights(weights_of(model), keep=self.main)
            with together():
                if self.main:
                    check_there(self.out)
                    self.best_weights.keep_best(weights)
        return scores, better

    def _keeps_last(self, score: float) -> bool:
        """Whether the weights are kept however good they are: not those that have become no numbers."""
        return self.config.keep == "last" and not math.isnan(score)

    def _try_mean(self) -> None:
        """Evaluate the mean of the last epochs' weights, and keep it if it is better or the last is kept."""
        model = self.stepper.model
        now = {name: tensor.clone() for name, tensor in weights_of(model).items()}
        with together():
            mean = self.best_weights.mean(model, self.state.epoch, self.config.average_last)
            load_weights(model, mean, str(self.folder))
        scores, better = self._evaluate(model)
        load_weights(model, now, str(self.folder))
        score = scores.get(self.config.metric, math.nan)
        verdict = "better, kept" if better else "kept" if self._keeps_last(score) else "not better"
        self.progress.print_line(
            f"mean of the last epochs' weights: {self.config.metric} {score:.4g}, {verdict}"
        )

    def _row(
        self, scores: Mapping[str, float], *, within: float = 0.0, best: bool = False, say: bool = False
    ) -> None:
        """A row of the curve: means since the last row, and scores if there are new ones."""
        state, sums = self.state, self._summed()
        self.sums = {}
        terms = sums.pop("terms", 0.0)
        row = {
            "step": self.first["step"] + state.step,
            "epoch": self.first["epoch"] + state.epoch + round(within, 4),
            **({name: value / terms for name, value in sums.items()} if terms else {}),
            "lr": rate(self.config, max(0, state.step - 1), self.total),
            **{f"val_{name}": value for name, value in scores.items()},
        }
        if self.curve is not None:
            self.curve.add(row)
        if say:
            total_epochs = int(self.first["epoch"]) + self.config.epochs
            self.progress.row(row, metric=self.config.metric, best=best, total_epochs=total_epochs)

    def _summed(self) -> dict[str, float]:
        """The sums since the last row; the device is waited for here and nowhere else."""
        sums = {name: value.item() for name, value in self.sums.items()}
        check_finite(sums, self.state.step, self.config.lr)
        return sums

    def _save(self) -> None:
        """Write a checkpoint; never one of a loss that is no number."""
        self.state.sums = self._summed()
        state = dataclasses.asdict(self.state) | self.stepper.plain() | {"digest": self.digest}
        tensors = self.stepper.tensors()
        with together():
            check_there(self.out)
            if self.main and not self.stepper.sharded:
                self.checkpoints.save(tensors, state)
        if self.stepper.sharded:
            self.checkpoints.save(tensors, state)
