"""The self-critical second stage (Rennie et al., 2017): captions are drawn, scored, and learned from.

    reward    = CIDEr-D of a drawn caption against the image's own
    advantage = reward - baseline          the mean of its other draws, or what the model writes greedily
    loss      = - advantage · log p(drawn caption)

Captions are drawn by chance, at a temperature, or taken from a beam (Cornia et al., 2020): what a search
finds is better than what chance does, and it is a search that writes the captions in the end.

Cross-entropy teaches the next word of a reference; this teaches whole captions of the model's own, by the
score they are judged by.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.data.tokens import BOS, EOS, PAD, UNK
from sightline.decode.search import Hypotheses, beam, greedy, sample
from sightline.models.captioner import Captioner
from sightline.settings import check, setting
from sightline.shapes import Bool, Float, Int
from sightline.tasks.caption.objective import CaptionBatch, CaptionObjective
from sightline.tasks.caption.reward import Cider
from sightline.train.config import TrainConfig
from sightline.train.objective import Loss, Objective, Stage
from sightline.train.sharding import unsharded

__all__ = ["STAGE", "SelfCriticalConfig", "SelfCriticalObjective", "self_critical_stage"]

STAGE = "self-critical"
BASELINES = ("greedy", "others")
DRAWS = ("sample", "beam")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfCriticalConfig:
    """Settings of the self-critical stage; what it does not say is as in the first."""

    epochs: int = setting(
        10, "How often the training split is gone through in the self-critical stage.", advanced=True
    )
    steps: int | None = setting(None, "Stop after this many of its steps; None: all epochs.", advanced=True)
    lr: float = setting(1e-4, "Its largest learning rate.", advanced=True)
    schedule: str = setting(
        "cosine", "How the rate falls: constant, cosine, inverse_sqrt or linear.", advanced=True
    )
    warmup: float = setting(0.02, "Its warm-up; below 1, a share of its steps.", advanced=True)
    batch_size: int | None = setting(
        None, "Images that one of its steps sees; None: as before.", advanced=True
    )
    samples: int = setting(5, "Captions drawn of each image.", advanced=True)
    baseline: str = setting(
        "others",
        "What a draw is compared with: others (its fellow draws), or greedy.",
        choices=BASELINES,
        advanced=True,
    )
    draw: str = setting(
        "sample",
        "Where the captions come from: sample, or beam (a search so wide).",
        choices=DRAWS,
        advanced=True,
    )
    temperature: float = setting(
        0.5, "Divides the log-probabilities that samples come from, and learn by.", above=0, advanced=True
    )
    drop: bool = setting(
        False, "Whether activations are dropped while a drawn caption is learned.", advanced=True
    )
    metric: str = setting("cider", "The score that chooses which weights are kept.", advanced=True)
    evaluate_every: int = setting(1, "Epochs between its evaluations.", advanced=True)

    def __post_init__(self) -> None:
        check(self)
        least = 2 if self.baseline == "others" else 1
        if self.samples < least:
            raise ValueError(
                f"the baseline {self.baseline!r} needs at least {least} samples, got {self.samples}"
                + ("; the baseline 'greedy' needs one" if least > 1 else "")
            )
        self.training(TrainConfig())  # refuses what the loop would

    def training(self, before: TrainConfig) -> TrainConfig:
        """The loop's settings for the stage, after those of the first."""
        return dataclasses.replace(
            before,
            epochs=self.epochs,
            steps=self.steps,
            min_steps=None,
            lr=self.lr,
            schedule=self.schedule,
            warmup=self.warmup,
            batch_size=before.batch_size if self.batch_size is None else self.batch_size,
            metric=self.metric,
            evaluate_every=self.evaluate_every,
            average_last=0,
            patience=None,
        )


def self_critical_stage(first: CaptionObjective, config: SelfCriticalConfig) -> Stage:
    """The second stage of a captioner's run."""
    training = config.training(first.train)
    objective = SelfCriticalObjective(first, config, training)
    return Stage(name=STAGE, objective=objective, config=training, settings=config)


