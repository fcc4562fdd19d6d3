"""Hostile data: bombs, slips, files that lie about themselves, names and captions that mean harm.

Each case is a small sound set with one hostile thing in it, and is checked, trained on for a step, or given
to a run: answered or refused in a sentence, within seconds and a few gigabytes, and nothing in it runs.
"""

import io
import json
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from tests.fuzz.pictures import encoded, picture
from tests.fuzz.report import Report, about, ended
from tests.fuzz.runs import HERE, NO_ROOM
from tests.fuzz.sandbox import command
from tests.fuzz.shards import SHARD_MAKERS

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


def fuzz(cases, place):
    """Build a hostile set for each case and have it read: every kind once, then any."""
    report = Report(cases.name, cases.seed)
    makers = [*IMAGE_MAKERS, *FILE_MAKERS, *SET_MAKERS, *SHARD_MAKERS]
    for number, chance in cases:
        folder = place / str(number)
        folder.mkdir()
        maker = makers[number] if number < len(makers) else chance.choice(makers)
        try:
            words = maker(chance, folder)
            outcome = command(*words, megabytes=4000, seconds=40)
        finally:
            _remove(folder)
        faults = outcome.faults() + (["memory"] if NO_ROOM in outcome.err else [])
        faults += ["something ran"] if Path("owned").exists() else []
        report.add(f"{maker.__name__}: {about(outcome)}", f"{words[0]} {ended(outcome)}", faults)
    return report


def _remove(folder):
    import shutil

    shutil.rmtree(os.fsencode(folder), ignore_errors=True)


# Images: each maker gives the bytes of one, or a name for it


def png_bomb(chance):
    """A PNG of a few kilobytes with millions of pixels: around the limit, and far beyond."""
    side = chance.choice([8192, 8193, 16384, 60000, 2**31 - 1])
    row = b"\0" + bytes(min(side, 1 << 16) * 3)
    return _png(side, side, zlib.compress(row * 512, 1))


def truncated(chance):
    data = encoded(picture(chance), chance.choice(["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"]))
    return data[: chance.randrange(len(data))]


