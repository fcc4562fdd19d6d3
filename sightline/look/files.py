"""Sights on disk: one safetensors file for a sight, or for all that was seen of a model.

Statistics are always written. With ``keep=True`` so is what later questions are answered from: q and k in
their own dtype, the log-sum-exp and the mask.
"""

import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sightline.attention.band import Band
from sightline.attention.masks import Mask
from sightline.look.calls import CallShape
from sightline.look.inputs import PrecomputedWeights, ScoreInputs
from sightline.look.measure import nan_where
from sightline.look.sharded.axes import Axis, Shard
from sightline.look.source import Block
from sightline.untrusted import check_unicode, need, parse_json

if TYPE_CHECKING:
    from sightline.look.recording import Recording
    from sightline.look.sight import Sight

_SIGHT = "sightline.Sight/2"
_SEEN = "sightline.Seen/1"
_READ = {"sightline.Sight/1": "Sight", _SIGHT: "Sight", _SEEN: "Recording"}
_LEFT_OUT = "left out"  # what files of earlier versions say of padding
_ABOUT = ("t", "s", "lead", "name", "averaged", "n_batch", "source", "padding", "tokens", "is_masked", "axes")
_LATER: dict[str, Any] = {
    "source": "kernel",
    "padding": "",
    "tokens": (),
    "skipped": (),
    "is_masked": True,
    "axes": {},
}  # what older files don't say
_NAN_AT_PADDING = ("lse", "entropy", "peak", "top")  # as files of earlier versions hold them
_MASK = ("lengths", "allowed", "added")

Tensors = dict[str, Tensor]


def save(sight: "Sight", path: str | Path, *, keep: bool = False) -> None:
    """Write a sight.

    Args:
        sight: What to write.
        path: A file.
        keep: Also write q, k and the mask, so that the loaded sight answers maps, rows and tops.
    """
    about, tensors = _pack(sight, keep=keep)
    _write(Path(path), _SIGHT, about, tensors, "a sight", "look.safetensors")


def load(kind: "type[Sight]", path: str | Path) -> "Sight":
    """Read a sight back."""
    about, tensors = _read(Path(path), "Sight")
    return _unpack(kind, about, tensors, Path(path))


def save_seen(seen: "Recording", path: str | Path, *, keep: bool = False) -> None:
    """Write all that was seen of a model."""
    tensors: Tensors = {}
    sights: dict[str, list[Any]] = {}
    for i, (name, calls) in enumerate(seen.items()):
        for j, sight in enumerate(calls):
            about, own = _pack(sight, keep=keep)
            sights.setdefault(name, []).append(about)
            tensors |= {f"{i}.{j}.{key}": x for key, x in own.items()}
    about = {"seen": seen.about(), "sights": sights}
    _write(Path(path), _SEEN, about, tensors, "what was seen", "seen.safetensors")


def load_seen(kind: "type[Recording]", sight: "type[Sight]", path: str | Path) -> "Recording":
    """Read what was seen back."""
    path = Path(path)
    about, tensors = _read(path, "Recording")
    seen = kind.of(about["seen"])
    for i, (name, calls) in enumerate(about["sights"].items()):
        for j, one in enumerate(calls):
            seen.add(name, _unpack(sight, one, _under(f"{i}.{j}.", tensors), path))
    return seen


def _pack(sight: "Sight", *, keep: bool) -> tuple[dict[str, Any], Tensors]:
    sight.require_whole("a file")
    about = {name: getattr(sight, name) for name in _ABOUT}
    if sight.shard is not None:
        about["shard"] = [[name, axis.own, axis.size] for name, axis in sight.shard.axes.items()]
        about["note"] = sight.shard.note
    about["skipped"] = [_pack_call(call) for call in sight.skipped]
    about["after"] = None if sight.after is None else _pack_call(sight.after)
    about["parents"] = None if sight.parents is None else sight.parents.tolist()
    tensors = {name: x.detach() for name, x in sight.statistics.items()}
    if keep:
        if not sight.kept:
            raise ValueError(
                "keep=True writes q and k, which this sight does not have; look or watch with keep=True"
            )
        pieces = [_pack_kept(piece) for piece in sight.kept]
        about["kept"] = [one for one, _ in pieces]
        tensors |= {f"kept.{i}.{key}": x for i, (_, own) in enumerate(pieces) for key, x in own.items()}
    return about, tensors


def _pack_call(call: CallShape) -> list[Any]:
    return [call.lead, call.t, call.s, None if call.parents is None else call.parents.tolist()]


def _unpack_call(about: list[Any]) -> CallShape:
    lead, t, s, parents = about
    return CallShape(tuple(lead), t, s, None if parents is None else torch.tensor(parents))


