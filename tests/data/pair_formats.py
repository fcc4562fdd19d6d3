"""The same sentence pairs in each of the formats of tables."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from sightline.data.pairs import Pair

PAIRS = [
    Pair("Go.", "Geh."),
    Pair("Wait, please.", "Warte, bitte."),
    Pair('He said "no".', 'Er sagte "nein".'),
]
CC = "CC-BY 2.0 (France) Attribution: tatoeba.org #2877272 (CM)"


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def csv_table(pairs, header="en,de", delimiter=","):
    rows = [delimiter.join(map(quoted, pair)) for pair in pairs]
    return "\r\n".join([*([header] if header else []), *rows]).encode()


def tatoeba(pairs):
    return "\n".join(f"{a}\t{b}" if i == 1 else f"{a}\t{b}\t{CC}" for i, (a, b) in enumerate(pairs)).encode()


def tatoeba_with_ids(pairs):
    return (
        "\ufeff".encode() + "\n".join(f"{i}\t{a}\t{i + 70}\t{b}" for i, (a, b) in enumerate(pairs)).encode()
    )


def hugging_face(pairs, **more):
    return "\n".join(json.dumps({**more, "translation": {"en": a, "de": b}}) for a, b in pairs).encode()


def as_list(pairs):
    return json.dumps([{"en": a, "de": b} for a, b in pairs]).encode()


def under_data(pairs):
    return json.dumps({"data": [{"id": 3, "translation": {"en": a, "de": b}} for a, b in pairs]}).encode()


def parquet(pairs, *, nested=False):
    columns = {"en": [a for a, _ in pairs], "de": [b for _, b in pairs]}
    nested_rows = {"id": list(range(len(pairs))), "translation": [{"en": a, "de": b} for a, b in pairs]}
    file = io.BytesIO()
    pq.write_table(pa.table(nested_rows if nested else columns), file)
    return file.getvalue()


FORMATS = {
    "csv": ("csv", csv_table, ("en", "de")),
    "csv without names": ("csv", lambda pairs: csv_table(pairs, ""), ("source", "target")),
    "semicolons": ("csv", lambda pairs: csv_table(pairs, "en;de", ";"), ("en", "de")),
    "words/sentences": (
        "csv",
        lambda pairs: csv_table(pairs, "English words/sentences,German words/sentences"),
        ("English", "German"),
    ),
    "tatoeba": ("txt", tatoeba, ("source", "target")),
    "tatoeba with ids": ("tsv", tatoeba_with_ids, ("source", "target")),
    "hugging face": ("jsonl", lambda pairs: hugging_face(pairs, id="7"), ("en", "de")),
    "lines in .json": ("json", hugging_face, ("en", "de")),
    "list": ("json", as_list, ("en", "de")),
    "data": ("json", under_data, ("en", "de")),
    "parquet": ("parquet", parquet, ("en", "de")),
    "nested parquet": ("parquet", lambda pairs: parquet(pairs, nested=True), ("en", "de")),
}
