# ruff: noqa: INP001
"""How well a translator's cross-attention aligns words: the alignment error rate against people's links.

    python docs/alignment_error.py RUN --pairs dev.de-en --gold dev.align
    python docs/alignment_error.py RUN --source test.de --target test.en --gold test.talp --first 1

The model reads the source and is told the target. Each word of the target is linked to the word of the
source that its tokens looked at most, heads averaged. There are two steps to ask: the one that *writes* a
word and the one after it, which *reads* it. The table has both, for every layer. Gold links are ``0-0 1?2``
(``?`` or ``p``: possible), one pair a line, or the older ``sentence source target S|P``, one link a line.
``--pairs`` has ``source ||| target`` in every line.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import sightline as sl
from sightline.data.tokens import BOS
from sightline.evaluate.alignment import (
    Links,
    alignment_error_rate,
    read_links_file,
    read_naacl_file,
    word_links,
    word_of_tokens,
)
from sightline.tasks.translate.predict import SentenceTranslator

STEPS = {"writes": 0, "reads": 1}  # how many steps after the one that writes a token


def cross_attention(
    predictor: SentenceTranslator, source: str, target: str
) -> tuple[dict[str, Tensor], list[int | None], list[int | None]]:
    """Each layer's weights (T + 1, S), heads averaged, and the words of target and source tokens."""
    tokens, model = predictor.tokens, predictor.model
    device = next(model.parameters()).device
    read = torch.tensor([tokens.read(source)], device=device)
    written = tokens.target.inner.encode(target, add_special_tokens=False)
    told = torch.tensor([[BOS, *tokens.target.encode(target)]], device=device)
    with torch.no_grad(), sl.watch(model, keep=True, measure=sl.Look(received=False, entropy=False)) as seen:
        model(read, told)
    names = [
        name for name in seen.names() if not name.startswith("encoder") and name.endswith("multihead_attn")
    ]
    if not names:  # a recurrent model has one attention, asked at every step
        names = [name for name in seen.names() if seen.stack(name).s == read.size(1)]
    layers = {}
    for name in names:
        sight = seen.stack(name)
        rows = sight.rows(list(range(sight.t)))[0].cpu()  # (H, T, S), or (T, S) where there are no heads
        layers[name] = rows.mean(0) if rows.dim() == 3 else rows
    places = [(int(a), int(b)) for a, b in written.offsets]
    if written.tokens[:1] == ["▁"]:
        places[0] = (0, 0)
    return layers, word_of_tokens(target, places), word_of_tokens(source, tokens.offsets(source))


def predicted_links(
    predictor: SentenceTranslator, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[set[tuple[int, int]]]]:
    """The links of every pair, by layer and step."""
    found: dict[tuple[str, str], list[set[tuple[int, int]]]] = {}
    for source, target in pairs:
        layers, targets, sources = cross_attention(predictor, source, target)
        for name, weights in layers.items():
            for step, after in STEPS.items():
                rows = weights[after : after + len(targets)]
                links = word_links(rows, targets[: len(rows)], sources)
                found.setdefault((name, step), []).append(links)
    return found


def read_pairs(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The sentences, from one file or from two."""
    if args.pairs is not None:
        lines = args.pairs.read_text(encoding="utf-8").splitlines()
        split = [line.split("|||")[:2] for line in lines]
        return [(source.strip(), target.strip()) for source, target in split]
    sources, targets = (x.read_text(encoding="utf-8").splitlines() for x in (args.source, args.target))
    return list(zip(sources, targets, strict=True))


def read_gold(path: Path, first: int, n_pairs: int) -> list[Links]:
    """Gold links in either format."""
    is_naacl = re.match(r"\d+\s+\d+\s+\d+", path.read_text(encoding="utf-8")) is not None
    return read_naacl_file(path, n_pairs) if is_naacl else read_links_file(path, first=first)


def main(argv: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Print a table, and write it where ``--out`` says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("run", type=Path, help="a run of `sightline train translate`")
    parser.add_argument("--pairs", type=Path, help="source ||| target in every line")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--target", type=Path)
    parser.add_argument("--gold", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0, help="what the first word's number is")
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    args = parser.parse_args(argv)
    if args.pairs is None and (args.source is None or args.target is None):
        parser.error("sentences come from --pairs, or from --source and --target")
    pairs = read_pairs(args)
    gold = read_gold(args.gold, args.first, len(pairs))
    pairs = pairs[: len(gold)]  # files of shared tasks have more sentences than links
    predictor = sl.open_run(args.run).predictor
    if not isinstance(predictor, SentenceTranslator):
        parser.error(f"a run of a translator is needed, got one of kind {predictor!r}")
    table: dict[str, dict[str, float]] = {}
    for (name, step), links in predicted_links(predictor, pairs).items():
        table.setdefault(name, {})[step] = alignment_error_rate(links, gold)
    width = max(map(len, table))
    sys.stdout.write(f"{'layer':{width}}  writes  reads\n")
    for name, row in table.items():
        sys.stdout.write(f"{name:{width}}  {row['writes']:6.3f}  {row['reads']:5.3f}\n")
    if args.out is not None:
        args.out.write_text(
            json.dumps({"pairs": len(pairs), "aer": table}, indent=1) + "\n", encoding="utf-8"
        )
    return table


if __name__ == "__main__":
    main()
