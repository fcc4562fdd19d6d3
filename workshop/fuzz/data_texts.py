"""Names of files, captions, sentences and tables that mean harm."""

import os

from tests.tiny import HERE
from workshop.fuzz.pictures import captioned, encoded, packed, picture

TEXTS = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\u202eever si siht",
    "a\x00dog",
    "\x1b]0;owned\x07\x1b[2J",
    "x" * 1_000_000,
    "word " * 200_000,
    "'; rm -rf ~ #",
    '"$(touch owned)"',
    "a\rb\x0bc\x0cd\x85e\u2028f",
    "=cmd|' /C calc'!A0",
    "\ud83d",
    "é" * 3,
    "e\u0301" * 3,
    "\ufeffa dog",
    "",
    "   ",
    "👨‍👩‍👧‍👦" * 1000,
    "ཧཱུྃ" * 500,
    "%s%n{0}{{}}\\x00\\u0000",
    "NaN",
    "None",
    "<eos> <pad> <unk>",
)
NAMES = (
    "a b.png",
    "a'b.png",
    'a"b.png',
    "a\nb.png",
    "\x1b[31mred.png",
    "$(touch owned).png",
    "; ls.png",
    "-rf.png",
    "é.png",
    "e\u0301.png",
    "\u202egnp.png",
    "x" * 200 + ".png",
    "..png",
    " .png",
    "CON.png",
    "a\\b.png",
    "ａ.png",
    "a\x9b2Jb.png",
    b"\xff\xfe.png",
)


def names(chance, folder):
    """Files with names that a terminal or a shell would obey."""
    root = folder / "set"
    root.mkdir()
    rows = ["image,caption"]
    for name in chance.sample(NAMES, 6):
        raw = (
            os.fsencode(root)
            + b"/"
            + (name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass"))
        )
        with open(raw, "wb") as file:  # noqa: PTH123 - a name in bytes
            file.write(encoded(picture(chance)) if chance.random() < 0.6 else b"no image")
        shown = os.fsdecode(name) if isinstance(name, bytes) else name
        rows.append('"' + shown.replace('"', '""') + '",a dog')
    (root / "captions.csv").write_bytes("\n".join(rows).encode("utf-8", "surrogateescape"))
    if chance.random() < 0.4:
        given = sorted(os.listdir(os.fsencode(root)))[:3]  # noqa: PTH208 - names in bytes
        return [
            "caption",
            str(HERE / "caption/finished"),
            *(os.fsdecode(os.fsencode(root) + b"/" + x) for x in given),
        ]
    return ["data", "check", str(root), *chance.choice([[], ["--json"]])]


def latin(chance, folder):
    """A table in another encoding, whose name is a command."""
    root = folder / "set"
    root.mkdir()
    name = chance.choice(
        ["captions.csv", "$(touch owned).csv", "a; touch owned;.csv", "\x1b[2J.csv", "it's.csv"]
    )
    (root / name).write_bytes("image,caption\n0.png,café\n".encode("latin-1"))
    (root / "0.png").write_bytes(encoded(picture(chance)))
    return ["data", "check", str(root / name if chance.random() < 0.6 else root)]


def captions(chance, folder):
    """Captions of every kind, checked or trained on for a step."""
    texts = [*chance.sample(TEXTS, 5), "a dog", "a cat"]
    place = packed(chance, folder, captioned(chance, 9, texts))
    if chance.random() < 0.5:
        return ["data", "check", str(place), *chance.choice([[], ["--json"]])]
    small = "--steps 1 --image-size 8 --patch 4 --d-model 4 --n-heads 2 --d-ff 4 --n-layers 1 --metric loss"
    tokens = chance.choice(["word", "bpe"])
    out = ["--data", str(place), "--out", str(folder / "run"), "--tokens", tokens, "--vocabulary", "60"]
    return ["train", "caption", *small.split(), *out, "--no-tensorboard"]


def sentences(chance, folder):
    """Pairs of texts, checked, trained on, or given to a run."""
    texts = [*chance.sample(TEXTS, 6), "guten Tag"]
    if chance.random() < 0.4:
        given = [text for text in texts if "\0" not in text and len(text) < 100_000][:3]
        return ["translate", str(HERE / "translate/finished"), "--unknown", "--json", "--", *given]
    root = folder / "set"
    root.mkdir()
    lines = [" ".join(text.split()) or "x" for text in texts] * 3
    for side in ("de", "en"):
        (root / f"train.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
        (root / f"val.{side}").write_text("a\nb\n")
    if chance.random() < 0.5:
        return ["data", "check", str(root), "--json"]
    small = "--steps 1 --d-model 4 --n-heads 2 --d-ff 4 --n-layers 1 --metric loss --vocabulary 300"
    return [
        "train",
        "translate",
        *small.split(),
        "--data",
        str(root),
        "--out",
        str(folder / "run"),
        "--no-tensorboard",
    ]


def tables(chance, folder):
    """Tables that are cut, quoted wrongly, too wide, or of another kind than their name says."""
    whole = b'image,caption\n0.png,"a dog, a cat"\n1.png,a cow\n'
    content = chance.choice(
        [
            whole[: chance.randrange(len(whole))],
            whole.replace(b'"', b"", 1),
            whole * 1000,
            b"," * 1_000_000,
            b'"' * 999_999,
            b"\n" * 1_000_000,
            b"image,caption\n" + b"0.png," + b"x" * 200_000 + b"\n",
            b"\xff\xfe" + whole.decode().encode("utf-16-le"),
            b"\xff\xfe" + whole,
            b"PK\3\4" + whole,
            b"PAR1" + whole + b"PAR1",
            bytes(chance.randrange(256) for _ in range(999)),
        ]
    )
    name = chance.choice(
        ["captions.csv", "captions.txt", "train.tsv", "train.jsonl", "train.parquet", "labels.csv"]
    )
    (folder / "set").mkdir()
    (folder / "set" / name).write_bytes(content)
    (folder / "set" / "0.png").write_bytes(encoded(picture(chance)))
    return ["data", "check", str(folder / "set"), "--json"]


SET_MAKERS = [names, latin, captions, sentences, tables]
