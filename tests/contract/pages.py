"""What a saved page holds, read from the page as its script reads it."""

import base64
import json
import re
import zlib

import numpy as np
import torch

_DATA = re.compile(r'<script type="application/json" data-explorer>(.*?)</script>', re.DOTALL)


def data_of(page):
    """The data of a page: ``meta``, ``stored`` (one for each recording that is shown) and ``options``."""
    return json.loads(_DATA.search(page)[1])


def unpacked(stored):
    """The numbers of a layer, or of a line of numbers, and the largest rounding of them."""
    data = np.frombuffer(zlib.decompress(base64.b64decode(stored["packed"])), np.uint8)
    low, high = data[: data.size // 2].astype(np.uint16), data[data.size // 2 :].astype(np.uint16)
    steps = np.array(stored["steps"])
    whole = (low + 256 * high).reshape(stored["shape"]) * steps.reshape(
        -1, *(1,) * (len(stored["shape"]) - 1)
    )
    return torch.from_numpy(whole), float(steps.max())


def told(meta):
    """What a page says of what it shows: pictures as marks, numbers to four digits."""
    image = meta["image"]
    image = image if image is None else {**image, "url": image["url"].partition(",")[0]}
    return rounded(meta | {"image": image, "stored": meta["stored"].partition(" to within ")[0]})


def rounded(value):
    """A value of JSON whose numbers have four digits."""
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
