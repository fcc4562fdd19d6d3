"""Damaged and hostile runs: none is answered in silence, none hangs, none ends in a traceback.

damaged   a file of a run that vouches for itself is flipped by a bit, cut, emptied, lengthened, swapped with
          another run's, removed, or is something else than a file: every command of it must refuse
hostile   somebody wrote another value into the config and vouches for it: answered or refused, in a sentence
state     the state of a checkpoint is edited: a training that goes on must not take it
"""

import json
import os
import shutil

from sightline.models.manifest import write_manifest
from sightline.train.checkpoint import _read as read_checkpoint
from tests.sandbox import command
from tests.tiny import HERE, IMAGE
from workshop.fuzz.report import Report, about, ended

RUNS = {
    "classify": (["evaluate", "RUN", "--limit", "2", "--json"], ["classify", "RUN", str(IMAGE), "--json"]),
    "caption": (["evaluate", "RUN", "--limit", "2", "--json"], ["look", "RUN", str(IMAGE), "--json"]),
    "translate": (
        ["evaluate", "RUN", "--limit", "2", "--json"],
        ["translate", "RUN", "3 May 1999", "--unknown", "--json"],
    ),
    "translate-recurrent": (["look", "RUN", "3 May 1999", "--json"],),
}
DAMAGES = (
    "bit",
    "bit",
    "bit",
    "cut",
    "empty",
    "longer",
    "swap",
    "gone",
    "folder",
    "pipe",
    "endless",
    "zeros",
)
HUGE = (10**9, 10**12, 2**31, 2**63, 10**30, 10**400)
VALUES = (
    *HUGE,
    *(-x for x in HUGE[:4]),
    *(0, 1, 2, 3, 7, -1, 65536, 0.5, 1e308, -0.0, 1e-320),
    *(float("nan"), float("inf"), True, False, None),
    *("", "8", "x" * 100_000, "\x1b[2J", "../..", "/dev/zero", "\udc80", "\u202e", "none", "auto", "cuda:99"),
    *([], {}, [[]], [1, "a", None], ["a"] * 5000, {"a": {"b": 1}}, [float("nan")]),
)
TRAININGS = 0.02  # share of edited states that a training is asked to go on from
NO_ROOM = "there was not enough memory"


def fuzz(cases, place):
    """Damage a run for each case."""
    report = Report(cases.name, cases.seed)
    base = _base(place)
    for number, chance in cases:
        name = chance.choice(list(RUNS))
        folder = place / f"{number}" / name
        shutil.copytree(base / name, folder)
        try:
            (_damaged, _hostile, _hostile, _edited)[number % 4](report, chance, base, folder, name)
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)
    return report


def _base(place):
    """Finished runs that vouch for themselves, and one with checkpoints."""
    base = place / "base"
    for name in RUNS:
        shutil.copytree(HERE / name / "finished", base / name)
        write_manifest(base / name)
    shutil.unpack_archive(HERE / "classify/killed.zip", base / "trained")
    first = command("train", "classify", "--out", base / "trained", "--resume", seconds=120)
    assert first.code == 0, first.err
    return base


def _asked(chance, folder, name):
    words = chance.choice(RUNS[name])
    outcome = command(*(str(folder) if word == "RUN" else word for word in words))
    faults = outcome.faults() + (["memory"] if NO_ROOM in outcome.err else [])
    return outcome, faults


def _damaged(report, chance, base, folder, name):
    files = sorted(path for path in folder.iterdir() if path.suffix in {".json", ".safetensors"})
    path, damage = chance.choice(files), chance.choice(DAMAGES)
    _damage(chance, path, damage, base)
    outcome, faults = _asked(chance, folder, name)
    if outcome.code == 0 and not (path.name == "manifest.json" and damage == "gone"):
        faults.append("damage not noticed")
    report.add(f"{name}/{path.name} {damage}: {about(outcome)}", f"damage {ended(outcome)}", faults)


def _damage(chance, path, damage, base):
    whole = path.read_bytes()
    if damage == "bit":
        at = chance.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        path.write_bytes(flipped)
    elif damage == "cut":
        path.write_bytes(whole[: chance.randrange(len(whole))])
    elif damage == "longer":
        path.write_bytes(whole + bytes(chance.randrange(1, 100)))
    elif damage == "zeros":
        path.write_bytes(bytes(len(whole)))
    elif damage == "swap":
        others = [other for other in base.glob(f"*/{path.name}") if other.read_bytes() != whole]
        path.write_bytes(chance.choice(others).read_bytes() if others else b"{}")
    else:
        path.unlink()
        if damage == "empty":
            path.touch()
        elif damage == "folder":
            path.mkdir()
        elif damage == "pipe":
            os.mkfifo(path)
        elif damage == "endless":
            path.symlink_to("/dev/zero")


def _hostile(report, chance, base, folder, name):
    """Another value, under a manifest that vouches for it: as somebody would who means harm."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    part = chance.choice(["model", "model", "model", "data", "data", "train", ""])
    fields = config[part] if part else config
    for _ in range(chance.choice([1, 1, 2])):
        field = chance.choice(list(fields))
        fields[field] = chance.choice(VALUES)
    text = json.dumps(config)
    if chance.random() < 0.05:
        text = chance.choice(
            ["[" * 100_000, '{"a":' * 5000, text[:-1], "\ufeff" + text, "nul", '"x"', "1" * 9999]
        )
    path.write_text(text, encoding="utf-8")
    write_manifest(folder)
    outcome, faults = _asked(chance, folder, name)
    shown = json.dumps(fields)[:3000] if len(text) < 5000 else text[:40]
    report.add(f"{name} {part} {shown}: {about(outcome)}", f"config {ended(outcome)}", faults)


def _edited(report, chance, base, folder, name):
    """An edited state: it is named as damaged; now and then a whole training is asked to go on from it."""
    out = folder.parent / "run"
    shutil.copytree(base / "trained", out)
    path = max(out.glob("checkpoints/main/*/state.json"))
    state = json.loads(path.read_text())
    key = chance.choice([key for key in state if key not in {"crc32", "bytes", "state_sha256"}])
    now = chance.choice([x for x in VALUES if x != state[key]])
    if isinstance(state[key], int) and chance.random() < 0.7:
        now = state[key] + chance.choice([-1, 1])
    path.write_text(json.dumps(state | {key: now}))
    (out / "manifest.json").unlink()
    case = f"state {key}={now!r:.80}"
    damaged = [
        folder
        for folder in out.glob("checkpoints/main/*/")
        if folder.name.isdecimal() and _unreadable(folder)
    ]
    if chance.random() > TRAININGS:
        report.add(case, "state named", [] if len(damaged) == 1 else ["edit not noticed"])
        return
    outcome = command("train", "classify", "--out", out, "--resume", "--epochs", "4", seconds=60)
    noticed = "state.json is wrong" in outcome.err or "not JSON" in outcome.err
    faults = outcome.faults() + ([] if noticed else ["edit not noticed"])
    report.add(f"{case}: {about(outcome)}", f"state {ended(outcome)}", faults)


def _unreadable(folder):
    try:
        read_checkpoint(folder)
    except (ValueError, OSError):
        return True
    return False
