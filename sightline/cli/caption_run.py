"""A caption run, opened: its model, its tokenizer, the data it was trained on; and pictures to be told."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from sightline.cli.runs import kind_in, settings_in
from sightline.data.captions import CaptionSet
from sightline.data.images import read_image
from sightline.data.tokens import Tokenizer
from sightline.evaluate.said import Said
from sightline.models.captioner import Captioner
from sightline.settings import from_json
from sightline.shapes import Shaped
from sightline.show.told import Box, Told
from sightline.train.caption_data import SCENES, CaptionData, open_captions

__all__ = ["CaptionRun", "open_run", "read_pictures", "told"]


@dataclass(frozen=True)
class CaptionRun:
    """A trained captioner with what belongs to it."""

    folder: Path
    model: Captioner
    tokenizer: Tokenizer
    data: CaptionData

    @property
    def size(self) -> int:
        """Side of the pictures that the model sees."""
        return int(self.model.config.image_size)

    def captions(self, source: str | None = None) -> CaptionSet:
        """The data of the run, or another set read the same way."""
        data = self.data if source is None else replace(self.data, source=source)
        if data.source != SCENES and not Path(data.source).exists():
            raise ValueError(
                f"the data of {str(self.folder)!r} was {data.source!r}, which is not there any more; "
                "say where it is with --data"
                if source is None
                else f"--data must be a folder, a zip or {SCENES!r}, {source!r} does not exist"
            )
        return open_captions(data)


def open_run(folder: Path, device: torch.device) -> CaptionRun:
    """Load a run.

    Raises:
        ValueError: If the folder is no caption run, or a file in it is missing or damaged; in a sentence.
    """
    kind_in(folder, "caption")
    model = Captioner.load(folder, device)
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"there is no tokenizer.json in {str(folder)!r}; was the run copied whole?")
    tokenizer = Tokenizer.load(path)
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(
            f"the tokenizer in {str(folder)!r} has {len(tokenizer)} tokens and its model "
            f"{model.config.vocab_size}; the two files belong to different runs"
        )
    data = from_json(CaptionData, settings_in(folder, "data"), where=str(folder / "config.json"))
    return CaptionRun(folder, model, tokenizer, data)


def read_pictures(paths: Sequence[Path], size: int) -> Shaped[Tensor, "n 3 size size"]:
    """Pictures from files, cropped to squares as the model sees them; a sentence for the first that fails."""
    for path in paths:
        if path.is_dir():
            raise ValueError(f"an image is a file, {str(path)!r} is a folder; try {path / '*'}")
    return torch.stack([read_image(path, size=size) for path in paths])


def told(
    run: CaptionRun,
    image: Shaped[Tensor, "3 h w"],
    said: Said,
    *,
    name: str = "",
    references: Sequence[str] = (),
    score: str = "",
    boxes: dict[int, Box] | None = None,
) -> Told:
    """What was said of a picture, ready to be drawn."""
    assert said.weights is not None  # noqa: S101  whoever draws has asked to look
    return Told(
        image=image,
        words=said.words,
        text=said.text,
        weights=said.weights,
        grid=run.model.grid,
        name=name,
        references=references,
        score=score,
        boxes=boxes or {},
    )
