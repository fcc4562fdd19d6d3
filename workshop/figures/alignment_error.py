"""How well a translator's cross-attention aligns words: the alignment error rate against people's links.

    python -m workshop.figures.alignment_error RUN --pairs dev.de-en --gold dev.align
    python -m workshop.figures.alignment_error RUN --source de --target en --gold test.talp --first 1

The model reads the source and is told the target. Each word of the target is linked to the word of the
source that its tokens looked at most. There are two steps to ask: the one that *writes* a word and the one
after it, which *reads* it. The table has both, for every layer, heads averaged, and for the best single head.
``--choose 50`` chooses that head by the first fifty pairs, and every figure is then of the others. For scale:
the diagonal, and with ``--train FOLDER`` IBM model 1 of the pairs that the translator learned from.

Gold links are ``0-0 1?2`` (``?`` or ``p``: possible), one pair a line, or the older ``sentence source target
S|P``, one link a line. ``--pairs`` has ``source ||| target`` in every line.
"""

import argparse
import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import sightline as sl
from sightline.data.tokens import BOS
from sightline.tasks.translate.predict import SentenceTranslator
from workshop.figures.alignment import (
    Links,
    alignment_error_rate,
    read_links_file,
    read_naacl_file,
    word_links,
    word_of_tokens,
)
from workshop.figures.ibm_model_1 import ibm_model_1

STEPS = {"writes": 0, "reads": 1}  # how many steps after the one that writes a token
Predicted = dict[tuple[str, int | None, str], list[set[tuple[int, int]]]]


def cross_attention(
    predictor: SentenceTranslator, source: str, target: str
) -> tuple[dict[str, Tensor], list[int | None], list[int | None]]:
    """Each layer's weights (H, T + 1, S), and the words of target and source tokens."""
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
        layers[name] = rows if rows.dim() == 3 else rows[None]
    places = [(int(a), int(b)) for a, b in written.offsets]
    if written.tokens[:1] == ["▁"]:
        places[0] = (0, 0)
    return layers, word_of_tokens(target, places), word_of_tokens(source, tokens.offsets(source))


def predicted_links(predictor: SentenceTranslator, pairs: Sequence[tuple[str, str]]) -> Predicted:
    """The links of every pair, by layer, head (None: their mean) and step."""
    found: Predicted = {}
    for source, target in pairs:
        layers, targets, sources = cross_attention(predictor, source, target)
        for name, heads in layers.items():
            views: dict[int | None, Tensor] = {None: heads.mean(0)}
            if len(heads) > 1:
                views |= dict(enumerate(heads))
            for (head, weights), (step, after) in itertools.product(views.items(), STEPS.items()):
                rows = weights[after : after + len(targets)]
                links = word_links(rows, targets[: len(rows)], sources)
                found.setdefault((name, head, step), []).append(links)
    return found


def diagonal(pairs: Sequence[tuple[str, str]]) -> list[set[tuple[int, int]]]:
    """Link each target word to the source word that stands as far along."""
    lengths = [(len(source.split()), len(target.split())) for source, target in pairs]
    return [{(min(n - 1, round(t * n / m)), t) for t in range(m)} for n, m in lengths]


def error_table(found: Predicted, gold: Sequence[Links], choose: int) -> dict[str, dict[str, float]]:
    """Error rates of every layer, and of the best head: chosen by the first pairs, measured on the others."""
    table: dict[str, dict[str, float]] = {}
    error = {key: alignment_error_rate(links[choose:], gold[choose:]) for key, links in found.items()}
    for (name, head, step), value in error.items():
        if head is None:
            table.setdefault(name, {})[step] = value
    by_choice = {
        key: alignment_error_rate(links[:choose], gold[:choose])
        for key, links in found.items()
        if key[1] is not None
    }
    if choose and by_choice:
        for step in STEPS:
            name, head, _ = best = min((k for k in by_choice if k[2] == step), key=by_choice.__getitem__)
            table.setdefault(f"{name} head {head}", {})[step] = error[best]
    return table


def read_pairs(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The sentences, from one file or from two."""
    if args.pairs is not None:
        lines = args.pairs.read_text(encoding="utf-8").splitlines()
        split = [line.split("|||")[:2] for line in lines]
        return [(source.strip(), target.strip()) for source, target in split]
    return read_files(args.source, args.target)


def read_files(source: Path, target: Path) -> list[tuple[str, str]]:
    """Sentence pairs of two files, a sentence a line."""
    sources, targets = (x.read_text(encoding="utf-8").splitlines() for x in (source, target))
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
    parser.add_argument("--choose", type=int, default=0, help="pairs to choose the best head by")
    parser.add_argument("--train", type=Path, help="the folder the translator learned from, for IBM model 1")
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
    table = error_table(predicted_links(predictor, pairs), gold, args.choose)
    others = {"diagonal": diagonal(pairs)}
    if args.train is not None:
        languages = predictor.data.source, predictor.data.target
        learned = read_files(*(args.train / f"train.{language}" for language in languages))
        others["IBM model 1"] = ibm_model_1(learned, pairs)
    table |= {
        name: dict.fromkeys(STEPS, alignment_error_rate(links[args.choose :], gold[args.choose :]))
        for name, links in others.items()
    }
    width = max(map(len, table))
    sys.stdout.write(f"{'layer':{width}}  writes  reads\n")
    for name, row in table.items():
        cells = "  ".join(f"{row[step]:6.3f}" if step in row else " " * 6 for step in STEPS)
        sys.stdout.write(f"{name:{width}}  {cells}\n")
    if args.out is not None:
        args.out.write_text(
            json.dumps({"pairs": len(pairs) - args.choose, "aer": table}, indent=1) + "\n", encoding="utf-8"
        )
    return table


if __name__ == "__main__":
    main()
