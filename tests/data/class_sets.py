"""Small sets of images with classes in each of the layouts, as a dictionary from path to content."""

import io
import json

import pyarrow as pa

from sightline.data.images import read_image
from tests.data.image_table_sets import parquet_bytes
from tests.data.picture_files import png

CLASSES = {"dog": 10, "cat": 7}
SEEDS = {f"{name}/{i:02d}.png": 100 * c + i for c, (name, n) in enumerate(CLASSES.items()) for i in range(n)}
PICTURES = {name: png(seed) for name, seed in SEEDS.items()}


def pixels_of(name):
    return read_image(io.BytesIO(PICTURES[name]), size=8)


def labels_table():
    rows = "".join(f"{name.replace('/', '_')},{name.partition('/')[0]}\n" for name in PICTURES)
    files = {f"images/{name.replace('/', '_')}": content for name, content in PICTURES.items()}
    return {"labels.csv": f"file,label\n{rows}".encode(), **files}


def metadata():
    rows = [{"file_name": name, "label": name.partition("/")[0], "text": "no"} for name in PICTURES]
    return {"metadata.jsonl": "\n".join(map(json.dumps, rows)).encode(), **PICTURES}


def parquet():
    features = {"label": {"names": ["dog", "cat"], "_type": "ClassLabel"}}
    table = pa.table(
        {
            "image": [{"bytes": content, "path": name} for name, content in PICTURES.items()],
            "label": [int(name.startswith("cat")) for name in PICTURES],
        }
    ).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    return {"data/all.parquet": parquet_bytes(table)}


LAYOUTS = {
    "folders": lambda: dict(PICTURES),
    "wrapped": lambda: {f"top/animals/{name}": content for name, content in PICTURES.items()},
    "labels": labels_table,
    "metadata": metadata,
    "parquet": parquet,
}
