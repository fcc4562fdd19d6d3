"""What is served: a run, or a Hugging Face folder, asked one input at a time."""

import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from sightline.serve.limits import Limits
from sightline.serve.results import Result
from sightline.serve.uploads import decode_image
from sightline.shapes import Shaped
from sightline.show.explorer import Answers
from sightline.tasks.hugging_face import FolderModel, is_model_folder, name_of, open_folder
from sightline.tasks.prediction import Example, Prediction
from sightline.tasks.run import Run, is_run, open_run

__all__ = ["ExampleInput", "ServedFolder", "ServedModel", "ServedRun", "open_model"]

_N_EXAMPLES = 8
_SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "The trophy does not fit in the suitcase because it is too big.",
)
_SPLITS = ("test", "val", "train")
_FEW = {"n_train": 1, "n_val": 1, "n_test": _N_EXAMPLES}  # an embedded set is drawn as far as it is asked for


@dataclass(frozen=True, kw_only=True)
class ExampleInput:
    """An input to try a model on.

    Attributes:
        label: What to call it.
        image: A PNG file; None for a text.
    """

    label: str
    image: bytes | None = None


class ServedModel(Protocol):
    """A model as the page asks it."""

    @property
    def folder(self) -> Path:
        """Where it lies."""

    @property
    def title(self) -> str:
        """What to call it."""

    @property
    def kind(self) -> str:
        """What it does: caption, translate, classify, or only read."""

    @property
    def takes(self) -> Literal["image", "text"]:
        """What it reads."""

    def look(self, given: bytes | str, limits: Limits) -> Result:
        """What it makes of an upload or a text.

        Raises:
            ValueError: In a sentence, if it can't read it.
        """

    def examples(self) -> Sequence[ExampleInput]:
        """Inputs to try it on; none where there are none."""


@dataclass(frozen=True, eq=False)
class ServedRun:
    """A run that ``sightline train`` wrote."""

    run: Run

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.run.folder

    @property
    def title(self) -> str:
        """The name of its folder."""
        return self.run.folder.absolute().name

    @property
    def kind(self) -> str:
        """What it does: caption, translate, classify."""
        return self.run.kind

    @property
    def takes(self) -> Literal["image", "text"]:
        """What it reads."""
        return "image" if self.run.task.input_is_file else "text"

    def look(self, given: bytes | str, limits: Limits) -> Result:
        """Predict, with every attention of the model."""
        size = getattr(getattr(self.run.model, "config", None), "image_size", None)
        value = decode_image(given, limits, size) if isinstance(given, bytes) else given
        predictor = self.run.predictor
        with torch.no_grad():
            (example,) = predictor.read([value])
            if isinstance(given, str) and len(example.value) > limits.tokens:
                raise ValueError(
                    f"a text may have {limits.tokens:,} tokens, got {len(example.value):,}; send a part of it"
                )
            (prediction,) = predictor.predict([example], self._options(), attention=True)
        return _result(self.run, example, prediction)

    def examples(self) -> Sequence[ExampleInput]:
        """Of its data, what was kept aside; where the data is gone, what lies with the run."""
        try:
            return list(self._from_data())
        except (OSError, ValueError):
            saved = [*sorted((self.run.folder / "examples").glob("*.png")), self.run.folder / "sample.png"]
            found = [path for path in saved if path.is_file()] if self.takes == "image" else []
            return [ExampleInput(label=path.stem, image=path.read_bytes()) for path in found[:_N_EXAMPLES]]

    def _from_data(self) -> Iterator[ExampleInput]:
        fields = {field.name for field in dataclasses.fields(self.run.task.data_config)}
        own = self.run.config.get("data", {}).get(self.run.task.source_field)
        few: Mapping[str, Any] = _FEW if own is None or own in self.run.task.embedded else {}
        dataset = self.run.dataset(**{name: n for name, n in few.items() if name in fields})
        split = next(name for name in _SPLITS if dataset.splits().get(name))
        for i, example in enumerate(self.run.predictor.examples(dataset, split, _N_EXAMPLES)):
            if self.takes == "image":
                yield ExampleInput(label=f"example {i + 1}", image=_png(example.value))
            else:
                yield ExampleInput(label=str(example.input))

    def _options(self) -> Any:
        """A prediction with a few alternatives, where the task has them."""
        kind = self.run.task.predict_options
        known = {field.name for field in dataclasses.fields(kind)}
        several = {name: n for name, n in (("n_best", 5), ("top", 5)) if name in known}
        return kind(**{**self.run.task.look_options, **several})


@dataclass(frozen=True, eq=False)
class ServedFolder:
    """A model that Hugging Face's libraries wrote: it reads, and predicts nothing here."""

    model: FolderModel

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.model.folder

    @property
    def kind(self) -> str:
        """It reads."""
        return "read"

    @property
    def title(self) -> str:
        """What to call it."""
        return name_of(self.model.folder)

    @property
    def takes(self) -> Literal["image", "text"]:
        """What it reads."""
        return "image" if self.model.reads_images else "text"

    def look(self, given: bytes | str, limits: Limits) -> Result:
        """Watch it read."""
        value = decode_image(given, limits, None) if isinstance(given, bytes) else given
        watched = self.model.watch(value, lambda _: True)
        if not watched.seen:
            raise ValueError(watched.seen.explanation())
        tokens = {name: (watched.queries[name], watched.keys[name]) for name in watched.keys}
        answers = Answers(watched.seen, tokens=tokens, image=watched.grid)
        return Result(answers=answers, nbytes=_nbytes(answers))

    def examples(self) -> Sequence[ExampleInput]:
        """A sentence or two."""
        return [] if self.takes == "image" else [ExampleInput(label=text) for text in _SENTENCES]


def open_model(folder: Path, device: str | None = None) -> ServedModel:
    """Open what is to be served.

    Raises:
        ValueError: In a sentence, if it can't be.
    """
    if is_run(folder):
        return ServedRun(open_run(folder, device))
    if not folder.is_dir():
        kind = "is a file, not a folder" if folder.exists() else "does not exist"
        raise ValueError(
            f"serve needs a folder with a model, {str(folder)!r} {kind}; `sightline demo` trains one"
        )
    if not is_model_folder(folder):
        raise ValueError(
            f"there is no config.json in {str(folder)!r}; serve takes a run that `sightline train` wrote, or "
            "a Hugging Face folder"
        )
    if device is not None:
        raise ValueError(
            f"--device is for runs that `sightline train` wrote, got {device} for {str(folder)!r}"
        )
    return ServedFolder(open_folder(folder))


def _result(run: Run, example: Example, prediction: Prediction) -> Result:
    """A prediction, with all that its model attended to: first where the words of the output looked."""
    attention = prediction.attention
    if attention is None or not attention.queries:
        raise ValueError("the model wrote nothing for this input, there is nothing to show; train it longer")
    layers = run.predictor.layers(example, prediction)
    answers = Answers(prediction, layers=layers, steps=run.predictor.steps(example, prediction))
    return Result(
        answers=answers,
        nbytes=_nbytes(answers),
        text=prediction.text,
        score=prediction.score,
        alternatives=tuple((text, score) for text, score in prediction.alternatives),
    )


def _nbytes(answers: Answers) -> int:
    return sum(layer.sight.nbytes for layer in answers.layers)


def _png(image: Shaped[Tensor, "C h w"]) -> bytes:
    from PIL import Image  # noqa: PLC0415

    file = io.BytesIO()
    pixels = image[0] if image.size(0) == 1 else image.permute(1, 2, 0)
    Image.fromarray(pixels.contiguous().numpy()).save(file, format="PNG")
    return file.getvalue()
