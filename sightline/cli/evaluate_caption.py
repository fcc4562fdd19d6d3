"""``sightline evaluate`` of a captioner: captions of a split, their scores, the best and worst of them."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from sightline.cli.caption_run import CaptionRun, open_run, told
from sightline.cli.runs import Asked, Evaluated
from sightline.data.captions import CaptionedImage, CaptionSet
from sightline.data.scenes import Scene, SceneImages
from sightline.data.scenes_layout import SIDE
from sightline.evaluate.captions import Scored, scored
from sightline.evaluate.ranked import ranked
from sightline.evaluate.said import Said, say
from sightline.evaluate.scenes import glances, scene_scores
from sightline.show.curves import curves, read_metrics
from sightline.show.gallery import gallery
from sightline.show.told import Box, Told
from sightline.train.pictures import none_read, read_sound

__all__ = ["Answers", "evaluate", "tell"]

OF_SCENES = ("attribute_accuracy", "grounding", "grounding_chance")
_ENDS = 8  # best and worst examples in a gallery
_READ = 512  # pictures held at once


@dataclass(frozen=True)
class Answers:
    """A split, told.

    Attributes:
        records: The pictures that could be read, and what people said of them.
        said: What the model said of each.
        images: The pictures as the model saw them; None if nobody wants to see them.
        scenes: What is in each picture, where we drew them.
    """

    records: list[CaptionedImage]
    said: list[Said]
    images: Tensor | None
    scenes: list[Scene] | None


def evaluate(asked: Asked) -> Evaluated:
    """Caption a split and score it."""
    run = open_run(asked.run, asked.device)
    captions = run.captions(asked.data)
    records = captions.split(asked.split)[: asked.most]
    tested = tell(run, captions, records, asked)
    found = scored(
        [said.text for said in tested.said],
        [record.captions for record in tested.records],
        meteor="meteor" in asked.extras,
        ptb="ptb" in asked.extras,
    )
    scores = {**found.total, **of_scenes(run, tested)}
    about = f"{len(tested.records)} images of split {asked.split!r} of {captions.source}, beam {asked.beam}"
    files = _files(run, tested, found, about) if asked.wants_pictures else {}
    return Evaluated(scores=scores, signatures=found.signatures, about=about, files=files)


def tell(run: CaptionRun, captions: CaptionSet, records: Sequence[CaptionedImage], asked: Asked) -> Answers:
    """Caption pictures, with a bar on standard error; broken ones are named there and left out."""
    drawn = captions.images if isinstance(captions.images, SceneImages) else None
    look = asked.wants_pictures or drawn is not None
    good: list[CaptionedImage] = []
    said: list[Said] = []
    seen: list[Tensor] = []
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("captioning", total=len(records))
        for images, read in _pieces(captions, records, run.size):
            good += read
            if asked.wants_pictures:
                seen.append(images)
            for ranks in say(
                run.model, run.tokenizer, images, beam=asked.beam, look=look, batch_size=asked.batch_size
            ):
                said.append(ranks[0])
                progress.update(bar, completed=len(said))
    if not good:
        raise none_read(captions, len(records))
    scenes = None if drawn is None else [drawn.scene(record.name) for record in good]
    return Answers(good, said, torch.cat(seen) if seen else None, scenes)


def of_scenes(run: CaptionRun, tested: Answers) -> dict[str, float]:
    """The scores that only drawn scenes allow: whether what was said is true, and looked at; else none."""
    if tested.scenes is None:
        return {}
    words = [said.words for said in tested.said]
    weights = [said.weights for said in tested.said if said.weights is not None]
    found = scene_scores(tested.scenes, words, weights, run.model.grid)
    return {name: found[name] for name in OF_SCENES}


def _pieces(
    captions: CaptionSet, records: Sequence[CaptionedImage], size: int
) -> Iterator[tuple[Tensor, list[CaptionedImage]]]:
    for first in range(0, len(records), _READ):
        images, good = read_sound(captions, records[first : first + _READ], size)
        if good:
            yield images, good


def tellings(run: CaptionRun, tested: Answers, found: Scored, which: Sequence[int]) -> list[Told]:
    """Some of the examples, ready to be shown."""
    assert tested.images is not None  # noqa: S101  whoever shows has asked to look
    return [
        told(
            run,
            tested.images[i],
            tested.said[i],
            name=tested.records[i].name,
            references=tested.records[i].captions,
            score=f"CIDEr {found.each['cider'][i]:.2f}",
            boxes=_boxes(run, tested, i),
        )
        for i in which
    ]


def _boxes(run: CaptionRun, tested: Answers, i: int) -> dict[int, Box]:
    """The box of each thing that the caption of a scene names, in pixels of what the model saw."""
    said = tested.said[i]
    if tested.scenes is None or said.weights is None:
        return {}
    scene, scale = tested.scenes[i], run.size / SIDE
    boxes: dict[int, Box] = {}
    for glance in glances(scene, said.words, said.weights, run.model.grid):
        if glance.thing is not None:
            left, top, right, bottom = scene.objects[glance.thing].box
            boxes[glance.word] = (left * scale, top * scale, right * scale, bottom * scale)
    return boxes


def _files(run: CaptionRun, tested: Answers, found: Scored, about: str) -> dict[str, str]:
    order = ranked(found.each["cider"], _ENDS)
    learned = run.folder / "metrics.csv"
    page = gallery(
        f"Captions by {run.folder.name}",
        {
            "The best by CIDEr": tellings(run, tested, found, order.best),
            "The worst": tellings(run, tested, found, order.worst),
        },
        introduction=about,
        scores={**found.total, **of_scenes(run, tested)},
        signatures=found.signatures,
        curves=curves(read_metrics(learned)) if learned.is_file() else None,
    )
    captions = [
        {"image": r.name, "caption": s.text, "references": list(r.captions), "cider": c}
        for r, s, c in zip(tested.records, tested.said, found.each["cider"], strict=True)
    ]
    return {"gallery.html": page, "captions.json": json.dumps(captions, indent=1, ensure_ascii=False) + "\n"}