class SelfCriticalObjective(Objective):
    """Captions that the model draws, learned by their reward.

    Args:
        first: The objective of the first stage: images, references, evaluation.
        config: Settings of this stage.
        training: The loop's settings of this stage.
    """

    kind = "caption"

    def __init__(self, first: CaptionObjective, config: SelfCriticalConfig, training: TrainConfig) -> None:
        self.first = first.for_stage(training)
        self._config = config
        self._cider: Cider | None = None

    def prepare(self, device: torch.device) -> None:
        """Count the n-grams of the train split's captions, each with its end."""
        self.first.prepare(device)
        ids = self.first.reference_ids()[:, :, 1:]  # without BOS
        # An unknown word in a reference must never be matched by writing "unknown".
        self._cider = Cider(ids.masked_fill(ids == UNK, self._never())).to(device)

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        """Batches of images."""
        return self.first.plan(epoch)

    def load(self, indices: Sequence[int], epoch: int) -> CaptionBatch:
        """Some images."""
        return self.first.load(indices, epoch)

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        """Minus the advantage times the log-probability of each drawn caption; a term is a caption."""
        assert isinstance(model, Captioner)  # noqa: S101 - what this task is for
        images = self.first.model_inputs(model, batch)
        with unsharded(model):
            drawn, reward, advantage = self.draw(model, images, batch.indices)
        written, real = append_end(drawn)  # (B, K, L)
        length = written.size(-1)
        read = torch.cat([torch.full_like(written[..., :1], BOS), written[..., :-1]], dim=-1)
        was_training = model.training
        model.train(was_training and self._config.drop)
        logits = model.decoder(model.encode(images), read.flatten(0, 1))
        model.train(was_training)
        logits = logits[0] if isinstance(logits, tuple) else logits
        logits = logits.float()
        if self._config.draw == "sample":
            logits = logits / self._config.temperature  # p is what was drawn from
        log_probs = logits.log_softmax(-1).gather(-1, written.reshape(-1, length, 1))
        each = (log_probs.view_as(written) * real).sum(-1)  # (B, K)
        total = -(advantage.float() * each).sum()
        terms = torch.full((), float(reward.numel()), device=total.device)
        return Loss(total, terms, {"reward": reward.sum()})

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """As in the first stage."""
        return self.first.evaluate(model)

    def compile(self, model: nn.Module) -> None:
        """As in the first stage."""
        self.first.compile(model)

    def data(self) -> Mapping[str, Any]:
        """As in the first stage."""
        return self.first.data()

    def digest(self) -> str:
        """As in the first stage."""
        return self.first.digest()

    def save(self, folder: Path) -> None:
        """As in the first stage."""
        self.first.save(folder)

    @torch.no_grad()
    def draw(
        self, model: Captioner, images: Tensor, indices: Int[Tensor, " B"]
    ) -> tuple[Hypotheses, Float[Tensor, "B K"], Float[Tensor, "B K"]]:
        """Captions of each image, their rewards, and by how much these beat the baseline."""
        config, length = self._config, self.first.model.max_length
        was_training = model.training
        model.eval()
        state = model.start(images)
        if config.draw == "beam":
            drawn = beam(model, state, width=config.samples, n_best=config.samples, max_length=length)
        else:
            drawn = sample(
                model, state, samples=config.samples, temperature=config.temperature, max_length=length
            )
        reward = self._reward(drawn, indices)
        if config.baseline == "greedy":
            baseline = self._reward(greedy(model, state, max_length=length), indices)
        else:
            baseline = (reward.sum(1, keepdim=True) - reward) / (config.samples - 1)
        model.train(was_training)
        return drawn, reward, reward - baseline

    def _reward(self, hypotheses: Hypotheses, indices: Int[Tensor, " B"]) -> Float[Tensor, "B K"]:
        assert self._cider is not None  # noqa: S101 - prepared
        written, real = append_end(hypotheses)
        return self._cider.score(indices, written.masked_fill(~real, PAD))

    def _never(self) -> int:
        """An id that is never written."""
        return len(self.first.tokenizer)


def append_end(hypotheses: Hypotheses) -> tuple[Int[Tensor, "B K L"], Bool[Tensor, "B K L"]]:
    """The tokens as they were written, EOS included where one was, and which of them are real."""
    at = torch.arange(hypotheses.ids.size(-1), device=hypotheses.ids.device)
    lengths = hypotheses.lengths[..., None]
    return hypotheses.ids.masked_fill(at == lengths, EOS), at <= lengths
