"""What a captioner is trained on: the settings, the set they name, and the tokenizer learned from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sightline.data.augment import Augment
from sightline.data.captions import CaptionSet, read_captions
from sightline.data.scenes import scenes_set
from sightline.data.shard_captions import CaptionShards
from sightline.data.shards import warn_of_problems
from sightline.data.tokens import SPECIALS, Tokenizer
from sightline.messages import logger
from sightline.settings import check, setting

__all__ = ["SCENES", "CaptionData", "learn_tokens", "open_captions", "token_rows"]

SCENES = "scenes"
_NAMED = 3  # missing images that are named


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionData:
    """Settings of the data: the ``data`` of a caption run's config.json."""

    source: str = setting(SCENES, "A folder or a zip of images with captions, or 'scenes', the embedded set.")
    tokens: str = setting("word", "What a token is: word or bpe.", choices=("word", "bpe"))
    vocabulary: int = setting(
        10_000, "Most tokens learned from the train split.", above=len(SPECIALS), largest=1 << 24
    )
    min_count: int = setting(1, "A word seen less often is unknown.", at_least=1, advanced=True)
    captions: int | None = setting(
        None,
        "Captions of an image that a step learns from, drawn anew each epoch; None: all.",
        at_least=1,
        advanced=True,
    )
    word_dropout: float = setting(
        0.0, "Share of the words read that are hidden from the decoder.", at_least=0, below=1, advanced=True
    )
    cell_dropout: float = setting(
        0.0,
        "Share of the cells of a pretrained encoder's grid that are hidden.",
        at_least=0,
        below=1,
        advanced=True,
    )
    consistency: float = setting(
        0.0,
        "Weight of the wish that two passes with other dropout agree (R-Drop); it doubles the work.",
        at_least=0,
        advanced=True,
    )
    cached: bool | None = setting(
        None,
        "Keep a frozen encoder's grids instead of seeing each picture anew; None: only on the CPU.",
        advanced=True,
    )
    cache: str | None = setting(None, "Folder of the kept grids; None: the user's own cache.", advanced=True)
    views: int = setting(
        1,
        "Grids kept of each picture: as it is, mirrored, then random crops.",
        at_least=1,
        largest=1000,
        advanced=True,
    )
    val_beam: int = setting(
        1,
        "Beam width of the captions that an evaluation scores; 1 is greedy.",
        at_least=1,
        largest=1000,
        advanced=True,
    )
    val_most: int | None = setting(
        None, "Evaluate at most so many images of the validation split.", at_least=1, advanced=True
    )
    n_train: int = setting(
        8000, "Scenes to train on, where the set is embedded.", at_least=0, largest=10_000_000, advanced=True
    )
    n_val: int = setting(
        200,
        "Scenes to evaluate on, where the set is embedded.",
        at_least=0,
        largest=10_000_000,
        advanced=True,
    )
    n_test: int = setting(
        1000, "Scenes kept aside, where the set is embedded.", at_least=0, largest=10_000_000, advanced=True
    )
    data_seed: int = setting(
        0, "Draws the embedded set, and splits where the data states none.", advanced=True
    )
    augment: Augment = setting(Augment(), "How pictures are changed in training.", advanced=True)  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        check(self)
        if self.augment.mixes:
            raise ValueError("pictures with captions can't be mixed: mixup and cutmix must be 0")


def open_captions(data: CaptionData, model: Mapping[str, Any] | None = None) -> CaptionSet:  # noqa: ARG001
    """The set that the settings name; how many images it lacks is logged.

    Args:
        data: Which images.
        model: Settings of the model; images are read as they are and cropped later, so none matters.
    """
    if data.source == SCENES:
        return scenes_set(data.n_train, data.n_val, data.n_test, data.data_seed)
    captions = read_captions(Path(data.source), seed=data.data_seed)
    if isinstance(captions, CaptionShards):
        warn_of_problems(captions)
        return captions
    missing = [repr(problem.name) for problem in captions.problems if problem.kind == "missing"]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        logger.warning(
            "images that are named and not in %r, or there more than once, are left out (%d): %s%s",
            data.source,
            len(missing),
            ", ".join(missing[:_NAMED]),
            more,
        )
    return captions


def token_rows(tokenizer: Tokenizer) -> dict[str, list[str]]:
    """The parameters of a captioner that have a row per token."""
    names = ("decoder.words.weight", "decoder.output.weight", "decoder.bias")
    return dict.fromkeys(names, tokenizer.words(range(len(tokenizer))))


def learn_tokens(captions: CaptionSet, data: CaptionData) -> Tokenizer:
    """A tokenizer learned from the train split, as the settings say."""
    kind: Literal["word", "bpe"] = "bpe" if data.tokens == "bpe" else "word"
    return Tokenizer.train(
        captions.lines("train"),
        kind=kind,
        vocab_size=data.vocabulary,
        min_count=data.min_count,
        lowercase=True,
    )
