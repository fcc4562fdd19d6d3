"""A trained translator: sentences in another language, and which words were read for each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sightline.data.batches import pad
from sightline.data.dataset import find_split
from sightline.data.dates import DATES, SPLITS, DatePair, Dates, is_dates
from sightline.data.pair_set import PairSet
from sightline.data.pair_tokens import PairTokens
from sightline.data.tokens import BOS
from sightline.evaluate.scores import Scores
from sightline.evaluate.translation import alignment_accuracy, alignment_chance, score
from sightline.look.recording import Recording
from sightline.messages import logger
from sightline.models.run_folder import CONFIG
from sightline.models.translator import Translator, open_translator
from sightline.settings import check, from_json, setting
from sightline.show.explorer.steps import Step, steps_of
from sightline.tasks.attention import Attention, Grid
from sightline.tasks.prediction import Alternative, Example, Prediction
from sightline.tasks.predictor import Predictor
from sightline.tasks.translate.data import TranslateData, token_rows
from sightline.tasks.translate.generate import (
    AnyTranslator,
    Translation,
    generate_translations,
    length_limit,
)
from sightline.watch.watch import watch

__all__ = [
    "SentenceTranslator",
    "TranslateEvaluateOptions",
    "TranslateOptions",
    "look_json",
    "open_sentence_translator",
    "predictions_json",
]

_BEAM_HELP = "Width of the search; 1 is greedy."


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateOptions:
    """Options of a prediction."""

    beam: int = setting(5, _BEAM_HELP, at_least=1, largest=1000)
    unknown: bool = setting(False, "Read letters that training never saw as unknown.")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateEvaluateOptions:
    """Options of an evaluation; the languages are settings of the data."""

    beam: int = setting(5, _BEAM_HELP, at_least=1, largest=1000)
    source: str | None = setting(None, "What other data calls the language to read.")
    target: str | None = setting(None, "What other data calls the language to write.")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class SentenceTranslator(Predictor):
    """A translator with its tokenizers."""

    model: AnyTranslator
    tokens: PairTokens
    data: TranslateData

    def read(self, inputs: Sequence[Any]) -> list[Example]:
        """Sentences as token ids.

        Raises:
            ValueError: If one is empty, no text, or longer than the model reads.
        """
        examples = [Example(input=text, value=self._ids(text)) for text in inputs]
        self._note_lengths([len(example.value) for example in examples])
        return examples

    def predict(self, examples: Sequence[Example], options: Any, *, attention: bool) -> list[Prediction]:
        """Translate a batch of sentences.

        Raises:
            ValueError: If one has a letter that no token stands for; an evaluation reads it as unknown.
        """
        evaluated = isinstance(options, TranslateEvaluateOptions)
        if not evaluated and not options.unknown:
            for example in examples:
                self._check_letters(example.input)
        n_best = 1 if evaluated else options.beam
        translations = self._translate(examples, options.beam, n_best, attention=attention)
        return [
            Prediction(
                input=example.input,
                text=one.text,
                score=one.score,
                alternatives=tuple(Alternative(*hypothesis) for hypothesis in one.hypotheses),
                attention=None
                if one.weights is None
                else Attention(
                    weights=one.weights.float(),
                    queries=tuple(one.target_tokens),
                    keys=tuple(one.source_tokens),
                ),
            )
            for example, one in zip(examples, translations, strict=True)
        ]

    def watch(self, examples: Sequence[Example]) -> Recording:
        """Every attention of the model while it reads some sentences and their translations."""
        translations = self._translate(examples, TranslateOptions().beam, attention=False)
        target = [self._decoder_ids(one.target_tokens) for one in translations]
        return self._seen([example.value for example in examples], target)

    def layers(self, example: Example, prediction: Prediction) -> Mapping[str, Attention]:
        """Every attention of a Transformer while it reads and writes; a recurrent model has one.

        Step t of the decoder has read word t - 1 and writes word t.
        """
        if prediction.attention is None:
            raise ValueError("the attention of a prediction must be known; predict with attention=True")
        written, read = prediction.attention.queries, prediction.attention.keys
        assert not isinstance(read, Grid)  # noqa: S101 - a translator reads words
        if not isinstance(self.model, Translator):
            return {"attention": prediction.attention}
        ended = len(written) < length_limit(self.model, len(example.value))
        steps = (*written, "<eos>") if ended else written
        inputs = ("<bos>", *written)[: len(steps)]
        seen = self._seen([example.value], [self._decoder_ids(inputs[1:])])
        layers = {}
        for name in seen.names():
            sight = seen.calls(name)[0]
            if name.startswith("encoder"):
                queries, keys = read, read
            else:
                queries, keys = (steps, read) if name.endswith("multihead_attn") else (inputs, inputs)
            weights = sight.rows(list(range(sight.t))).cpu()  # (1, H, T, S)
            layers[name] = Attention(weights=weights.float(), queries=queries, keys=keys)
        return layers

    @torch.no_grad()
    def steps(self, example: Example, prediction: Prediction) -> Sequence[Step]:
        """The tokens of a translation, one a step."""
        assert prediction.attention is not None  # noqa: S101 - a look asks for it
        vocabulary, device = self.tokens.target.inner, next(self.model.parameters()).device
        read = self._decoder_ids(prediction.attention.queries)
        logits = self.model(pad([example.value]).to(device), pad([read]).to(device))[0]
        return steps_of(logits, read[1:], lambda token: vocabulary.id_to_token(token) or "")

    def row_names(self) -> Mapping[str, Sequence[str]]:
        """The tokens of both languages."""
        return token_rows(self.tokens)

    def needs_attention(self, dataset: PairSet) -> bool:
        """On dates: whether each digit looked at the word it comes from is a score."""
        return dataset.source == DATES

    def examples(self, dataset: PairSet, split: str, limit: int | None) -> Iterator[Example]:
        """The pairs of a split; all of them are checked before the first is translated."""
        pairs = dataset.split(split)[:limit]
        read = self.read([pair.source for pair in pairs])
        truths = self._dates(dataset, split) if dataset.source == DATES else [None] * len(pairs)
        for example, pair, truth in zip(read, pairs, truths, strict=False):
            yield replace(example, references=(pair.target,), truth=truth)

    def score(
        self, dataset: PairSet, examples: Sequence[Example], predictions: Sequence[Prediction], options: Any
    ) -> Scores:
        """BLEU and chrF; on dates also what is exactly right, and where the model looked."""
        scores = score([p.text for p in predictions], [example.references[0] for example in examples])
        total = dict(scores.total)
        about = (
            f", {dataset.source_language} to {dataset.target_language}, beam {options.beam}, "
            f"length_penalty {self.data.length_penalty:g}"
        )
        if dataset.source == DATES:
            dates = [example.truth for example in examples]
            offsets = [self.tokens.offsets(example.input) for example in examples]
            looked = [p.attention for p in predictions if p.attention is not None]
            total["alignment_accuracy"] = alignment_accuracy(
                [p.text for p in predictions],
                [attention.queries for attention in looked],
                [attention.summary for attention in looked],
                dates,
                offsets,
            )
            about += f"; alignment by chance {alignment_chance(dates, offsets):.3f}"
        else:
            del total["exact_match"]
        return replace(scores, total=total, about=about)

    def _translate(
        self, examples: Sequence[Example], width: int, n_best: int = 1, *, attention: bool
    ) -> list[Translation]:
        return generate_translations(
            self.model,
            self.tokens,
            [example.input for example in examples],
            width=width,
            n_best=n_best,
            alpha=self.data.length_penalty,
            attention=attention,
            batch_size=len(examples),
        )

    def _seen(self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> Recording:
        """The model watched while it is told what to write."""
        device = next(self.model.parameters()).device
        with torch.no_grad(), watch(self.model, keep=True) as seen:
            self.model(pad(source).to(device), pad(target).to(device))
        return seen

    def _decoder_ids(self, words: Sequence[str]) -> list[int]:
        """What the decoder reads to write these tokens, and the next."""
        ids = [self.tokens.target.inner.token_to_id(word) for word in words]
        return [BOS, *(i for i in ids if i is not None)][: self.model.config.longest]

    def _dates(self, dataset: PairSet, split: str) -> list[DatePair]:
        """The dates of a split with the places of their parts, in the order of their pairs."""
        seed = self.data.data_seed if is_dates(self.data.place) else TranslateData().data_seed
        known = find_split(split, dataset.parts)
        names = SPLITS if known is None else (known,)
        return [date for name in names for date in Dates(len(dataset.parts[name]), seed=seed, split=name)]

    def _ids(self, text: Any) -> list[int]:
        if not isinstance(text, str):
            raise ValueError(f"a sentence is a text, got {type(text).__name__}")  # noqa: TRY004
        if not text.strip():
            raise ValueError(f"there must be something to translate, got {text!r}")
        for letter in text:
            if "\udc80" <= letter <= "\udcff":  # how Python keeps a byte that it could not read
                raise ValueError(
                    f"a text must be UTF-8, got the byte 0x{ord(letter) - 0xDC00:02x}; if it is Latin-1, "
                    "convert it: iconv -f latin1 -t utf-8 TEXT | sightline translate RUN -"
                )
        ids, most = self.tokens.read(text), self.model.config.longest
        if most is not None and len(ids) > most:
            raise ValueError(
                f"learned positions end at {most} tokens, got {len(ids)} in {text[:40]!r}...; split it into "
                "sentences"
            )
        return ids

    def _note_lengths(self, lengths: Sequence[int]) -> None:
        """Say so where sentences are longer than any of the training: positions reach, habits may not."""
        trained = self.model.config.max_length
        longer = [length for length in lengths if length > trained]
        if longer:
            logger.warning(
                "%d of %d sentences have more than the %d tokens of the training, up to %d: expect worse "
                "translations, or split them",
                len(longer),
                len(lengths),
                trained,
                max(longer),
            )

    def _check_letters(self, text: str) -> None:
        letter = self.tokens.unknown(text)
        if letter is not None:
            raise ValueError(
                f"the vocabulary has no token for the character {letter!r}, got it in {text[:60]!r}; leave "
                "it out, or have it read as unknown: `translate --unknown` (in Python: unknown=True)"
            )


def open_sentence_translator(
    folder: Path, config: Mapping[str, Any], device: torch.device, *, force: bool = False
) -> SentenceTranslator:
    """Load the translator of a run folder.

    Raises:
        ValueError: If a file in it is missing or damaged.
    """
    data = from_json(TranslateData, config.get("data", {}), where=str(folder / CONFIG))
    return SentenceTranslator(open_translator(folder, device, force=force), PairTokens.load(folder), data)


def predictions_json(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """What ``translate --json`` prints."""
    rows = [{"source": p.input, "translation": p.text, "score": p.score} for p in predictions]
    return {"translations": rows}


def look_json(prediction: Prediction, layers: Mapping[str, Attention]) -> dict[str, Any]:
    """What ``look --json`` prints of a translator."""
    attention = prediction.attention
    assert attention is not None  # noqa: S101 - a look asks for it
    assert not isinstance(attention.keys, Grid)  # noqa: S101 - a translator reads words
    return {
        "source": prediction.input,
        "translation": prediction.text,
        "read": list(attention.keys),
        "written": list(attention.queries),
        "layers": {name: layer.weights[0].tolist() for name, layer in layers.items()},
    }
