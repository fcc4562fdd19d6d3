"""From settings to a captioner that can be trained."""

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from sightline.data.captions import CaptionSet
from sightline.data.image_files import ImageFiles
from sightline.data.sources import Folder
from sightline.data.tokens import Tokenizer
from sightline.evaluate.captions import score
from sightline.messages import logger
from sightline.models.captioner import Captioner
from sightline.tasks.caption.data import SCENES, learn_tokens, open_captions, token_rows
from sightline.tasks.caption.objective import CaptionObjective
from sightline.tasks.caption.self_critical import self_critical_stage
from sightline.tasks.task import Prepared, Settings
from sightline.train.processes import from_main

__all__ = ["TOKENIZER", "prepare_captioner"]

TOKENIZER = "tokenizer.json"


def prepare_captioner(settings: Settings, begun: Path | None) -> Prepared:
    """Read the data and build the model, with the vocabulary of the tokenizer that the captions give.

    Args:
        settings: Of model, data, training and perhaps the self-critical stage.
        begun: The folder of a run that goes on: its tokenizer is taken.
    """
    data, train, second = settings["data"], settings["train"], settings.get("self_critical")
    if data.source == SCENES:
        logger.info("drawing %s scenes", f"{data.n_train + data.n_val + data.n_test:,}")
    captions = open_captions(data)
    known = None if begun is None else begun / TOKENIZER
    tokenizer = (
        Tokenizer.load(known)
        if known is not None and known.exists()
        else from_main(lambda: learn_tokens(captions, data))
    )
    config = dataclasses.replace(settings["model"], vocab_size=len(tokenizer))
    torch.manual_seed(train.seed)
    model = Captioner.build(config)
    objective = CaptionObjective(captions, tokenizer, config, train, data, score=score)
    return Prepared(
        model=model,
        objective=objective,
        train=train,
        stages=[] if second is None else [self_critical_stage(objective, second)],
        test_split="test" if "test" in captions.splits() else "val",
        sample=_sample(captions),
        row_names=token_rows(tokenizer),
    )


def _sample(captions: CaptionSet) -> str | Tensor:
    """An image that is not trained on: its path, or its pixels where images lie in a zip or are drawn."""
    images = captions.images
    unseen = captions.split(next((name for name in captions.splits() if name != "train"), "train"))[0]
    if not isinstance(images, ImageFiles) or not isinstance(images.files, Folder):
        try:
            return captions.open(unseen)
        except (ValueError, OSError):  # a broken one costs itself alone
            return ""
    return str(Path(images.files.where) / images.paths[unseen.name])
