"""Small sets of images with captions in Hugging Face's layouts, as a dictionary from path to content."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.data.caption_sets import CAPTIONS, SPLITS, images
from tests.data.picture_files import png

NAMES = list(CAPTIONS)


def jsonl(rows):
    return "\n".join(map(json.dumps, rows)).encode()


def metadata_above():
    rows = [{"file_name": f"{SPLITS[n]}/{n}", "text": t} for n, texts in CAPTIONS.items() for t in texts]
    return {"metadata.jsonl": jsonl(rows), **{f"{SPLITS[n]}/{n}": png(i) for i, n in enumerate(NAMES)}}


def metadata_in_splits():
    files = {}
    for i, name in enumerate(NAMES):
        folder = {"val": "validation"}.get(SPLITS[name], SPLITS[name])
        files[f"set/{folder}/metadata.jsonl"] = jsonl([{"File_Name": name, "Captions": CAPTIONS[name]}])
        files[f"set/{folder}/{name}"] = png(i)
    return files


def metadata_table():
    rows = "".join(f'{n},"{t}",{SPLITS[n]}\n' for n, texts in CAPTIONS.items() for t in texts)
    return {"metadata.csv": f"File_Name,Text,split\n{rows}".encode(), **images(".")}


def parquet_bytes(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def parquet_structs():
    files = {"dataset_infos.json": b"{}"}
    for split in ("train", "val", "test"):
        rows = [{"bytes": png(i), "path": None} for i, n in enumerate(NAMES) if SPLITS[n] == split]
        texts = [CAPTIONS[n] for n in NAMES if SPLITS[n] == split]
        name = {"val": "validation"}.get(split, split)
        table = pa.table({"image": rows, "caption": texts})
        files[f"data/{name}-00000-of-00001.parquet"] = parquet_bytes(table)
    return files


def parquet_paths():
    table = pa.table(
        {
            "file_name": NAMES,
            "caption_0": [CAPTIONS[n][0] for n in NAMES],
            "caption_1": [CAPTIONS[n][1] for n in NAMES],
            "split": [SPLITS[n] for n in NAMES],
        }
    )
    return {"all.parquet": parquet_bytes(table, row_group_size=2), **images("images")}


LAYOUTS = {
    f.__name__: f
    for f in (metadata_above, metadata_in_splits, metadata_table, parquet_structs, parquet_paths)
}
