"""From settings to a trained translator in its run folder."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sightline.data.pair_tokens import JOINT, SOURCE, PairTokens
from sightline.data.pairs import Pair, PairSet
from sightline.models.rnn import RecurrentConfig, RecurrentTranslator
from sightline.models.run_folder import CONFIG, read_config, write_config
from sightline.models.translator import Translator, TranslatorConfig
from sightline.settings import as_json, from_json
from sightline.tasks.translate.data import TranslateData, learned_pair_tokens, open_pairs
from sightline.tasks.translate.generate import translate
from sightline.tasks.translate.objective import Score, TranslateObjective
from sightline.train.config import TrainConfig
from sightline.train.loop import fit

__all__ = ["train_translator", "tuned_length"]

ALPHAS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0)
_WIDTH = 5


def train_translator(
    data: TranslateData,
    model: TranslatorConfig | RecurrentConfig,
    train: TrainConfig,
    out: Path,
    *,
    score: Score | None,
    resume: bool = False,
    shown: bool = True,
) -> Path:
    """Train a translator as the settings say; its vocabularies are those of the tokenizers it learns.

    Args:
        data, model, train: The settings.
        out: The run folder.
        score: Scores translations against references, for the validation split.
        resume: Go on with the run in the folder.
        shown: Whether progress is shown on standard error.

    Returns:
        ``out``, which holds all that later commands need.
    """
    begun = read_config(out).get("data", {}) if resume and (out / CONFIG).exists() else {}
    data = replace(data, source=data.source or begun.get("source"), target=data.target or begun.get("target"))
    pairs = open_pairs(data)
    lacking = pairs.lacking()
    if lacking is not None:
        raise ValueError(lacking)
    if not begun:
        data = replace(data, source=pairs.source, target=pairs.target)
    known = resume and ((out / JOINT).exists() or (out / SOURCE).exists())
    tokens = PairTokens.load(out) if known else learned_pair_tokens(pairs, data)
    sizes = {
        "source_vocab_size": len(tokens.source),
        "vocab_size": len(tokens.target),
        "shared": tokens.joint,
    }
    torch.manual_seed(train.seed)
    translator: Translator | RecurrentTranslator
    if isinstance(model, RecurrentConfig):
        translator = RecurrentTranslator(from_json(RecurrentConfig, as_json(model) | sizes))
    else:
        translator = Translator(from_json(TranslatorConfig, as_json(model) | sizes))
    task = TranslateObjective(
        pairs, tokens, train, data, max_length=translator.config.max_length, score=score
    )
    if shown and os.environ.get("RANK", "0") == "0":
        _tell(pairs, task, tokens)
    fit(translator, task, train, out, resume=resume, shown=shown)
    if data.tune_length and score is not None:
        alpha = tuned_length(translator, tokens, pairs.split("val"), score)
        _note(out, {"length_penalty": alpha})
    return out


def _tell(pairs: PairSet, task: TranslateObjective, tokens: PairTokens) -> None:
    """Say on standard error what is learned from what, and what the vocabularies leave out."""
    counts = [f"{len(pairs.split(name)):,}" for name in ("train", "val")]
    sys.stderr.write(
        f"{pairs.source} to {pairs.target}: {counts[0]} pairs to learn from, {counts[1]} to choose by\n"
    )
    sides = (("source", tokens.source), ("target", tokens.target))
    for share, (side, tokenizer) in zip(task.unknown(), sides, strict=True):
        if share:
            sys.stderr.write(
                f"{share:.2%} of the {side}'s tokens are unknown: it has more letters than a vocabulary of "
                f"{len(tokenizer)} holds; raise --vocabulary, or take --tokens char\n"
            )


def tuned_length(model: Any, tokens: PairTokens, pairs: Sequence[Pair], score: Score) -> float:
    """The strength of the length normalisation that has the best BLEU on some pairs, beam 5."""
    best, found = -1.0, 1.0
    for alpha in ALPHAS:
        written = translate(model, tokens, [pair.source for pair in pairs], width=_WIDTH, alpha=alpha)
        bleu = score([one.text for one in written], [pair.target for pair in pairs])["bleu"]
        if bleu > best:
            best, found = bleu, alpha
    return found


def _note(out: Path, data: Mapping[str, Any]) -> None:
    """Change what a run's config says of its data."""
    config = read_config(out)
    write_config(
        out,
        kind=config["kind"],
        model=config["model"],
        data=config.get("data", {}) | dict(data),
        train=config.get("train", {}),
    )
