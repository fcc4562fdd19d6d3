"""What a classifier learns from: settings of the data, and the set they name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sightline.data.augment import Augment
from sightline.data.class_set import ClassSet
from sightline.data.classes import read_classes
from sightline.data.dataset import Deal, deal_setting
from sightline.data.digits import digits
from sightline.messages import logger
from sightline.settings import check, setting

__all__ = ["DIGITS", "ClassifyData", "class_rows", "open_classes"]

DIGITS = "digits"
_NAMED = 5  # broken files that are named one by one


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyData:
    """Which images, and how they are split."""

    source: str = setting(DIGITS, "A folder or zip with one subfolder per class, an .npz, or 'digits'.")
    folds: int = setting(
        5, "Of the digits: equal parts, one of which is the test.", at_least=2, largest=1000, advanced=True
    )
    fold: int = setting(0, "Of the digits: which of the folds is the test.", at_least=0, advanced=True)
    val: float = setting(
        0.1,
        "Share of the training images held out, to choose by; with 0 the test stands for them.",
        at_least=0,
        below=1,
    )
    test: float = setting(
        0.1,
        "Share of the images held out as the test, where there is no split; with 0 val stands for it.",
        at_least=0,
        below=1,
    )
    split_seed: int = setting(0, "Fixes who is held out; the same for every training.", advanced=True)
    deal: str = deal_setting()
    views: int = setting(
        1,
        "Views of an image whose logits are averaged: 2 also looks at it mirrored.",
        at_least=1,
        at_most=2,
        advanced=True,
    )
    names: tuple[str, ...] = setting((), "Of the classes; found out.", advanced=True)
    counts: tuple[int, ...] = setting((), "Images of train, val and test; found out.", advanced=True)
    augment: Augment = setting(Augment(), "How training images are changed.", advanced=True)  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        check(self)


def class_rows(names: Sequence[str]) -> dict[str, Sequence[str]]:
    """The parameters of a Vision Transformer that have a row per class."""
    return dict.fromkeys(("head.weight", "head.bias"), names)


def open_classes(data: ClassifyData, model: Mapping[str, Any]) -> ClassSet:
    """The images of a source: an embedded set by its name, else a folder or a file.

    What could not be read is told, and which split stands for another.

    Args:
        data: Which images.
        model: Settings of the model; ``image_size`` and ``channels`` say how images are to be, where they
            are there.
    """
    size, channels = model.get("image_size"), model.get("channels")
    if data.source == DIGITS:
        if size not in {None, 8} or channels not in {None, 1}:
            raise ValueError(
                f"the digits have 8 x 8 pixels and 1 channel, got image_size={size} and "
                f"channels={channels}; --preset digits fits them"
            )
        images = digits(fold=data.fold, folds=data.folds, seed=data.split_seed, val=data.val)
    else:
        images = read_classes(
            data.source,
            image_size=size,
            channels=channels,
            seed=data.split_seed,
            val=data.val,
            test=data.test,
            deal=cast("Deal", data.deal),
        )
    broken = [problem.sentence for problem in images.problems]
    for sentence in broken[:_NAMED]:
        logger.warning("left out: %s", sentence)
    if len(broken) > _NAMED:
        logger.warning("left out: %d more files that can't be read", len(broken) - _NAMED)
    for split, other in images.stand_ins.items():
        logger.info("%r has no images of its own, those of %r stand for it", split, other)
    return images
