"""Learning to caption: an image is encoded once, and all its captions are read from it."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.data.augment import Augment
from sightline.data.batches import pad, shuffled_batches
from sightline.data.captions import CaptionedImage, CaptionSet, clean
from sightline.data.counter_rng import random_uniform
from sightline.data.shard_captions import CaptionShards
from sightline.data.stream import Stream, stream_of
from sightline.data.tokens import BOS, EOS, NEVER_GENERATED, PAD, Tokenizer
from sightline.decode.search import beam, greedy
from sightline.messages import logger
from sightline.models.caption_encoders import NETWORKS
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.settings import as_json
from sightline.shapes import Int
from sightline.tasks.caption.data import CaptionData
from sightline.tasks.caption.loss import caption_loss, encode_grids
from sightline.tasks.caption.pixels import Pictures, Pixels, Streamed, load_grids, no_image_error, read_all
from sightline.tasks.caption.split import Split
from sightline.train.config import TrainConfig
from sightline.train.objective import Loss, Objective
from sightline.train.processes import spread

__all__ = ["CaptionBatch", "CaptionObjective", "Score", "caption_loss"]

Score = Callable[[Sequence[str], Sequence[Sequence[str]]], Mapping[str, float]]

_KEPT = 12 << 30  # bytes of a split's pictures that are kept in memory rather than read anew
_CHOICE = 8  # the stream of draws that picks captions


@dataclass(frozen=True, eq=False)
class CaptionBatch:
    """Some images and their captions.

    Attributes:
        indices: Which images of the split.
        epoch: Of the training; a tensor, so that it travels with the rest.
        ids: As in the split, cut to the longest caption of the batch.
        pictures: Pixels that were read for this batch, or None.
    """

    indices: Int[Tensor, " B"]
    epoch: Int[Tensor, ""]
    ids: Int[Tensor, "B C L"]
    pictures: Tensor | None


class CaptionObjective(Objective):
    """Captions of the train split, evaluated by captions written for the validation split.

    Attributes:
        stream: Reads the pictures of the train split, where they are too many for any order.

    Args:
        captions: The images and what was said about them.
        tokenizer: Learned from the train split.
        model: Settings of the model: how large its pictures are, how long its captions.
        train: Settings of the training: batch size, seed, label smoothing.
        data: Settings of the data; they go into the run's config.
        score: Scores captions against references; None to evaluate by the loss alone.
    """

    kind = "caption"
    may_change = frozenset({"source", "cache"})  # data may move

    def __init__(
        self,
        captions: CaptionSet,
        tokenizer: Tokenizer,
        model: CaptionerConfig,
        train: TrainConfig,
        data: CaptionData,
        *,
        score: Score | None = None,
    ) -> None:
        self.captions, self.tokenizer = captions, tokenizer
        self.model, self.train, self.settings, self.score = model, train, data, score
        self.device = torch.device("cpu")
        self._splits: dict[str, Split] = {}  # filled once, and shared with the stages that follow
        if data.cached and model.finetune:
            raise ValueError(
                "cached keeps the grids of an encoder that is frozen, and finetune trains it; "
                "give up one: --no-cached or --no-finetune"
            )
        self._n, self.stream = len(captions.split("train")), _open_stream(captions, train)
        if data.cached and self.stream is not None:
            raise ValueError(
                "cached keeps a grid of every picture, and these are streamed as a training goes; give up "
                "one: --no-cached, or the pictures as a folder"
            )
        captions.split("val")  # says so now if there is none, before a folder is made

    # What the loop calls

    def prepare(self, device: torch.device) -> None:
        """Bring pictures and captions to the device, if they fit."""
        self.device = device
        if self.model.finetune and device.type == "cpu" and not self._splits:
            logger.warning(
                "%s learns along, which takes hours on a CPU; with --no-finetune, as in the preset "
                "photos-cpu, it sees each picture once",
                self.model.encoder,
            )
        if self._keeps_grids() and self.settings.augment != Augment() and not self._splits:
            logger.warning(
                "the grids of %s are kept, so pictures are not augmented: crop, flip, colour and the like "
                "have no effect; --views keeps crops of each, --no-cached sees it anew",
                self.model.encoder,
            )
        for name, most in (("train", None), ("val", self.settings.val_most)):
            if name not in self._splits:
                self._splits[name] = self.split(name, most)
            self._splits[name].pictures.to(device)

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        """Batches of images."""
        if self.stream is not None:
            return self.stream.plan()
        n = len(self.train_split.records) if "train" in self._splits else self._n
        return shuffled_batches(n, self.train.batch_size, self.train.seed, epoch)

    def load(self, indices: Sequence[int], epoch: int) -> CaptionBatch:
        """Captions of some images, all or as many as wanted; their pixels, if not on the device."""
        split = self.train_split
        if self.stream is not None and isinstance(split.pictures, Streamed):
            indices, encoded = self.stream.read(indices, epoch)
            pictures: Tensor | None = split.pictures.decode(indices, encoded)
        else:
            pictures = split.pictures.load(indices, epoch)
        chosen = torch.tensor(indices)
        ids = split.ids[chosen]  # (B, C, L)
        readable = split.readable_rows(indices)
        if len(readable) < len(indices):
            rows = readable or [0]
            chosen, ids, pictures = chosen[rows], ids[rows], pictures[rows] if pictures is not None else None
            if not readable:
                ids[:] = PAD  # where no other is left, it teaches nothing
        most = self.settings.captions
        if most is not None and most < ids.size(1):
            draws = random_uniform(self.train.seed, epoch, chosen, ids.size(1), stream=_CHOICE)
            draws = draws.masked_fill(ids[:, :, 1] == PAD, 2.0)  # real captions first
            order = draws.argsort(1)[:, :most, None]
            ids = ids.gather(1, order.expand(-1, -1, ids.size(2)))
        longest = max(2, int((ids != PAD).sum(-1).max()))
        return CaptionBatch(
            indices=chosen,
            epoch=torch.tensor(epoch),
            ids=ids[:, :, :longest],
            pictures=pictures,
        )

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        """Cross-entropy of every word, and the recurrent decoder's wish to look everywhere."""
        assert isinstance(model, Captioner)  # noqa: S101 - what this task is for
        images = self.model_inputs(model, batch)
        if self.settings.cell_dropout and images.dim() == 3:
            seen = torch.rand(images.shape[:2], device=images.device) >= self.settings.cell_dropout
            images = images * seen[:, :, None]
        return caption_loss(
            model,
            images,
            batch.ids,
            smoothing=self.train.label_smoothing,
            word_dropout=self.settings.word_dropout,
            consistency=self.settings.consistency,
        )

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The loss of a token and its perplexity; scores of captions, if there is something to score them."""
        assert isinstance(model, Captioner)  # noqa: S101 - what this task is for
        split = self._splits["val"]
        size, n = self.train.batch_size, len(split.records)
        total = terms = 0.0
        texts: list[str] = []
        references: list[list[str]] = []
        some = [range(i, min(i + size, n)) for i in range(0, n, size)]
        for result in spread(lambda numbers: self._evaluate_batch(model, split, numbers), some):
            if result is None:
                continue
            total, terms = total + result[0], terms + result[1]
            texts += result[2]
            references += [[clean(c) for c in split.records[i].captions] for i in result[3]]
        if not references:
            raise no_image_error(self.captions, n)
        mean = total / max(1.0, terms)
        scores = {"loss": mean, "perplexity": math.exp(min(mean, 50.0))}
        if self.score is not None:
            scores.update(self.score(texts, references))
        return scores

    def _evaluate_batch(
        self, model: Captioner, split: Split, numbers: Sequence[int]
    ) -> tuple[float, float, list[str], list[int]] | None:
        """The loss of some images, its terms, what the model writes about them, and which could be read."""
        batch = self.batch(split, numbers)
        if batch is None:
            return None
        images, ids, readable = batch
        seen = encode_grids(model, images)
        longest = int((ids != PAD).sum(-1).max())
        loss = caption_loss(model, seen, ids[:, :, :longest])
        texts = [] if self.score is None else self.write(model, seen)
        return loss.total.item(), loss.terms.item(), texts, readable

    def data(self) -> dict[str, Any]:
        """The settings of the data."""
        return as_json(self.settings)

    def digest(self) -> str:
        """Names the images and their captions."""
        return self.captions.digest()

    def save(self, folder: Path) -> None:
        """Write the tokenizer."""
        self.tokenizer.save(folder / "tokenizer.json")

    def compile(self, model: nn.Module) -> None:
        """Compile what is called: encoder and decoder, one by one."""
        assert isinstance(model, Captioner)  # noqa: S101 - what this task is for
        model.encoder.compile()
        model.decoder.compile()

    # What it is made of

    @property
    def train_split(self) -> Split:
        """The train split, once it is prepared."""
        return self._splits["train"]

    def reference_ids(self) -> Int[Tensor, "n C L"]:
        """Every caption of the train split."""
        return self.train_split.ids

    def for_stage(self, train: TrainConfig) -> "CaptionObjective":
        """The same objective for another stage, with the same images in memory."""
        other = copy.copy(self)
        other.train, other.stream = train, _open_stream(self.captions, train)  # in batches of its own size
        return other

    def model_inputs(self, model: Captioner, batch: CaptionBatch) -> Tensor:
        """What the model takes for a batch: pictures, or the grids of its frozen encoder, computed once."""
        return encode_grids(model, self.train_split.pictures.take(batch.pictures, batch.indices, batch.epoch))

    def split(self, name: str, most: int | None = None) -> Split:
        """Read a split: its pictures, or what a frozen encoder sees in them."""
        records = self.captions.split(name)[:most]
        size, seed, augment = self.model.image_size, self.train.seed, self.settings.augment
        pictures: Pictures
        if self.stream is not None and name == "train":
            pictures = Streamed(self.captions, records, size, augment, seed)
        elif self._keeps_grids():
            pictures, records = load_grids(
                self.captions,
                records,
                encoder=self.model.encoder,
                size=size,
                views=self.settings.views if name == "train" else 1,
                seed=seed,
                device=self.device,
                folder=self.settings.cache,
                resident_bytes=_KEPT,
            )
        elif len(records) * 3 * size * size > _KEPT:
            pictures = Streamed(self.captions, records, size, augment, seed)
        else:
            images, records = read_all(self.captions, records, size, threads=self.train.threads)
            pictures = Pixels(images, augment, seed)
        return Split(records, pictures, self.encode(records))

    def _keeps_grids(self) -> bool:
        if self.model.encoder not in NETWORKS or self.model.finetune or self.stream is not None:
            return False
        # A GPU sees a picture faster than it learns from it, and then every step may see another crop.
        return self.device.type == "cpu" if self.settings.cached is None else self.settings.cached

    def write(self, model: Captioner, images: Tensor) -> list[str]:
        """A caption for each image."""
        state = model.start(images)
        length = self.model.max_length
        width = self.settings.val_beam
        hypotheses = (
            greedy(model, state, max_length=length, forbidden=NEVER_GENERATED)
            if width == 1
            else beam(model, state, width=width, max_length=length, forbidden=NEVER_GENERATED)
        )
        return hypotheses.texts(self.tokenizer)

    def encode(self, records: Sequence[CaptionedImage], most: int | None = None) -> Int[Tensor, "n C L"]:
        """Ids of all captions; one that is longer than the model's longest is cut, and has no end.

        Args:
            records: The images.
            most: Rows of each; None: as many as the one with the most captions has.
        """
        longest = self.model.max_length + 1  # one more than the decoder reads: the last is only written
        rows: list[list[int]] = []
        most = max(most or 1, *(len(record.captions) for record in records))
        for record in records:
            coded = [[BOS, *self.tokenizer.encode(clean(c)), EOS][:longest] for c in record.captions]
            rows += [*coded, *[[]] * (most - len(coded))]
        return pad(rows, value=PAD).unflatten(0, (len(records), most))

    def batch(
        self, split: Split, numbers: Sequence[int]
    ) -> tuple[Tensor, Int[Tensor, "B C L"], list[int]] | None:
        """Those of some images that can be read, on the device, with their captions, and which they are.

        None where none can.
        """
        loaded = split.pictures.load(numbers, 0)
        readable = split.readable_rows(numbers)
        if not readable:
            return None
        left = [numbers[row] for row in readable]
        loaded = None if loaded is None else loaded[readable].to(self.device)
        images = split.pictures.take(loaded, torch.tensor(left, device=self.device), None)
        return images, split.ids[left].to(self.device), left


def _open_stream(captions: CaptionSet, train: TrainConfig) -> Stream | None:
    """The pictures of the train split one after the other, where they are too many for any order."""
    if not isinstance(captions, CaptionShards):
        return None
    numbers, size, seed = captions.parts["train"], train.batch_size, train.seed
    return stream_of(captions.shards, numbers, batch_size=size, seed=seed, threads=train.threads)
