"""A trained captioner: what it writes about images, what it looked at, and how good that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sightline.data.captions import CaptionSet
from sightline.data.images import open_image
from sightline.data.scenes import SceneImages
from sightline.data.tokens import Tokenizer
from sightline.evaluate.captions import score_captions
from sightline.evaluate.scenes import scene_scores
from sightline.evaluate.scores import Scores
from sightline.look.recording import Recording
from sightline.messages import listing
from sightline.models.captioner import Captioner
from sightline.settings import check, setting
from sightline.show.explorer.steps import Step
from sightline.show.walk import AttentionTrace
from sightline.tasks.attention import Attention, Grid
from sightline.tasks.caption.attention import (
    CaptionAttention,
    all_layers,
    caption_steps,
    layer_attentions,
    watch_captions,
    word_attention,
)
from sightline.tasks.caption.data import token_rows
from sightline.tasks.caption.generate import Caption, SamplingConfig, generate_captions
from sightline.tasks.caption.pixels import read_images
from sightline.tasks.caption.prepare import TOKENIZER
from sightline.tasks.caption.walk import trace_word
from sightline.tasks.prediction import Alternative, Example, Prediction
from sightline.tasks.predictor import Predictor

__all__ = [
    "CaptionEvaluateOptions",
    "CaptionOptions",
    "CaptionPredictor",
    "look_json",
    "open_captioner",
    "prediction_lines",
    "predictions_json",
]

_BEAM = 5
_READ = 64  # images read together
_SCENE_SCORES = ("attribute_accuracy", "grounding", "grounding_chance")


@dataclass(frozen=True, kw_only=True)
class CaptionOptions:
    """Options of a prediction: captions are searched for; with any option of sampling they are sampled."""

    beam: int | None = setting(
        None, f"Width of the search, {_BEAM} by default; 1 is greedy.", at_least=1, largest=1000
    )
    n_best: int = setting(1, "Captions of each image, best first.", at_least=1, largest=1000)
    temperature: float | None = setting(
        None, "Sample captions: below 1 nearer to the likeliest, above 1 more varied.", above=0
    )
    top_k: int | None = setting(None, "Sample each token among the so many likeliest only.", at_least=1)
    top_p: float | None = setting(
        None,
        "Sample each token among the likeliest that together reach this probability.",
        above=0,
        at_most=1,
    )
    seed: int | None = setting(None, "Fixes what is sampled; 0 by default.")

    def __post_init__(self) -> None:
        check(self)
        sampling = self._sampling_options
        if sampling and self.beam is not None:
            names = listing([f"{name}={value}" for name, value in sampling.items()])
            raise ValueError(
                f"captions are searched for or sampled, got beam={self.beam} and {names}; leave one out"
            )
        if not sampling and self.n_best > self.width:
            raise ValueError(
                f"n_best must be between 1 and beam {self.width}, got {self.n_best}; widen the beam"
            )
        _ = self.sampling  # refuses what it does not take

    @property
    def width(self) -> int:
        """Of the search."""
        return _BEAM if self.beam is None else self.beam

    @cached_property
    def sampling(self) -> SamplingConfig | None:
        """How captions are sampled; None where none of its options was given."""
        return SamplingConfig(**self._sampling_options) if self._sampling_options else None

    def generator(self, device: torch.device) -> torch.Generator | None:
        """The same one for all batches, so that no two of them sample alike; None for a search."""
        if self.sampling is None:
            return None
        return self._generators.setdefault(device, self.sampling.generator(device))

    @cached_property
    def _generators(self) -> dict[torch.device, torch.Generator]:
        return {}

    @property
    def _sampling_options(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "seed")}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionEvaluateOptions:
    """Options of an evaluation."""

    beam: int = setting(_BEAM, "Width of the search; 1 is greedy.", at_least=1, largest=1000)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class CaptionPredictor(Predictor):
    """A captioner with its tokenizer."""

    model: Captioner
    tokenizer: Tokenizer

    def row_names(self) -> Mapping[str, Sequence[str]]:
        """The words, or the pieces of them."""
        return token_rows(self.tokenizer)

    def read(self, inputs: Sequence[Any]) -> list[Example]:
        """Images from files or their pixels, cropped to squares as the model sees them."""
        size = self.model.config.image_size
        images = [open_image(given, size) for given in inputs]
        return [
            Example(input=given, value=image.expand(3, -1, -1))
            for given, image in zip(inputs, images, strict=True)
        ]

    def predict(self, examples: Sequence[Example], options: Any, *, attention: bool) -> list[Prediction]:
        """Caption a batch of images."""
        if isinstance(options, CaptionEvaluateOptions):
            options = CaptionOptions(beam=options.beam)
        captions = self._captions(examples, options, attention=attention)
        return [
            Prediction(
                input=example.input,
                text=ranked[0].text,
                score=ranked[0].score,
                alternatives=tuple(Alternative(caption.text, caption.score) for caption in ranked),
                attention=word_attention(self.model, example.value, ranked[0], example.truth)
                if attention
                else None,
            )
            for example, ranked in zip(examples, captions, strict=True)
        ]

    def watch(self, examples: Sequence[Example]) -> Recording:
        """Every attention of the model while it writes its captions of some images.

        The recurrent decoder computes its weights by hand: only its encoder is seen here, and
        ``prediction.attention`` has the decoder's weights.
        """
        captions = self._captions(examples, CaptionOptions(), attention=False)
        images = torch.stack([example.value for example in examples])
        return watch_captions(self.model, images, [ranked[0].ids for ranked in captions])

    def layers(self, example: Example, prediction: Prediction) -> Mapping[str, Attention]:
        """Every attention of the model while it wrote a caption, token by token."""
        return layer_attentions(self.model, self.tokenizer, example.value, self._ids(prediction))

    def steps(self, example: Example, prediction: Prediction) -> Sequence[Step]:
        """The words of a caption, one step a token."""
        return caption_steps(self.model, self.tokenizer, example.value, self._ids(prediction))

    def walk(self, example: Example, prediction: Prediction, word: int) -> AttentionTrace | None:
        """How one head came to a word; None for pieces of words, and for a recurrent decoder."""
        return trace_word(self.model, example.value, self._ids(prediction), prediction, word)

    def _ids(self, prediction: Prediction) -> Sequence[int]:
        """The tokens of a caption, without BOS and EOS."""
        attention = prediction.attention
        if isinstance(attention, CaptionAttention):
            return attention.ids
        return self.tokenizer.encode(prediction.text)

    def needs_attention(self, dataset: CaptionSet) -> bool:
        """Of drawn scenes it is known what the model should look at."""
        return isinstance(dataset.images, SceneImages)

    def examples(self, dataset: CaptionSet, split: str, limit: int | None) -> Iterator[Example]:
        """The images of a split with their captions; broken ones are logged and left out."""
        records, drawn = dataset.split(split)[:limit], dataset.images
        for first in range(0, len(records), _READ):
            images, readable = read_images(
                dataset, records[first : first + _READ], self.model.config.image_size
            )
            for image, record in zip(images, readable, strict=True):
                scene = drawn.scene(record.name) if isinstance(drawn, SceneImages) else None
                yield Example(input=record.name, value=image, references=record.captions, truth=scene)

    def score(
        self,
        dataset: CaptionSet,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        options: CaptionEvaluateOptions,
    ) -> Scores:
        """BLEU, ROUGE-L and CIDEr; of drawn scenes also whether captions are true and grounded."""
        scores = score_captions([p.text for p in predictions], [example.references for example in examples])
        total = dict(scores.total)
        if self.needs_attention(dataset):
            attentions = [p.attention for p in predictions if p.attention is not None]
            scenes = scene_scores(
                [attention.queries for attention in attentions],
                [attention.summary[:, None] for attention in attentions],
                [example.truth for example in examples],
                self.model.grid,
            )
            total |= {name: scenes.total[name] for name in _SCENE_SCORES}
        return Scores(
            total=total,
            each={"cider": scores.each["cider"]},
            signatures=scores.signatures,
            about=f", beam {options.beam}",
        )

    def _captions(
        self, examples: Sequence[Example], options: CaptionOptions, *, attention: bool
    ) -> list[list[Caption]]:
        return list(
            generate_captions(
                self.model,
                self.tokenizer,
                torch.stack([example.value for example in examples]),
                beam=options.width,
                n_best=options.n_best,
                sampling=options.sampling,
                generator=options.generator(next(self.model.parameters()).device),
                look=all_layers(self.model) if attention else False,
                batch_size=len(examples),
            )
        )


def open_captioner(
    folder: Path, _config: Mapping[str, Any], device: torch.device, *, force: bool = False
) -> CaptionPredictor:
    """Load the captioner of a run folder.

    Raises:
        ValueError: If a file in it is missing or damaged.
    """
    model = Captioner.load(folder, device, force=force)
    path = folder / TOKENIZER
    if not path.is_file():
        raise ValueError(f"there is no {TOKENIZER} in {str(folder)!r}; was the run copied whole?")
    tokenizer = Tokenizer.load(path)
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(
            f"the tokenizer in {str(folder)!r} has {len(tokenizer)} tokens and its model "
            f"{model.config.vocab_size}; the two files belong to different runs"
        )
    return CaptionPredictor(model, tokenizer)


def prediction_lines(prediction: Prediction) -> list[str]:
    """``path: caption``; of several captions, each with its score."""
    several = len(prediction.alternatives) > 1
    return [
        f"{prediction.input}: {text}" + (f" ({score:.3f})" if several else "")
        for text, score in prediction.alternatives
    ]


def predictions_json(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """What ``caption --json`` prints."""
    rows = [
        {
            "image": str(p.input),
            "caption": p.text,
            "n_best": [{"caption": text, "score": score} for text, score in p.alternatives],
        }
        for p in predictions
    ]
    return {"captions": rows}


def look_json(prediction: Prediction, layers: Mapping[str, Attention]) -> dict[str, Any]:
    """What ``look --json`` prints of a captioner: the heads of its summary, or of the layer that was chosen.

    Layers that were chosen by their module's name follow under ``layers``, token by token.
    """
    attention = prediction.attention
    assert isinstance(attention, CaptionAttention)  # noqa: S101 - a look asks for it
    assert isinstance(attention.keys, Grid)  # noqa: S101 - words look at the image
    chosen = next((layer for layer in layers.values() if layer.keys is attention.keys), None)
    weights = attention.weights[list(attention.shown)] if chosen is None else chosen.weights
    named = {} if chosen is not None or len(layers) == attention.n_attentions else layers
    return {
        "image": str(prediction.input),
        "caption": prediction.text,
        "words": list(attention.queries),
        "grid": [attention.keys.rows, attention.keys.columns],
        "weights": weights.flatten(0, 1).transpose(0, 1).tolist(),  # words x heads x patches
        **({"layers": {name: _plain(layer) for name, layer in named.items()}} if named else {}),
    }


def _plain(attention: Attention) -> dict[str, Any]:
    """Heads x queries x keys, with the tokens; cells of the grid go row by row."""
    keys = None if isinstance(attention.keys, Grid) else list(attention.keys)
    return {"queries": list(attention.queries), "keys": keys, "weights": attention.weights[0].tolist()}