def _pack_kept(piece: Block) -> tuple[dict[str, Any], Tensors]:
    inputs = piece.inputs
    if inputs.score is not None or inputs.modify is not None:
        raise ValueError(
            "keep=True writes dot products of q and k; this sight's scores come from a function or a module, "
            "which a file can't hold; save without keep=True"
        )
    about = {
        "scale": inputs.scale,
        "bands": [asdict(band) for band in inputs.mask.bands],
        "rows": isinstance(inputs, PrecomputedWeights),
        "first_key": piece.key,
        "first_query": piece.position,
        "mask": {kind: len(getattr(inputs.mask, kind)) for kind in _MASK},
    }
    assert piece.lse is not None  # noqa: S101
    tensors = {"q": inputs.q, "k": inputs.k, "lse": piece.lse}
    for name in ("padding", "sink"):
        if getattr(inputs, name) is not None:
            tensors[name] = getattr(inputs, name)
    for kind in _MASK:
        tensors |= {f"{kind}.{i}": x for i, x in enumerate(getattr(inputs.mask, kind))}
    return about, tensors


def _unpack(kind: "type[Sight]", about: Mapping[str, Any], tensors: Tensors, path: Path) -> "Sight":
    about = _LATER | dict(about)
    try:
        fields = {name: about[name] for name in _ABOUT}
        pieces = [
            _unpack_kept(one, _under(f"kept.{i}.", tensors)) for i, one in enumerate(about.get("kept", ()))
        ]
        starts = itertools.accumulate([x.inputs.shape[2] for x in pieces], initial=0)
        kept = tuple(replace(x, query=start) for x, start in zip(pieces, starts, strict=False))
    except (KeyError, TypeError):
        raise ValueError(f"{path} is damaged, what it says of itself is {about!r}") from None
    statistics = {name: x for name, x in tensors.items() if not name.startswith("kept.")}
    fields |= {"lead": tuple(fields["lead"]), "tokens": tuple(map(tuple, fields["tokens"]))}
    fields["skipped"] = tuple(map(_unpack_call, about["skipped"]))
    fields["after"] = None if about.get("after") is None else _unpack_call(about["after"])
    fields["parents"] = None if about.get("parents") is None else torch.tensor(about["parents"])
    if "shard" in about:
        axes = {name: Axis(tuple(map(tuple, own)), size) for name, own, size in about["shard"]}
        fields["shard"] = Shard(**axes, note=about.get("note", ""))
    if fields["padding"] == _LEFT_OUT and "lse" in statistics:
        fields["padding"], statistics = "mask", _as_padding(statistics)
    return kind(**fields, statistics=statistics, kept=kept)


def _as_padding(statistics: Tensors) -> Tensors:
    """Return statistics of a file of an earlier version, where padding counted as queries without keys."""
    hidden = statistics["lse"] == -torch.inf
    found = {name: nan_where(hidden, x) if name in _NAN_AT_PADDING else x for name, x in statistics.items()}
    return found | {"is_padding": hidden}


def _under(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names begin with this, without it."""
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


def _unpack_kept(about: Mapping[str, Any], tensors: Tensors) -> Block:
    bands = tuple(Band(**band) for band in about["bands"])
    parts = (tuple(tensors[f"{kind}.{i}"] for i in range(about["mask"][kind])) for kind in _MASK)
    made = PrecomputedWeights if about["rows"] else ScoreInputs
    inputs = made(tensors["q"], tensors["k"], Mask(bands, *parts), about["scale"])
    inputs = replace(inputs, padding=tensors.get("padding"), sink=tensors.get("sink"))
    inputs = inputs.with_versions()
    return Block(inputs, tensors["lse"], key=about["first_key"], position=about.get("first_query"))


def _write(path: Path, kind: str, about: Any, tensors: Tensors, what: str, example: str) -> None:
    to_bytes = need("safetensors.torch", "saving a sight", "look").save
    check_unicode(path, what)
    if path.is_dir():
        raise ValueError(f"{what} is saved as a file, got the folder {path}; add a name, such as {example}")
    if not path.parent.is_dir():
        raise ValueError(f"{what} is saved in a folder that exists, got {path}; make {path.parent} first")
    own = {name: x.detach().clone().contiguous() for name, x in tensors.items()}  # none may share memory
    data = to_bytes(own, metadata={"format": kind, "about": json.dumps(about)})
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _read(path: Path, what: str) -> tuple[dict[str, Any], Tensors]:
    library = need("safetensors", "reading a sight", "look")
    if not path.is_file():
        raise ValueError(f"there is no sight at {path}; {what}.save writes one")
    try:
        with library.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except library.SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file or is cut short: {error}") from None
    kind = metadata.get("format")
    if _READ.get(str(kind)) != what:
        right, name = (_SIGHT, "sight") if what == "Sight" else (_SEEN, "sights of a model")
        other = f"; {_READ[kind]}.load reads it" if kind in _READ else ""
        raise ValueError(f"{path} holds no {name}, its format is {kind!r}, not {right!r}{other}")
    try:
        about = parse_json(metadata["about"], str(path))
        about["t" if what == "Sight" else "sights"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged, what it says of itself is {metadata.get('about')!r}") from None
    return about, tensors
