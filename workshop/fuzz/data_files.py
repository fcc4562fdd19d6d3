"""Files that are no files, and archives, arrays and JSON that lie."""

import json
import os
import socket
import struct
import warnings
import zipfile

import numpy as np

from tests.tiny import HERE
from workshop.fuzz.pictures import captioned, encoded, picture


def special_file(chance, folder):
    """A pipe, a device, a link in a circle, a folder, in place of an image or a table."""
    files = captioned(chance, 4)
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in (*chance.sample(names, 4), "captions.csv", "captions.csv"):
                archive.writestr(name, "image,caption\n../../owned,a dog\n0.png,a cat\n")
        archive.writestr("0.png", encoded(picture(chance)))
    return ["data", "check", str(folder / "set.zip"), "--json"]


def zip_damaged(chance, folder):
    with zipfile.ZipFile(folder / "set.zip", "w", chance.choice([0, 8, 12, 14])) as archive:
        for name, content in captioned(chance, 4).items():
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
