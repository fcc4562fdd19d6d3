"""Small sets of images with captions in each of the layouts, as a dictionary from path to content."""

import json
import zipfile

from tests.data.picture_files import png

CAPTIONS = {
    "a.png": ["A red dog.", "The dog is red"],
    "b.png": ["Two men, standing", "two men"],
    "c.png": ["A café at night", "the café"],
}
SPLITS = {"a.png": "train", "b.png": "val", "c.png": "test"}


def images(folder):
    return {f"{folder}/{name}": png(seed) for seed, name in enumerate(CAPTIONS)}


def karpathy():
    entries = [
        {
            "filename": name,
            "split": SPLITS[name],
            "sentences": [{"raw": caption, "tokens": ["no"]} for caption in captions],
        }
        for name, captions in CAPTIONS.items()
    ]
    content = json.dumps({"dataset": "small", "images": entries})
    return {"set/dataset_small.json": content.encode(), **images("set/images")}


def coco():
    files = images("val2017")
    for split in ("train", "val", "test"):
        names = [name for name in CAPTIONS if SPLITS[name] == split]
        content = {
            "images": [{"id": 7 + i, "file_name": name} for i, name in enumerate(names)],
            "annotations": [
                {"image_id": 7 + i, "id": 0, "caption": caption}
                for i, name in enumerate(names)
                for caption in CAPTIONS[name]
            ],
        }
        files[f"annotations/captions_{split}2017.json"] = json.dumps(content).encode()
    files["annotations/instances_val2017.json"] = b"never read, so it need not be JSON"
    return files


def flickr_tokens():
    rows = [f"{name}#{i}\t{text}" for name, texts in CAPTIONS.items() for i, text in enumerate(texts)]
    files = {"text/Flickr8k.token.txt": "\n".join(rows).encode(), **images("Flicker8k_Dataset")}
    files["text/Flickr8k.lemma.token.txt"] = b"a.png#0\tno"
    for split, part in (("train", "train"), ("val", "dev"), ("test", "test")):
        names = [name for name in CAPTIONS if SPLITS[name] == split]
        files[f"text/Flickr_8k.{part}Images.txt"] = "\r\n".join(names).encode()
    return files


def flickr_lines():
    rows = [
        [name, f'"{text}"' if "," in text else text] for name, texts in CAPTIONS.items() for text in texts
    ]
    content = "\n".join(["image,caption", *map(",".join, rows)])
    return {"captions.txt": content.encode(), **images("Images")}


def flickr_bars():
    rows = [f"{name}| {i}| {text}" for name, texts in CAPTIONS.items() for i, text in enumerate(texts)]
    content = "\n".join(["image_name| comment_number| comment", *rows])
    return {"results.csv": content.encode(), **images("flickr30k_images")}


def table():
    rows = [[name, text, SPLITS[name]] for name, texts in CAPTIONS.items() for text in texts]
    content = "".join(f'{name},"{text}",{split}\r\n' for name, text, split in rows)
    return {"captions.csv": ("\ufeffFile,Caption,Split\r\n" + content).encode(), **images(".")}


LAYOUTS = {
    "karpathy": karpathy,
    "coco": coco,
    "flickr_tokens": flickr_tokens,
    "flickr_lines": flickr_lines,
    "flickr_bars": flickr_bars,
    "table": table,
}
STATED = ("karpathy", "coco", "flickr_tokens", "table")


def as_folder(files, folder):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def as_zip(files, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name.removeprefix("./"), content)
        file.writestr("__MACOSX/._dataset.json", b"never read")
    return path
