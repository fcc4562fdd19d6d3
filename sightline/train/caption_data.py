"""What a captioner is trained on: the settings, the set they name, and the pictures on the device."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from sightline.data.augment import Augment, as_floats, augmented
from sightline.data.captions import Captioned, CaptionSet, read_captions
from sightline.data.draws import below
from sightline.data.features import Features, keep_features
from sightline.data.images import BrokenImage
from sightline.data.tokens import Tokenizer
from sightline.models.caption_encoders import network, pretrained_grid
from sightline.settings import setting
from sightline.shapes import Float, Int, Shaped, did_you_mean

__all__ = [
    "CaptionData",
    "Grids",
    "Pictures",
    "Pixels",
    "Streamed",
    "kept_grids",
    "learned_tokens",
    "open_captions",
    "read_all",
]

SCENES = "scenes"
_VIEW = 7  # the stream of draws that picks a view


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionData:
    """Settings of the data: the ``data`` of a caption run's config.json."""

    source: str = setting(SCENES, "A folder or a zip of images with captions, or 'scenes', the embedded set.")
    tokens: str = setting("word", "What a token is: word or bpe.")
    vocabulary: int = setting(10_000, "Most tokens learned from the train split.")
    min_count: int = setting(1, "A word seen less often is unknown.")
    captions: int | None = setting(
        None, "Captions of an image that a step learns from, drawn anew each epoch; None: all."
    )
    word_dropout: float = setting(0.0, "Share of the words read that are hidden from the decoder.")
    cell_dropout: float = setting(0.0, "Share of the cells of a frozen encoder's grid that are hidden.")
    consistency: float = setting(
        0.0, "Weight of the wish that two passes with other dropout agree (R-Drop); it doubles the work."
    )
    cached: bool | None = setting(
        None, "Keep a frozen encoder's grids instead of seeing each picture anew; None: only on the CPU."
    )
    cache: str | None = setting(None, "Folder of the kept grids; None: the user's own cache.")
    views: int = setting(1, "Grids kept of each picture: as it is, mirrored, then random crops.")
    val_beam: int = setting(1, "Beam width of the captions that an evaluation scores; 1 is greedy.")
    val_most: int | None = setting(None, "Evaluate at most so many images of the validation split.")
    n_train: int = setting(8000, "Scenes to train on, where the set is embedded.")
    n_val: int = setting(200, "Scenes to evaluate on, where the set is embedded.")
    n_test: int = setting(1000, "Scenes kept aside, where the set is embedded.")
    data_seed: int = setting(0, "Draws the embedded set, and splits where the data states none.")
    augment: Augment = setting(Augment(), "How pictures are changed in training.")  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if self.tokens not in {"word", "bpe"}:
            raise ValueError(f"unknown tokens {self.tokens!r}, {did_you_mean(self.tokens, ['word', 'bpe'])}")
        for name in ("vocabulary", "min_count", "captions", "views", "val_beam", "val_most"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("word_dropout", "cell_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if not self.consistency >= 0:
            raise ValueError(f"consistency must be at least 0, got {self.consistency}")
        if self.augment.mixes:
            raise ValueError("pictures with captions can't be mixed: mixup and cutmix must be 0")


def open_captions(data: CaptionData) -> CaptionSet:
    """The set that the settings name."""
    if data.source == SCENES:
        from sightline.data.scenes import scenes_set  # noqa: PLC0415

        return scenes_set(data.n_train, data.n_val, data.n_test, data.data_seed)
    return read_captions(Path(data.source), seed=data.data_seed)


def learned_tokens(captions: CaptionSet, data: CaptionData) -> Tokenizer:
    """A tokenizer learned from the train split, as the settings say."""
    kind: Literal["word", "bpe"] = "bpe" if data.tokens == "bpe" else "word"
    return Tokenizer.train(
        captions.lines("train"),
        kind=kind,
        vocab_size=data.vocabulary,
        min_count=data.min_count,
        lowercase=True,
    )


class Pictures(Protocol):
    """The pictures of a split, wherever they are kept."""

    def load(self, indices: Sequence[int], epoch: int) -> Tensor | None:
        """What has to be read for a batch, on the CPU; None where all is on the device."""
        ...

    def take(
        self, loaded: Tensor | None, indices: Int[Tensor, " B"], epoch: Int[Tensor, ""] | None
    ) -> Tensor:
        """What the model takes for a batch, on the device; without an epoch nothing is augmented."""
        ...

    def to(self, device: torch.device) -> None:
        """Move to the device."""
        ...


class Pixels:
    """All pictures as bytes on the device, augmented there."""

    def __init__(self, images: Shaped[Tensor, "n 3 h w"], augment: Augment, seed: int) -> None:
        self.images = images
        self._augment = augment
        self._seed = seed

    def load(self, indices: Sequence[int], epoch: int) -> None:
        """Nothing: all is there."""

    def take(
        self, loaded: Tensor | None, indices: Int[Tensor, " B"], epoch: Int[Tensor, ""] | None
    ) -> Float[Tensor, "B 3 h w"]:
        """Floats from -1 to 1."""
        images = self.images[indices] if loaded is None else loaded
        if epoch is None:
            return as_floats(images)
        return augmented(images, self._augment, seed=self._seed, epoch=epoch, indices=indices)

    def to(self, device: torch.device) -> None:
        """Move to the device."""
        self.images = self.images.to(device)


class Streamed(Pixels):
    """Pictures read anew for every batch, where there are too many to keep."""

    def __init__(
        self, captions: CaptionSet, records: Sequence[Captioned], size: int, augment: Augment, seed: int
    ) -> None:
        super().__init__(torch.empty(0, 3, size, size, dtype=torch.uint8), augment, seed)
        self._captions, self._records, self._size = captions, records, size

    def load(self, indices: Sequence[int], epoch: int) -> Tensor:  # type: ignore[override]  # noqa: ARG002
        """Read them; a broken one is named, and black."""
        images = torch.zeros(len(indices), 3, self._size, self._size, dtype=torch.uint8)
        for row, i in enumerate(indices):
            try:
                images[row] = self._captions.open(self._records[i], size=self._size)
            except BrokenImage as problem:
                sys.stderr.write(f"{problem}; it is black in this epoch\n")
        return images

    def to(self, device: torch.device) -> None:
        """Nothing is kept."""


class Grids:
    """The grids of a frozen encoder, one or more views of each picture, the first without augmentation.

    Args:
        features: The grids on disk, without broken pictures.
        rows: Their number in ``features``, for each picture.
        seed: Of the run; draws the views.
        resident: Whether to keep all on the device, or to read each batch from the disk's cache.
    """

    def __init__(self, features: Features, rows: Sequence[int], seed: int, *, resident: bool) -> None:
        self._features, self._rows, self._seed = features, rows, seed
        self._grids: Float[Tensor, "n views P C"] | None = None
        if resident:
            views = [features.whole(view)[list(rows)] for view in range(features.views)]
            self._grids = torch.stack(views, dim=1)

    def load(self, indices: Sequence[int], epoch: int) -> Float[Tensor, "B P C"] | None:
        """One view of each, another one each epoch; None where all is on the device."""
        if self._grids is not None:
            return None
        views = below(self._features.views, self._seed, epoch, torch.tensor(indices), stream=_VIEW)
        return self._features.grids([self._rows[i] for i in indices], views.tolist())

    def take(
        self, loaded: Tensor | None, indices: Int[Tensor, " B"], epoch: Int[Tensor, ""] | None
    ) -> Float[Tensor, "B P C"]:
        """One view of each on the device; without an epoch the first."""
        if self._grids is None:
            if epoch is not None and loaded is not None:
                return loaded
            return self._features.grids([self._rows[i] for i in indices.tolist()]).to(indices.device)
        if epoch is None or self._grids.size(1) == 1:
            return self._grids[indices, 0]
        view = below(self._grids.size(1), self._seed, epoch, indices, stream=_VIEW)
        return self._grids[indices, view]

    def to(self, device: torch.device) -> None:
        """Move to the device what is in memory."""
        if self._grids is not None:
            self._grids = self._grids.to(device)


def kept_grids(
    captions: CaptionSet,
    records: Sequence[Captioned],
    data: CaptionData,
    *,
    encoder: str,
    size: int,
    views: int,
    seed: int,
    device: torch.device,
    resident_bytes: int,
) -> tuple[Grids, list[Captioned]]:
    """The grids of a frozen encoder, from disk or computed now; broken pictures are named and left out."""
    net = network(encoder, size).to(device)
    shown = sys.stderr.isatty()

    def tell(done: int, total: int) -> None:
        if shown:
            sys.stderr.write(f"\rgrids of {encoder}: {done} of {total}" + ("\n" if done == total else ""))

    features = keep_features(
        captions,
        records,
        encode=lambda images: pretrained_grid(net, images, size),
        signature=f"{encoder} {size}",
        size=size,
        views=views,
        folder=data.cache,
        device=device,
        progress=tell,
    )
    for problem in features.broken.values():
        sys.stderr.write(f"{problem}; it is left out\n")
    rows = [i for i in range(len(records)) if i not in features.broken]
    if not rows:
        raise ValueError(f"not one of {len(records)} images of {captions.source!r} could be read")
    n_bytes = len(rows) * views * features.shape[0] * features.shape[1] * 2
    grids = Grids(features, rows, seed, resident=n_bytes <= resident_bytes)
    return grids, [records[i] for i in rows]


def read_all(
    captions: CaptionSet, records: Sequence[Captioned], size: int, *, threads: int = 2
) -> tuple[Shaped[Tensor, "n 3 size size"], list[Captioned]]:
    """Read all pictures; those that are broken are named on standard error and left out.

    Raises:
        ValueError: If not one could be read.
    """

    def opened(record: Captioned) -> Tensor | None:
        try:
            return captions.open(record, size=size)
        except BrokenImage as problem:
            sys.stderr.write(f"{problem}; it is left out\n")
            return None

    images = torch.empty(len(records), 3, size, size, dtype=torch.uint8)
    good: list[Captioned] = []
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for record, image in zip(records, pool.map(opened, records), strict=True):
            if image is not None:
                images[len(good)] = image
                good.append(record)
    if not good:
        raise ValueError(f"not one of {len(records)} images of {captions.source!r} could be read")
    return images[: len(good)], good
