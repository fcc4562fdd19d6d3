"""Write what trainings give their models anew: ``python -m tests.golden.batches``.

A training's batches are the end of all that reads data: files, splits, words, pictures, augmentation, order.
``batches.json`` holds those of each case below as numbers that no other batches have: of two epochs the order
of the examples, and of their first and last batch every tensor that the model was called with; then the same
of the validation. Write them anew only where a batch is meant to change: a run would not go on as it began.
"""

import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path

import torch

import sightline as sl

HERE = Path(__file__).parent
DATA = HERE / "data"
LONG = "long words"  # a folder that is written for the case
_IMAGES = {"image_size": 12, "channels": 3, "patch": 4, "d_model": 4, "n_heads": 1, "n_layers": 1, "d_ff": 4}
_SMALL = {"d_model": 4, "n_heads": 1, "n_layers": 1, "d_ff": 4}
_SCENES = {"data": "scenes", "n_train": 23, "n_val": 5, "n_test": 3, "image_size": 24, "patch": 8, **_SMALL}
_SCENES |= {"preset": "default", "max_length": 9}
_DATES = {"data": "dates", "n_train": 41, "n_val": 11, "n_test": 7, "vocabulary": 400, "preset": "default"}
_DATES |= {"max_length": 31, **_SMALL}
AUGMENTS = {
    "crop": {"crop": 0.4},
    "shift": {"shift": 0.2},
    "shift within pixels": {"shift": 0.2, "subpixel": True},
    "zoom": {"zoom": 0.3},
    "rotate": {"rotate": 20.0},
    "shear": {"shear": 0.3},
    "flip": {"flip": 0.5},
    "colour": {"colour": 0.5},
    "rand": {"rand": 2},
    "rand, strong": {"rand": 3, "rand_strength": 1.0},
    "erase": {"erase": 0.6},
    "mixup": {"mixup": 0.4},
    "cutmix": {"cutmix": 0.7},
    "mixup or cutmix": {"mixup": 0.4, "cutmix": 0.7, "mix": 0.6},
    "all": {"crop": 0.5, "shift": 0.1, "zoom": 0.1, "rotate": 9.0, "flip": 0.5, "colour": 0.3, "erase": 0.4},
}


def _cases():
    folders = str(DATA / "classify/folders/files")
    for name, settings in AUGMENTS.items():
        yield f"classify {name}", "classify", {"data": folders, **_IMAGES, **settings}
    yield "classify digits", "classify", {"data": "digits", "patch": 4, **_SMALL}
    yield "classify a fold", "classify", {"data": "digits", "patch": 4, "folds": 7, "fold": 3, **_SMALL}
    yield "classify dealt anew", "classify", {"data": folders, "split_seed": 5, "deal": "0.1", **_IMAGES}
    yield "classify grey", "classify", {"data": folders, **_IMAGES, "channels": 1}
    for layout in sorted(x.name for x in (DATA / "classify").iterdir() if x.name != "problems"):
        yield f"classify {layout}", "classify", {"data": _place("classify", layout), **_IMAGES}
    for tokens in ("word", "bpe"):
        yield f"caption scenes, {tokens}", "caption", {**_SCENES, "tokens": tokens, "vocabulary": 70}
    yield "caption two words alike", "caption", {**_SCENES, "min_count": 4, "captions": 2}
    yield "caption words left out", "caption", {**_SCENES, "word_dropout": 0.4}
    yield "caption other scenes", "caption", {**_SCENES, "data_seed": 3}
    yield "caption augmented", "caption", {**_SCENES, "flip": 0.5, "shift": 0.2, "cached": False}
    for layout in sorted(x.name for x in (DATA / "caption").iterdir() if x.name != "problems"):
        place = {"data": _place("caption", layout), "preset": "default", "max_length": 9}
        yield f"caption {layout}", "caption", {**place, "image_size": 16, "patch": 8, **_SMALL}
    for name, settings in {
        "dates": {},
        "characters": {"tokens": "char"},
        "one vocabulary": {"joint": True},
        "lower case": {"lowercase": True},
        "cut at random": {"bpe_dropout": 0.3},
        "cut at random, in few ways": {"bpe_dropout": 0.3, "variants": 2},
        "by length": {"max_tokens": 150},
        "words left out": {"word_dropout": 0.3},
        "other dates": {"data_seed": 5},
    }.items():
        yield f"translate {name}", "translate", {**_DATES, **settings}
    settings = {
        "tokens": "bpe",
        "vocabulary": 60,
        "bpe_dropout": 0.2,
        "max_length": 400,
        "source": "en",
        **_SMALL,
    }
    yield "translate long words", "translate", {"data": LONG, "preset": "default", **settings}
    for layout in sorted(x.name for x in (DATA / "translate").iterdir() if x.name != "problems"):
        place = {"data": _place("translate", layout), "preset": "default", "vocabulary": 60}
        yield f"translate {layout}", "translate", {**place, "max_length": 17, **_SMALL}


