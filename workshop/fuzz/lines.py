"""Command lines: every command and flag there is, with values that nobody meant.

Flags are those of ``tests/golden/flags.json``, so that a new one is fuzzed from its first day.
"""

import itertools
import json
from pathlib import Path

from tests.sandbox import commands
from tests.tiny import HERE, IMAGE, INPUTS, TINY
from workshop import ROOT
from workshop.fuzz.report import Report, about, ended

FLAGS = json.loads((ROOT / "tests/golden/flags.json").read_text(encoding="utf-8"))
NUMBERS = (
    *("0", "1", "2", "3", "7", "-1", "-0", "+5", " 5", "5 ", "05", "0x10", "1_000", "1e3", "1.5", "-1e-320"),
    *("999999999999", "1000000000", "2147483648", "9223372036854775808", "1" * 5000, "-" + "9" * 30),
    *("nan", "inf", "-inf", "NaN", "1e309", "1e308", "none", "None", "", "٣", "１", "½", "true", "--", "-"),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "x" * 5000,
        "\x1b[2J",
        "a\nb",
        "\u202e",
        "é",
        "none",
        "auto",
        "all",
        "*",
        "[",
        "../nowhere",
        "~",
    ),
    *(
        "meta",
        "cuda:99",
        "cpu:7",
        "gpu",
        "mps",
        "xpu",
        "vulkan",
        "cuda:-1",
        "scenes",
        "dates",
        "digits",
        "loss",
    ),
    *(
        "/dev/zero",
        "/dev/null",
        "/proc/self/mem",
        "/dev",
        ".",
        "nowhere",
        "$(touch owned)",
        "'",
        '"',
        "\udc80",
    ),
    *("train", "test", "val", "transformer", "recurrent", "tiny", "default", "word", "bpe", "en", "layer.0"),
)
OUTS = (
    "x.png",
    "x.html",
    "x.svg",
    "x.xyz",
    "x",
    "",
    ".",
    "/dev/null/x.png",
    "a/b/c.png",
    "x" * 300,
    "\x1b.png",
)
TOGETHER = 20  # lines of one child
NEVER = {"--compile", "--tensorboard", "--help-all", "--help", "--cache", "--encoder", "--finetune"}
# A training takes as long as five other commands: every tenth line is one.
KINDS = (
    "predict",
    "predict",
    "evaluate",
    "evaluate",
    "look",
    "look",
    "train",
    "positions",
    "data",
    "table",
    "any",
)
RUNS = {"caption": "caption", "translate": "translate", "classify": "classify"}


def fuzz(cases, place):
    """Type a command for each case."""
    report = Report(cases.name, cases.seed)
    while some := list(itertools.islice(cases, TOGETHER)):
        lines = [_words(chance, place / f"out-{number}") for number, chance in some]
        for outcome in commands(lines, seconds=60):
            faults = outcome.faults()
            faults += ["something ran"] if Path("owned").exists() else []
            report.add(about(outcome), f"{_first(outcome.words)} {ended(outcome)}", faults)
    return report


def _first(words):
    """The command, for the counts."""
    known = {name.split()[1] for name in FLAGS if " " in name}
    return words[0] if words and words[0] in known else "no command"


def _words(chance, out):
    kind = chance.choice(KINDS)
    if kind == "any":
        return _anything(chance)
    if kind == "train":
        name = chance.choice(list(TINY))
        base = [*name.split(), *TINY[name].split(), "--out", str(out), "--no-tensorboard", "--threads", "0"]
        return _with_flags(chance, f"sightline {name}", base)
    task = chance.choice(list(RUNS))
    run = str(HERE / RUNS[task] / "finished")
    if chance.random() < 0.1:
        run = chance.choice(TEXTS)
    if kind == "table":
        given = chance.choice([*INPUTS[task][:1], *TEXTS, str(IMAGE.parent)])
        base = [task, run, given, "--out", f"{out}.jsonl"]
        return _with_flags(chance, f"sightline {task}", base, out)
    if kind == "evaluate":
        base = ["evaluate", run, "--limit", "2"]
    elif kind == "positions":
        base = ["positions", "--out", f"{out}.png"]
    elif kind == "data":
        base = ["data", "check", chance.choice(["scenes", "digits", "dates", *TEXTS])]
    elif kind == "look":
        base = ["look", run, *INPUTS[task][:1]]
    else:
        base = [task, run, *INPUTS[task]]
    return _with_flags(chance, f"sightline {'data check' if kind == 'data' else base[0]}", base, out)


def _with_flags(chance, name, base, out=None):
    """A command with one to three of its flags, each with some value."""
    options = [flag for flag in FLAGS[name] if "option" in flag and flag["option"] not in NEVER]
    for flag in chance.sample(options, min(len(options), chance.choice([1, 1, 2, 3]))):
        names = flag["option"].split("/")
        if flag["type"] == "bool":
            base.append(chance.choice(names).split(",")[0].strip())
            continue
        option = names[0].split(",")[0].strip()
        if option == "--out" and "train" in base:
            continue
        base += [option, _value(chance, flag, out)]
    return base


def _value(chance, flag, out):
    if flag["option"] == "--out" and out is not None:
        name = chance.choice(OUTS)
        return name if name.startswith("/") or not name else f"{out}-{name}"
    if flag.get("default") is not None and chance.random() < 0.25:
        return str(flag["default"])  # what somebody means
    numbers = any(word in flag["type"].lower() for word in ("int", "number", "float"))
    usual = NUMBERS if numbers else TEXTS
    return chance.choice(usual if chance.random() < 0.85 else (*NUMBERS, *TEXTS))


def _anything(chance):
    words = [
        *(name.rpartition(" ")[2] for name in FLAGS),
        "--help",
        "--version",
        "-h",
        "--help-all",
        *TEXTS,
        *NUMBERS,
    ]
    found = [chance.choice(words) for _ in range(chance.randrange(4))]
    slow = {"demo", "serve", "look", "train"}
    return [word for word in found if word not in slow]
