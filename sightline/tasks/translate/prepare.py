"""From settings to a translator that can be trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sightline.data.pair_set import Pair, PairSet
from sightline.data.pair_tokens import JOINT, SOURCE, PairTokens
from sightline.evaluate.translation import corpus_scores
from sightline.models.rnn import RecurrentConfig, RecurrentTranslator
from sightline.models.run_folder import read_config, write_config
from sightline.models.translator import Translator, TranslatorConfig
from sightline.settings import as_json, from_json
from sightline.tasks.task import Prepared, Settings
from sightline.tasks.translate.data import open_pairs, token_rows, train_tokenizers
from sightline.tasks.translate.generate import AnyTranslator, generate_translations
from sightline.tasks.translate.objective import Score, TranslateObjective
from sightline.train.processes import from_main

__all__ = ["ALPHAS", "prepare_translator", "tune_length_penalty"]

ALPHAS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0)
_WIDTH = 5


def prepare_translator(settings: Settings, begun: Path | None) -> Prepared:
    """Read the pairs, learn the tokenizers, and build the model for their vocabularies.

    Args:
        settings: Of the model, the data and the training.
        begun: The folder of a run that goes on: its tokenizers and its languages stay.

    Raises:
        ValueError: If there is no split to learn from or to choose by, or a sentence of val is too long.
    """
    data, train = settings["data"], settings["train"]
    pairs = open_pairs(data)
    lacking = pairs.lacking()
    if lacking is not None:
        raise ValueError(lacking)
    if begun is None:
        data = replace(data, source=pairs.source_language, target=pairs.target_language)
    known = begun is not None and any((begun / name).exists() for name in (JOINT, SOURCE))
    tokens = (
        PairTokens.load(begun)
        if known and begun is not None
        else from_main(lambda: train_tokenizers(pairs, data))
    )
    torch.manual_seed(train.seed)
    model = _model(settings["model"], tokens)
    objective = TranslateObjective(
        pairs,
        tokens,
        train=train,
        data=data,
        max_length=model.config.max_length,
        longest=model.config.longest,
        score=corpus_scores,
    )
    val = pairs.split("val")
    return Prepared(
        model=model,
        objective=objective,
        train=train,
        notes=_notes(pairs, objective, tokens),
        finish=_length_tuner(model, tokens, val) if data.tune_length else None,
        test_split="test" if any(name.startswith("test") for name in pairs.splits()) else "val",
        sample=next((pair.source for pair in val if tokens.unknown(pair.source) is None), ""),
        row_names=token_rows(tokens),
    )


def tune_length_penalty(
    model: AnyTranslator, tokens: PairTokens, pairs: Sequence[Pair], score: Score
) -> float:
    """The strength of the length normalisation that has the best BLEU on some pairs, beam 5."""
    best, chosen = -1.0, 1.0
    for alpha in ALPHAS:
        outputs = generate_translations(
            model, tokens, [pair.source for pair in pairs], width=_WIDTH, alpha=alpha
        )
        bleu = score([one.text for one in outputs], [pair.target for pair in pairs])["bleu"]
        if bleu > best:
            best, chosen = bleu, alpha
    return chosen


def _model(config: TranslatorConfig | RecurrentConfig, tokens: PairTokens) -> AnyTranslator:
    """A new model whose vocabularies are those of the tokenizers."""
    sizes = {
        "source_vocab_size": len(tokens.source),
        "vocab_size": len(tokens.target),
        "shared": tokens.joint,
    }
    if isinstance(config, RecurrentConfig):
        return RecurrentTranslator.build(from_json(RecurrentConfig, as_json(config) | sizes))
    return Translator.build(from_json(TranslatorConfig, as_json(config) | sizes))


def _notes(pairs: PairSet, objective: TranslateObjective, tokens: PairTokens) -> list[str]:
    """What is learned from what, and what the vocabularies leave out."""
    counts = [f"{len(pairs.split(name)):,}" for name in ("train", "val")]
    languages = f"{pairs.source_language} to {pairs.target_language}"
    notes = [f"{languages}: {counts[0]} pairs to learn from, {counts[1]} to choose by"]
    sides = (("source", tokens.source), ("target", tokens.target))
    for share, (side, tokenizer) in zip(objective.unknown(), sides, strict=True):
        if share:
            notes.append(
                f"{share:.2%} of the {side}'s tokens are unknown: it has more letters than a vocabulary of "
                f"{len(tokenizer)} holds; raise --vocabulary, or take --tokens char"
            )
    return notes


def _length_tuner(model: AnyTranslator, tokens: PairTokens, val: Sequence[Pair]) -> Callable[[Path], None]:
    def tune(folder: Path) -> None:
        alpha = tune_length_penalty(model, tokens, val, corpus_scores)
        _change_data(folder, {"length_penalty": alpha})

    return tune


def _change_data(folder: Path, data: Mapping[str, Any]) -> None:
    """Change what a run's config says of its data."""
    config = read_config(folder)
    write_config(
        folder,
        kind=config["kind"],
        model=config["model"],
        data=config.get("data", {}) | dict(data),
        train=config.get("train", {}),
    )
