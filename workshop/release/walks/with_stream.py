"""Images in shards that are streamed."""

import io
import tarfile
from pathlib import Path

import numpy as np

from sightline.data.shard_rows import IMAGE, LABEL
from sightline.data.shards import Shards
from sightline.data.stream import Stream

with tarfile.open("train-000000.tar", "w") as tar:
    for name, content in (
        (f"{i}.{end}", x) for i in range(9) for end, x in (("png", b"image"), ("cls", b"0"))
    ):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
shards = Shards([Path("train-000000.tar")], "train-000000.tar", IMAGE | LABEL)
stream = Stream(shards, np.arange(9), batch_size=3, seed=0)
found = [stream.read(places, 0) for places in stream.plan()]
assert sorted(i for indices, _ in found for i in indices) == list(range(9))
assert {image for _, images in found for image in images} == {b"image"}
print("shards that are streamed")