def _place(kind, layout):
    files = DATA / kind / layout / "files"
    return str(next(files.iterdir()) if layout.startswith("npz") else files)


CASES = {name: (kind, settings) for name, kind, settings in _cases()}


class PreparedError(Exception):
    """A training that is not to begin: all that is asked for is what was prepared."""


def prepared(kind, settings, out):
    """What a training of a task starts from, by a task that stops there."""
    task, found = sl.tasks.task_of(kind), []

    def prepare(chosen, begun):
        found.append(task.prepare(chosen, begun))
        raise PreparedError

    sl.tasks.register(dataclasses.replace(task, kind="stops", prepare=prepare))
    try:
        with contextlib.suppress(PreparedError):
            sl.tasks.train("stops", out=out, device="cpu", threads=0, **settings)
    finally:
        sl.tasks.unregister("stops")
    return found[0]


def long_words(place):
    """A folder of pairs whose words have up to some thousand letters."""
    folder = place / "long"
    folder.mkdir()
    sizes = [3, 17, 41, 97, 193, 29, 11, 331] * 3
    for split, n in (("train", len(sizes)), ("val", 5)):
        for language, step in (("en", 7), ("de", 11)):
            words = [
                "".join(chr(97 + (i * i * step + j) % 6) for i in range(m)) for j, m in enumerate(sizes[:n])
            ]
            (folder / f"{split}.{language}").write_text("".join(f"{word} {word[::-1]}\n" for word in words))
    return str(folder)


def seen(name, out):
    """What the model is given: of the training in two epochs, and of the validation."""
    kind, settings = CASES[name]
    settings = settings if "max_tokens" in settings else {"batch_size": 7, **settings}
    settings = {**settings, "data": long_words(Path(out).parent)} if settings["data"] == LONG else settings
    start = prepared(kind, settings, out)
    model, objective, given = start.model.eval(), start.objective, []
    objective.prepare(torch.device("cpu"))
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():  # of some a model begins with zeros, and all losses are alike
            weight.normal_(std=0.2)
    handle = model.register_forward_pre_hook(
        lambda _, args, more: given.extend([*args, *more.values()]), with_kwargs=True
    )
    found = {"notes": [note.replace(settings["data"], "DATA") for note in start.notes]}
    with torch.no_grad():
        for epoch in (0, 1):
            plan = [list(map(int, batch)) for batch in objective.plan(epoch)]
            found[f"order {epoch}"] = _numbers(torch.tensor([y for x in plan for y in (len(x), *x)]))
            for batch in {0, len(plan) - 1}:
                torch.manual_seed(epoch)  # what a step draws itself
                part = objective.loss(model, objective.load(plan[batch], epoch))
                given.append(part.total)
            found[f"given {epoch}"], given[:] = [_numbers(x) for x in given if torch.is_tensor(x)], []
        objective.evaluate(model)
        found["validation"] = [_numbers(x) for x in given[:4] if torch.is_tensor(x)]
    handle.remove()
    return found


def _numbers(x):
    """A tensor as its size and two sums, one that tells its places apart."""
    x = x.detach().double().flatten()
    places = torch.arange(1, x.numel() + 1, dtype=torch.float64)
    return [x.numel(), round(float(x.sum()), 3), round(float((x * (places * 0.37).sin()).sum()), 3)]


def main():
    """Write all of them."""
    torch.set_num_threads(1)
    found = {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as out:
            found[name] = seen(name, f"{out}/run")
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(x)}" for name, x in found.items())
    (HERE / "batches.json").write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