def flipped(chance):
    data = bytearray(encoded(picture(chance), chance.choice(["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])))
    for _ in range(chance.randrange(1, 9)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def mislabelled(chance):
    heads = (
        b"%PDF-1.7",
        b"#!/bin/sh\ntouch owned\n",
        b"%!PS-Adobe",
        b"<svg onload=alert(1)>",
        b"MZ",
        b"PK\3\4",
    )
    return chance.choice(heads) + bytes(chance.randrange(200))


def modes(chance):
    mode, kind = chance.choice(
        [
            ("CMYK", "JPEG"),
            ("L", "JPEG"),
            ("1", "PNG"),
            ("P", "PNG"),
            ("LA", "PNG"),
            ("RGBA", "PNG"),
            ("I;16", "PNG"),
            ("I", "TIFF"),
            ("F", "TIFF"),
            ("CMYK", "TIFF"),
            ("LAB", "TIFF"),
            ("YCbCr", "JPEG"),
        ]
    )
    return encoded(picture(chance, mode), kind)


def exif(chance):
    image = picture(chance)
    notes = Image.Exif()
    notes[0x0112] = chance.choice([0, 1, 3, 5, 6, 8, 9, 255, 65535])
    data = bytearray(encoded(image, "JPEG", exif=notes.tobytes()))
    if chance.random() < 0.5:
        data[chance.randrange(20, min(80, len(data)))] = chance.randrange(256)
    return bytes(data)


def animated(chance):
    frames = [picture(chance, size=(9, 7)) for _ in range(chance.choice([2, 3, 300]))]
    return encoded(frames[0], chance.choice(["GIF", "WEBP"]), save_all=True, append_images=frames[1:])


def extreme(chance):
    return encoded(picture(chance, size=chance.choice([(1, 1), (1, 5000), (60000, 1), (3, 20000)])))


def ancillary_bomb(chance):
    """A text chunk of a PNG that unpacks to a hundred megabytes."""
    chunk = b"zTXt" + b"k\0\0" + zlib.compress(bytes(100 << 20), 9)
    head = encoded(picture(chance, size=(9, 7)))
    return head[:33] + _chunk(chunk) + head[33:]


def icc_profile(chance):
    return encoded(picture(chance), "PNG", icc_profile=bytes(chance.randrange(256) for _ in range(300)))


def _chunk(body):
    return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))


def _png(width, height, body):
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(head) + _chunk(b"IDAT" + body) + _chunk(b"IEND")


def _image_case(make):
    def case(chance, folder):
        way = chance.randrange(4)
        name = "hostile.png"
        if way == 0:
            (folder / name).write_bytes(make(chance))
            return ["caption", str(HERE / "caption/finished"), str(folder / name), "--json"]
        if way == 1:
            (folder / name).write_bytes(make(chance))
            return ["classify", str(HERE / "classify/finished"), str(folder / name), "--json"]
        files = _captioned(chance, 5)
        files["3.png"] = make(chance)
        return ["data", "check", str(_set(chance, folder, files)), "--json"]

    case.__name__ = make.__name__
    return case


def _captioned(chance, n, texts=()):
    names = [f"{i}.png" for i in range(n)]
    captions = [*texts, *("a small dog on the grass",) * n][:n]
    table = io.StringIO()
    import csv

    writer = csv.writer(table)
    writer.writerow(["image", "caption"])
    writer.writerows(zip(names, captions, strict=True))
    files = {name: encoded(picture(chance, size=(9, 7))) for name in names}
    return files | {"captions.csv": table.getvalue().encode("utf-8", "surrogatepass")}


def _set(chance, folder, files):
    """A folder or a zip of files."""
    if chance.random() < 0.3:
        with zipfile.ZipFile(folder / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return folder / "set.zip"
    (folder / "set").mkdir()
    for name, content in files.items():
        (folder / "set" / name).write_bytes(content)
    return folder / "set"


IMAGE_MAKERS = [
    _image_case(make)
    for make in (
        *(png_bomb, truncated, flipped, mislabelled, modes, exif, animated, extreme),
        *(ancillary_bomb, icc_profile),
    )
]


# Files that are no files, and archives that lie


def special_file(chance, folder):
    """A pipe, a device, a link in a circle, a folder, in place of an image or a table."""
    files = _captioned(chance, 4)
    name = chance.choice(["captions.csv", "2.png"])
    del files[name]
    root = folder / "set"
    root.mkdir()
    for other, content in files.items():
        (root / other).write_bytes(content)
    kind = chance.choice(["pipe", "endless", "circle", "folder", "socket", "missing"])
    if kind == "pipe":
        os.mkfifo(root / name)
    elif kind == "folder":
        (root / name).mkdir()
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(root / name)[:100])
    else:
        (root / name).symlink_to({"endless": "/dev/zero", "circle": name, "missing": "nowhere"}[kind])
    (root / "round").symlink_to(".")
    return ["data", "check", str(root), "--json"]


def special_input(chance, folder):
    """The same as what a command is given."""
    os.mkfifo(folder / "pipe.png")
    given = chance.choice(
        ["/dev/zero", "/dev/null", "/proc/self/mem", str(folder / "pipe.png"), str(folder), "/dev"]
    )
    return chance.choice(
        [
            ["data", "check", given, "--json"],
            ["caption", str(HERE / "caption/finished"), given, "--json"],
            ["look", str(HERE / "translate/finished"), given, "--json"],
            ["evaluate", given, "--json"],
            ["check", given],
            ["train", "classify", "--data", given, "--out", str(folder / "run"), "--steps", "1"],
        ]
    )


def zip_bomb(chance, folder):
    """A table, an image or parquet of a gigabyte of zeros, and a zip in a zip."""
    name = chance.choice(
        ["captions.csv", "captions.json", "train.jsonl", "1.png", "train.parquet", "train.de"]
    )
    size = chance.choice([20 << 20, 60 << 20, 200 << 20])
    with zipfile.ZipFile(folder / "set.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(name, "w", force_zip64=True) as file:
            line = b"a.png,a dog\n" * 87382 if name.endswith("csv") else bytes(1 << 20)
            for _ in range(size >> 20):
                file.write(line)
        archive.writestr("a.png", encoded(picture(chance)))
    return ["data", "check", str(folder / "set.zip"), "--json"]


def zip_slip(chance, folder):
    """Names that point out of the archive, twice the same, absolute, or too long."""
    names = [
        "../../owned",
        "/owned",
        "..\\owned",
        "a/../../owned",
        "x" * 5000,
        "a\0b",
        "a//b",
        "./a",
        "con",
    ]
    with zipfile.ZipFile(folder / "set.zip", "w") as archive:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in (*chance.sample(names, 4), "captions.csv", "captions.csv"):
                archive.writestr(name, "image,caption\n../../owned,a dog\n0.png,a cat\n")
        archive.writestr("0.png", encoded(picture(chance)))
    return ["data", "check", str(folder / "set.zip"), "--json"]


def zip_damaged(chance, folder):
    with zipfile.ZipFile(folder / "set.zip", "w", chance.choice([0, 8, 12, 14])) as archive:
        for name, content in _captioned(chance, 4).items():
            archive.writestr(name, content)
    data = bytearray((folder / "set.zip").read_bytes())
    for _ in range(chance.randrange(1, 12)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    (folder / "set.zip").write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
    return ["data", "check", str(folder / "set.zip"), "--json"]


def npz(chance, folder):
    """Arrays whose headers lie, hold objects, or are cut."""
    images = np.zeros((6, 4, 4), dtype=np.uint8)
    path = folder / "set.npz"
    np.savez(path, images=images, labels=np.arange(6) % 2)
    shapes = [(10**12,), (2**62, 4), (-1, 4), (0,), (6, 0, 4), (6, 4, 4, 10**9), (1,) * 60, (6, 4, 5)]
    kinds = ["|u1", "<f8", "|O", "<U1000000", "|V8", "<c16", "<M8[s]", ">i4", "|b1"]
    with zipfile.ZipFile(folder / "lie.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("images.npy", "labels.npy"):
            if chance.random() < 0.5:
                archive.writestr(name, zipfile.ZipFile(path).read(name))
                continue
            about_it = {"descr": chance.choice(kinds), "fortran_order": False, "shape": chance.choice(shapes)}
            text = (
                repr(about_it)
                if chance.random() < 0.8
                else chance.choice(["(" * 9000, "{}", "1" * 5000, "\0"])
            )
            text = text.ljust(118) + "\n"
            head = b"\x93NUMPY\x01\x00" + struct.pack("<H", min(len(text), 65535)) + text.encode()
            archive.writestr(name, head + bytes(chance.choice([0, 96, 100_000])))
    return chance.choice(
        [
            ["data", "check", str(folder / "lie.npz"), "--json"],
            [
                "train",
                "classify",
                "--data",
                str(folder / "lie.npz"),
                "--out",
                str(folder / "run"),
                "--steps",
                "1",
            ],
        ]
    )


def deep_json(chance, folder):
    name = chance.choice(
        ["captions_train.json", "dataset.json", "train.jsonl", "metadata.jsonl", "train.json"]
    )
    n = chance.choice([150, 5000, 200_000])
    text = chance.choice(
        ["[" * n, '{"images":' * n, "[" * n + "]" * n, '{"a":1,' * n, '"' + "[" * n, "1" * n, "-" * n]
    )
    (folder / "set").mkdir()
    (folder / "set" / name).write_text(text)
    (folder / "set" / "a.png").write_bytes(encoded(picture(chance)))
    return ["data", "check", str(folder / "set"), "--json"]


def strange_json(chance, folder):
    """A known format with values of other types in it."""
    values = [None, 1, -1, 1e999, "x", [], {}, [[]], True, "\ud800", 10**30, "../../etc/passwd", {"a": None}]
    any_of = chance.choice
    images = [
        {"id": any_of([1, any_of(values)]), "file_name": any_of(["0.png", any_of(values)])} for _ in range(3)
    ]
    notes = [{"id": 1, "image_id": any_of([1, any_of(values)]), "caption": any_of(["a dog", any_of(values)])}]
    content = any_of(
        [
            {"images": images, "annotations": notes},
            {"images": any_of(values), "annotations": notes},
            {"images": [any_of(values)] * 3, "annotations": [any_of(values)]},
            {"images": [{"filename": any_of(["0.png", any_of(values)]), "split": any_of(values),
                         "sentences": any_of([[{"raw": any_of(values)}], any_of(values)])}]},
            {"0.png": any_of(values)},
            any_of(values),
        ]
    )  # fmt: skip
    (folder / "set").mkdir()
    (folder / "set" / any_of(["captions_train.json", "dataset.json"])).write_text(json.dumps(content))
    (folder / "set" / "0.png").write_bytes(encoded(picture(chance)))
    return ["data", "check", str(folder / "set"), "--json"]


FILE_MAKERS = [special_file, special_input, zip_bomb, zip_slip, zip_damaged, npz, deep_json, strange_json]


# Names and texts


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
    place = _set(chance, folder, _captioned(chance, 9, texts))
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
