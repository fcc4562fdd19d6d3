"""Hostile shards: tars and parquet files that lie, are damaged, or hold names and texts that mean harm.

Each is checked, trained on for a step, streamed or not, or given to a run whose answers go into a table. What
is hostile is in train; val is sound.
"""

import io
import json
import tarfile

from sightline.data import stream
from tests.data.shard_sets import captioned, write_tar
from tests.tiny import HERE
from workshop.fuzz.pictures import encoded, picture

CAPTIONER = HERE / "caption/finished"
SMALL = "--steps 1 --image-size 8 --patch 4 --d-model 4 --n-heads 2 --d-ff 4 --n-layers 1 --metric loss"
NAMES = (
    "../../owned.png",
    "/owned.png",
    "a/../../owned.png",
    "x" * 300 + ".png",
    "\x1b[2J.png",
    "\udc80.png",
    "$(touch owned).json",
    ".png",
    "a..png",
    "0000.png",
    "0001.PNG",
    "\u202e.txt",
    "a\nb.json",
)
ROWS = (
    b"{}",
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe",
    b"[" * 5000,
    b"1" * 9999,
    b'{"caption": null}',
    b'{"caption": [[]]}',
    b'{"captions": [1, {}, "a dog"]}',
    b'{"captions": "a\\u0000dog \\ud800 \\u001b[2J"}',
    b'{"label": 1e999, "caption": NaN}',
    b'{"label": {"a": 1}}',
    b'{"de": "a", "en": ["b"]}',
    b'{"caption": "' + b"x" * 300_000 + b'"}',
    b'{"caption": "' + b"x" * 1_100_000 + b'"}',
)
KINDS = (
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.FIFOTYPE,
    tarfile.DIRTYPE,
    tarfile.GNUTYPE_SPARSE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    b"Z",
)


def tar_shard(chance, folder):
    """A tar with one to three strange members, now and then damaged or cut."""
    members = [*_sound(chance, 7)]
    for _ in range(chance.choice([1, 2, 3])):
        members.insert(chance.randrange(len(members)), _strange(chance))
    content = io.BytesIO()
    form = chance.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(fileobj=content, mode="w", format=form, errors="surrogateescape") as tar:
        for member, data in members:
            _add(tar, member, data)
    (folder / "set").mkdir()
    (folder / "set/train-000000.tar").write_bytes(_damaged(chance, content.getvalue()))
    return _words(chance, folder)


def _sound(chance, n):
    for i in range(n):
        yield _member(f"{i:04d}.png"), encoded(picture(chance, size=(9, 7)))
        yield _member(f"{i:04d}.json"), b'{"captions": ["a dog number %d"], "label": "dog"}' % i


def _member(name):
    return tarfile.TarInfo(name)


def _strange(chance):
    way = chance.randrange(3)
    if way == 0:
        return _member(chance.choice(NAMES)), encoded(picture(chance, size=(9, 7)))
    if way == 1:
        return _member(f"row{chance.randrange(9)}.{chance.choice(['json', 'txt', 'cls'])}"), chance.choice(
            ROWS
        )
    member = _member("strange.png")
    member.type = chance.choice(KINDS)
    member.linkname = chance.choice(["/dev/zero", "../../etc/passwd", "strange.png", ""])
    member.size = chance.choice([0, 512, 10**6, 8**11 - 1])
    return member, b""


def _add(tar, member, data):
    """As it is, even where the library knows better: a name that it can't write, a size that is not there."""
    if member.isreg():
        member.size = len(data)
    try:
        head = member.tobuf(tar.format, "utf-8", "surrogateescape")
    except (ValueError, UnicodeError):
        return
    tar.fileobj.write(head + data + bytes(-len(data) % 512))
    tar.offset = tar.fileobj.tell()


def parquet_shard(chance, folder):
    """A parquet file with columns of other types than they should have, now and then damaged or cut."""
    import pyarrow as pa
    from pyarrow import parquet

    images = [encoded(picture(chance, size=(9, 7))) for _ in range(5)]
    columns = {
        "image": chance.choice(
            [
                [{"bytes": data, "path": "a.png"} for data in images],
                [{"bytes": None, "path": "/dev/zero"}] * 5,
                [{"bytes": b"no image", "path": None}] * 5,
                images,
                ["../../etc/passwd", "/dev/zero", "a.png", "", None],
                [None] * 5,
                [1, 2, 3, 4, 5],
            ]
        ),
        "caption": chance.choice(
            [
                ["a dog"] * 5,
                [["a dog", "a cat"]] * 5,
                ["\x1b[2J", "a\x00b", "", " ", None],
                ["x" * 1_000_000] * 5,
                [1.5, float("nan"), 2.0, 3.0, 4.0],
                [{"a": "b"}] * 5,
                [b"\xff"] * 5,
                [[]] * 5,
            ]
        ),
    }
    if chance.random() < 0.3:
        columns["label"] = chance.choice([[0, 1, 0, 1, -7], [None] * 5, ["a"] * 5, [2**62] * 5, [[1]] * 5])
    if chance.random() < 0.2:
        columns = {"de": columns["caption"], "en": ["a dog"] * 5}
    out = io.BytesIO()
    table = pa.table(columns)
    if chance.random() < 0.2:
        table = table.replace_schema_metadata(
            {"huggingface": json.dumps({"info": chance.choice([[], 1, "x"])})}
        )
    parquet.write_table(table, out, row_group_size=chance.choice([1, 5]))
    (folder / "set").mkdir()
    (folder / "set/train-000000.parquet").write_bytes(_damaged(chance, out.getvalue()))
    return _words(chance, folder)


def pattern(chance, folder):
    """Names that stand for shards: too many, none, or what a terminal obeys."""
    names = (
        "{0..99999999}.tar",
        "{9..0}.tar",
        "{a,b}" * 20,
        "[",
        "*",
        "{" * 99,
        "{0..1}\x1b.tar",
        "**/*.tar",
    )
    given = chance.choice(
        [chance.choice(names), str(folder / chance.choice(names)), "{0.." + "9" * 5000 + "}.tar"]
    )
    return ["data", "check", given, "--json"]


def _damaged(chance, data):
    if chance.random() < 0.5:
        return data
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 12)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.choice([len(changed), chance.randrange(len(changed))])])


def _sound_shard(path):
    """A shard that is as it should be."""
    if path.suffix == ".tar":
        write_tar(path, captioned(2))
        return
    from pyarrow import Table, parquet

    content = [data for name, data in captioned(2) if name.endswith(".png")]
    rows = [{"image": {"bytes": data, "path": "a.png"}, "caption": "a dog"} for data in content]
    parquet.write_table(Table.from_pylist(rows), path)


def _words(chance, folder):
    place = str(folder / "set")
    _sound_shard(next((folder / "set").glob("train-*")).with_stem("val-000000"))
    stream.BUFFER_BYTES = chance.choice([300, 1 << 28])
    train = ["--out", str(folder / "run"), "--tokens", "word", "--vocabulary", "60", "--no-tensorboard"]
    return chance.choice(
        [
            ["data", "check", place, "--json"],
            ["data", "check", place],
            ["train", "caption", "--data", place, *SMALL.split(), *train],
            [
                "caption",
                str(CAPTIONER),
                place,
                "--out",
                str(folder / chance.choice(["x.jsonl", "x.parquet"])),
            ],
        ]
    )


SHARD_MAKERS = [tar_shard, tar_shard, parquet_shard, pattern]
