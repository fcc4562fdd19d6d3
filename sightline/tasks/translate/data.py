"""What a translator is trained on: the settings, the set they name, its tokenizers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sightline.data.dataset import Deal, deal_setting
from sightline.data.dates import DATES, dates_set, is_dates
from sightline.data.pair_set import PairSet
from sightline.data.pair_tokens import KINDS, PairTokens
from sightline.data.pairs import read_pairs
from sightline.data.shards import warn_of_problems
from sightline.settings import check, setting

__all__ = ["TranslateData", "open_pairs", "token_rows", "train_tokenizers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateData:
    """Settings of the data: the ``data`` of a translate run's config.json."""

    place: str = setting(DATES, "A folder, a zip or a table of sentence pairs, or 'dates', the embedded set.")
    source: str | None = setting(None, "Language to read; None: the first of the two there are.")
    target: str | None = setting(None, "Language to write; None: the other one.")
    tokens: str = setting("bpe", "What a token is: bpe or char.", choices=KINDS)
    vocabulary: int = setting(8000, "Most tokens of a BPE vocabulary.", at_least=1, largest=1 << 24)
    joint: bool = setting(False, "One vocabulary for both languages.", advanced=True)
    lowercase: bool = setting(False, "Whether capitals are small letters.", advanced=True)
    bpe_dropout: float = setting(
        0.0,
        "How likely a merge is left out in training: words cut in many ways.",
        at_least=0,
        below=1,
        advanced=True,
    )
    variants: int = setting(
        16, "In how many ways each word is cut, with bpe_dropout.", at_least=1, largest=1000, advanced=True
    )
    max_tokens: int | None = setting(
        None,
        "Batches of at most so many tokens a side, before bpe_dropout, instead of batch_size pairs.",
        at_least=1,
    )
    consistency: float = setting(
        0.0,
        "R-Drop: weight of the divergence between two passes with different dropout.",
        at_least=0,
        advanced=True,
    )
    word_dropout: float = setting(
        0.0,
        "Share of the target words read that are hidden from the decoder.",
        at_least=0,
        below=1,
        advanced=True,
    )
    val_beam: int = setting(
        1,
        "Beam width of the translations that an evaluation scores; 1 is greedy.",
        at_least=1,
        largest=1000,
        advanced=True,
    )
    val_most: int | None = setting(
        None, "Evaluate at most so many pairs of the validation split.", at_least=1, advanced=True
    )
    length_penalty: float = setting(
        1.0, "Strength of the length normalisation of a beam.", at_least=0, largest=20, advanced=True
    )
    tune_length: bool = setting(
        False, "After training choose length_penalty on the validation split.", advanced=True
    )
    n_train: int = setting(
        20_000, "Dates to train on, of the embedded set.", at_least=1, largest=10_000_000, advanced=True
    )
    n_val: int = setting(
        500, "Dates to evaluate on, of the embedded set.", at_least=1, largest=10_000_000, advanced=True
    )
    n_test: int = setting(
        1000, "Dates kept aside, of the embedded set.", at_least=1, largest=10_000_000, advanced=True
    )
    data_seed: int = setting(0, "Draws the embedded set.", advanced=True)
    deal: str = deal_setting()

    def __post_init__(self) -> None:
        check(self)


def open_pairs(data: TranslateData, model: Mapping[str, Any] | None = None) -> PairSet:  # noqa: ARG001
    """The set that the settings name; it is read the same for every model."""
    if is_dates(data.place):
        sizes = (data.n_train, data.n_val, data.n_test)
        return dates_set(seed=data.data_seed, sizes=sizes, source=data.source, target=data.target)
    deal = cast("Deal", data.deal)
    pairs = read_pairs(Path(data.place), source=data.source, target=data.target, deal=deal)
    warn_of_problems(pairs)
    return pairs


def token_rows(tokens: PairTokens) -> dict[str, list[str]]:
    """The parameters of a translator that have a row per token."""
    source, target = (side.words(range(len(side))) for side in (tokens.source, tokens.target))
    written = dict.fromkeys(("embedding.weight", "output.weight", "output.bias", "bias"), target)
    return {**written, "source_embedding.weight": source}


def train_tokenizers(pairs: PairSet, data: TranslateData) -> PairTokens:
    """Tokenizers learned from the train split, as the settings say."""
    return PairTokens.train(
        pairs.split("train"),
        kind=data.tokens,
        vocab_size=data.vocabulary,
        joint=data.joint,
        lowercase=data.lowercase,
    )
