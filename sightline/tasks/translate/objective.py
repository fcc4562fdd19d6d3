"""Learning to translate: the next token, with what keeps a small corpus from being learned by heart.

- **BPE dropout**: every epoch cuts words in other ways (``data/segmented_corpus.py``).
- **R-Drop** (Liang et al., 2021): a batch passes twice under different dropout, and the two distributions
  p, q must agree: ``loss = ½ (CE(p) + CE(q)) + consistency · ½ (KL(p‖q) + KL(q‖p))``.
- **label smoothing** and moving means are the loop's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.data.batches import batches_by_length, pad, shuffled_batches
from sightline.data.pair_set import Pair, PairSet
from sightline.data.pair_tokens import PairTokens
from sightline.data.segmented_corpus import SegmentedCorpus
from sightline.data.tokens import BOS, EOS, PAD, UNK, Tokenizer
from sightline.settings import as_json
from sightline.shapes import Float, Int
from sightline.tasks.translate.data import TranslateData
from sightline.tasks.translate.generate import AnyTranslator, generate_translations
from sightline.train.config import TrainConfig
from sightline.train.losses import symmetric_kl
from sightline.train.objective import Loss, Objective
from sightline.train.processes import spread

__all__ = ["PairBatch", "Score", "TranslateObjective", "translation_loss"]

Score = Callable[[Sequence[str], Sequence[str]], Mapping[str, float]]

_AT_ONCE = 256  # pairs of the validation split


class PairBatch(NamedTuple):
    """Some pairs: the source with its end, and the target between BOS and EOS."""

    source: Int[Tensor, "B S"]
    target: Int[Tensor, "B T"]


class TranslateObjective(Objective):
    """Pairs of the train split, evaluated by translations of the validation split.

    Args:
        pairs: The sentences.
        tokens: Learned from the train split.
        train: Settings of the training: batch size, seed, label smoothing.
        data: Settings of the data; they go into the run's config.
        max_length: The longest source and target of the training; longer ones are cut.
        longest: The longest source that the model can translate; None where its positions have no end.
        score: Scores translations against references; None to evaluate by the loss alone.

    Raises:
        ValueError: If a source of the validation split is longer: it could not be translated.
    """

    may_change = frozenset({"place", "length_penalty"})  # data may move
    kind = "translate"

    def __init__(
        self,
        pairs: PairSet,
        tokens: PairTokens,
        *,
        train: TrainConfig,
        data: TranslateData,
        max_length: int,
        longest: int | None = None,
        score: Score | None = None,
    ) -> None:
        self.tokens, self.train, self.settings, self.score = tokens, train, data, score
        self.max_length = max_length
        trained = pairs.split("train")
        self._val: Sequence[Pair] = pairs.split("val")[: data.val_most]
        self._check_lengths(pairs.split("val"), longest)
        self._digest = pairs.digest()

        def cut(tokenizer: Tokenizer, side: int) -> SegmentedCorpus:
            texts, p = [pair[side] for pair in trained], data.bpe_dropout
            return SegmentedCorpus(tokenizer, texts, dropout=p, variants=data.variants, seed=train.seed)

        self._source, self._target = cut(tokens.source, 0), cut(tokens.target, 1)
        both = zip(self._source.lengths(), self._target.lengths(), strict=True)
        self._lengths = [max(s, t) + 1 for s, t in both]

    def _check_lengths(self, val: Sequence[Pair], longest: int | None) -> None:
        """Refuse now what the first evaluation would refuse, an epoch's work later."""
        if longest is None:
            return
        for number, pair in enumerate(val, 1):
            length = len(self.tokens.read(pair.source))
            if length > longest:
                raise ValueError(
                    f"learned positions end at max_length={longest} tokens, the source of pair "
                    f"{number} of val has {length}: {pair.source[:40]!r}...; raise --max-length, or leave "
                    "the pair out"
                )

    def digest(self) -> str:
        """Names the sentences."""
        return self._digest

    def unknown(self) -> tuple[float, float]:
        """The share of the source's and of the target's tokens in train that the vocabularies lack."""
        return self._source.unknown(), self._target.unknown()

    def prepare(self, device: torch.device) -> None:
        """Nothing to do: batches are small, and are made in threads."""

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        """Batches of a number of pairs, or of like length and a number of tokens."""
        seed, lengths = self.train.seed, self._lengths
        if self.settings.max_tokens is None:
            return shuffled_batches(len(lengths), self.train.batch_size, seed, epoch)
        return batches_by_length(lengths, self.settings.max_tokens, seed, epoch)

    def load(self, indices: Sequence[int], epoch: int) -> PairBatch:
        """Some pairs as ids, cut as this epoch has it."""
        source = self._source.batch(indices, epoch, last=EOS)
        target = self._target.batch(indices, epoch, first=BOS, last=EOS)
        return PairBatch(source[:, : self.max_length], target[:, : self.max_length + 1])

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        """Smoothed cross-entropy of every target token, and the agreement of two passes."""
        return translation_loss(
            model,
            batch,
            smoothing=self.train.label_smoothing,
            consistency=self.settings.consistency,
            word_dropout=self.settings.word_dropout,
        )

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The loss of a token and its perplexity; scores of translations, if there is something to score."""
        some = [self._val[top : top + _AT_ONCE] for top in range(0, len(self._val), _AT_ONCE)]
        sums = list(spread(lambda pairs: self._sums(model, pairs), some))
        mean = sum(total for total, _ in sums) / max(1.0, sum(terms for _, terms in sums))
        scores = {"loss": mean, "perplexity": math.exp(min(mean, 50.0))}
        if self.score is not None:
            assert isinstance(model, AnyTranslator)  # noqa: S101 - what this objective is for
            outputs = generate_translations(
                model,
                self.tokens,
                [pair.source for pair in self._val],
                width=self.settings.val_beam,
                alpha=self.settings.length_penalty,
                each=spread,
            )
            texts = [one.text for one in outputs]
            scores.update(self.score(texts, [pair.target for pair in self._val]))
        return scores

    def _sums(self, model: nn.Module, pairs: Sequence[Pair]) -> tuple[float, float]:
        """The loss of some pairs, and how many tokens it is of."""
        device = next(model.parameters()).device
        source = pad([self.tokens.read(pair.source) for pair in pairs])
        rows = [[BOS, *self.tokens.target.encode(pair.target), EOS] for pair in pairs]
        target = pad([row[: self.max_length + 1] for row in rows])
        loss = translation_loss(model, PairBatch(source.to(device), target.to(device)))
        return loss.total.item(), float(loss.terms)

    def data(self) -> dict[str, Any]:
        """The settings of the data."""
        return as_json(self.settings)

    def save(self, folder: Path) -> None:
        """Write the tokenizers."""
        folder.mkdir(parents=True, exist_ok=True)
        self.tokens.save(folder)


def translation_loss(
    model: nn.Module,
    batch: PairBatch,
    *,
    smoothing: float = 0.0,
    consistency: float = 0.0,
    word_dropout: float = 0.0,
) -> Loss:
    """The loss of a batch, summed over its target tokens.

    Args:
        model: Gives logits for a source and the target so far.
        batch: Pairs.
        smoothing: Probability taken from the right token and spread over all.
        consistency: Weight of the divergence between two passes; with 0 there is one pass.
        word_dropout: Share of the target tokens that the decoder reads as unknown.
    """
    source, read, written = batch.source, batch.target[:, :-1], batch.target[:, 1:]
    real = written != PAD
    terms = real.sum()
    if consistency:
        source, read = torch.cat([source, source]), torch.cat([read, read])
    if word_dropout:
        drop = (torch.rand(read.shape, device=read.device) < word_dropout) & (read > UNK)
        read = read.masked_fill(drop, UNK)
    logits = model(source, read)
    if not consistency:
        total = F.cross_entropy(
            logits.flatten(0, 1).float(),
            written.flatten(),
            ignore_index=PAD,
            label_smoothing=smoothing,
            reduction="sum",
        )
        return Loss(total, terms)
    log_p, log_q = logits.float().log_softmax(-1).chunk(2)
    cross = (_smoothed(log_p, written, smoothing) + _smoothed(log_q, written, smoothing)) / 2
    divergence = symmetric_kl(log_p, log_q) / 2
    total = ((cross + consistency * divergence) * real).sum()
    return Loss(total, terms, {"divergence": (divergence.detach() * real).sum()})


def _smoothed(
    log_p: Float[Tensor, "B T V"], written: Int[Tensor, "B T"], smoothing: float
) -> Float[Tensor, "B T"]:
    right = log_p.gather(-1, written[..., None])[..., 0]
    return -right if not smoothing else -(1 - smoothing) * right - smoothing * log_p.mean(-1)
