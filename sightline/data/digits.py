"""scikit-learn's handwritten digits: 1,797 real ones of 8 x 8 pixels, embedded in the library, no download.

They are split into folds of like class shares, shuffled by a seed: one fold is the test, and of the rest a
share is held out to choose by; where that share is 0, the test stands for it.
"""

import numpy as np
import torch

from sightline.data.class_set import ClassSet, LabelledImages, hold_out

__all__ = ["digits"]

_RAREST = 174  # eights


def digits(*, fold: int = 0, folds: int = 5, seed: int = 0, val: float = 0.05) -> ClassSet:
    """The digits, the ``fold``-th of ``folds`` equal parts as the test.

    Example:
        >>> found = digits(fold=0)
        >>> [len(found.split(name)) for name in ("train", "val", "test")]
        [1367, 70, 360]
    """
    if folds < 2:
        raise ValueError(f"there must be at least 2 folds, got folds={folds}")
    if folds > _RAREST:
        raise ValueError(f"each fold has some of each digit, {_RAREST} of the rarest, got folds={folds}")
    if not 0 <= fold < folds:
        raise ValueError(f"fold must be in 0..{folds - 1}, got {fold}; there are {folds} folds")
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # noqa: PLC0415
        from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as missing:
        raise ImportError(
            "the digits are in scikit-learn, which is not installed; pip install 'sightline[train]'",
            name="sklearn",
        ) from missing
    loaded = load_digits()
    images = torch.from_numpy(np.rint(loaded.images * (255 / 16)).astype(np.uint8))[:, None]
    labels = torch.from_numpy(loaded.target.astype(np.int64))
    whole = LabelledImages(images, labels, tuple(f"digits/{i}" for i in range(len(labels))))
    parts = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(images, whole.labels))
    train, test = (torch.from_numpy(x) for x in parts[fold])
    names, rest, tested = tuple(map(str, loaded.target_names)), whole.select(train), whole.select(test)
    rule = f"the test is fold {fold} of {folds} by seed {seed}; {val:g} of the rest is val"
    if val:
        held = hold_out(rest.labels, val, seed)
        chosen, rest = rest.select(held.nonzero().flatten()), rest.select((~held).nonzero().flatten())
    return ClassSet(
        names,
        {"train": rest, "val": chosen if val else tested, "test": tested},
        stand_ins={} if val else {"val": "test"},
        source="digits",
        layout="digits",
        rule=rule,
    )
