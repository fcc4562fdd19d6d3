"""From settings to a trained captioner in its run folder: what the command and the demo have in common."""

from pathlib import Path

import torch

from sightline.data.tokens import Tokenizer
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.settings import as_json, from_json
from sightline.tasks.caption.data import CaptionData, learned_tokens, open_captions
from sightline.tasks.caption.objective import CaptionObjective, Score
from sightline.tasks.caption.self_critical import SelfCriticalConfig, self_critical_stage
from sightline.train.config import TrainConfig
from sightline.train.loop import fit

__all__ = ["train_captioner"]


def train_captioner(
    data: CaptionData,
    model: CaptionerConfig,
    train: TrainConfig,
    out: Path,
    *,
    score: Score | None,
    resume: bool = False,
    self_critical: SelfCriticalConfig | None = None,
    shown: bool = True,
) -> Path:
    """Train a captioner as the settings say; the model's vocabulary is that of the tokenizer it learns.

    Args:
        data, model, train: The settings.
        out: The run folder.
        score: Scores captions against references, for the validation split.
        resume: Go on with the run in the folder.
        self_critical: Settings of a second stage, or None for none.
        shown: Whether progress is shown on standard error.

    Returns:
        ``out``, which holds all that later commands need.
    """
    captions = open_captions(data)
    known = out / "tokenizer.json"
    tokenizer = Tokenizer.load(known) if resume and known.exists() else learned_tokens(captions, data)
    settings = from_json(CaptionerConfig, as_json(model) | {"vocab_size": len(tokenizer)})
    torch.manual_seed(train.seed)
    captioner = Captioner(settings)
    task = CaptionObjective(captions, tokenizer, settings, train, data, score=score)
    then = [] if self_critical is None else [self_critical_stage(task, self_critical)]
    return fit(captioner, task, train, out, resume=resume, then=then, shown=shown)
