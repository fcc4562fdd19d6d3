"""Hostile uploads and as many questions that make no sense, sent to the app of a run.

    python -m workshop.fuzz.uploads RUN 1000

Images of every kind are cut, flipped, spliced and lied about; forms are broken; names point elsewhere.
Whatever comes, the answer is a result or one sentence with a status of the client's (4xx), never a traceback;
nothing is written to the disk.
"""

import collections
import io
import os
import random
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from PIL import Image

from tests.serve.client import Client

NAMES = [
    "a.png",
    "../../../etc/passwd",
    "..\\..\\windows\\system32",
    "/var/x.png",
    "a" * 5000,
    "%2e%2e%2fa",
    "nul%00.png",
    "\u202egnp.a",
    "",
    "<script>.png",
]
KNOWN = ["JPEG", "PNG", "WEBP", "GIF", "BMP"]
FORMATS = [*KNOWN, *KNOWN, *KNOWN, "TIFF", "PPM", "JPEG2000", "ICO", "PDF", "TGA"]
HEADERS = ["image/png", "image/svg+xml", "text/html", "multipart/form-data; boundary=x", "\x00"]


FIELDS = ["sight", "head", "queries", "keys", "size", "query", "key", "n", "text", "span", "letters", "of"]
VALUES = [0, 1, 5, -1, 10**6, 2**70, 1.5, None, True, "mean", "x" * 40, [], [0, 9], [3, 1], [-1, 2], {"a": 1}]


def attack(client, n, seed=0, scratch=None):
    """Send n hostile uploads; the number of answers of each status, and what was wrong with any of them."""
    dice = random.Random(seed)  # noqa: S311
    counts, faults = collections.Counter(), []
    before = files(scratch)
    for i in range(n):
        body, headers = form(dice, hostile(dice))
        response = client.post("/api/look", content=body, headers=headers)
        counts[response.status_code] += 1
        fault = fault_of(response)
        if fault:
            faults.append(f"upload {i} of seed {seed}: {fault}")
    left = files(scratch) - before
    return counts, faults + [f"a file was left: {path}" for path in sorted(left)]


def question(client, n, seed=0):
    """Ask a result n questions that make little sense; counts and faults as of :func:`attack`."""
    dice = random.Random(seed)  # noqa: S311
    counts, faults = collections.Counter(), []
    file = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(file, "PNG")
    result = client.post("/api/look", files={"image": ("a.png", file.getvalue())}).json()
    for i in range(n):
        asked = {"ask": dice.choice([*result["meta"]["asks"], "nothing", 7, None])}
        asked |= {name: dice.choice(VALUES) for name in dice.sample(FIELDS, dice.randrange(8))}
        if dice.random() < 0.6:
            asked |= {"sight": dice.randrange(3), "head": dice.choice(["mean", 0]), "query": 0, "key": 1}
        response = client.post(f"/api/looks/{result['id']}/ask", json=asked)
        counts[response.status_code] += 1
        if response.status_code != 200 and (fault := fault_of(response)):
            faults.append(f"question {i} of seed {seed}, {asked}: {fault}")
    return counts, faults


def fault_of(response):
    """What is wrong with an answer; empty if nothing is."""
    if response.status_code >= 500:
        return f"status {response.status_code}: {response.text[:300]}"
    if "Traceback" in response.text or 'File "' in response.text:
        return f"a traceback: {response.text[:300]}"
    answer = response.json()
    if response.status_code == 200:
        return "" if "id" in answer else f"no result: {response.text[:300]}"
    sentence = answer.get("error")
    if not isinstance(sentence, str) or not 10 < len(sentence) < 1000 or "\n" in sentence:
        return f"no sentence: {response.text[:300]}"
    return ""


def hostile(dice):
    """The bytes of something that may once have been an image."""
    kind = dice.randrange(16)
    if kind == 0:
        return dice.randbytes(dice.choice([0, 1, 7, 300, 50_000]))
    if kind == 1:
        return lying_png(
            dice.choice([0, 1, 40_000, 100_000, 2**31 - 1]), dice.choice([0, 1, 40_000, 2**31 - 1])
        )
    if kind == 2:
        return b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    if kind == 3:
        return lying_png(3000, 3000, zlib.compress(bytes(9_003_000 * 3 // 100)))
    data = bytearray(image(dice))
    for _ in range(dice.choice([0, 1, 1, 3, 30, 300])):
        change = dice.randrange(5)
        at = dice.randrange(len(data))
        if change == 0:
            data[at] = dice.randrange(256)
        elif change == 1:
            data[at] ^= 1 << dice.randrange(8)
        elif change == 2 and len(data) > 50:
            del data[at : at + dice.randrange(1, 20)]
        elif change == 3:
            data[at:at] = dice.randbytes(dice.randrange(1, 20))
        elif len(data) > 50:
            data[at : at + 4] = struct.pack(
                dice.choice("<>") + "I", dice.choice([0, 2**16, 2**31 - 1, 2**32 - 1])
            )
    return bytes(data[: dice.choice([len(data), len(data), len(data) // 2 + 1])])


def image(dice):
    """A small image in some format and mode."""
    mode = dice.choice(["RGB", "L", "P", "1", "RGBA", "CMYK", "I;16"])
    size = (dice.choice([1, 17, 64, 301]), dice.choice([1, 13, 64, 211]))
    file = io.BytesIO()
    pixels = Image.new("RGB", size, tuple(dice.randbytes(3)))
    for form_ in (dice.choice(FORMATS), "PNG"):
        try:
            pixels.convert(mode).save(file, form_)
            break
        except Exception:  # noqa: BLE001 - a format that does not take the mode
            file.seek(0)
            file.truncate()
            mode = "RGB"
    return file.getvalue()


def lying_png(width, height, pixels=b""):
    """A PNG whose head says what its body does not hold."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", pixels),
        (b"IEND", b""),
    ]
    packed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def form(dice, content):
    """A form around it, in order or not; and its headers."""
    boundary = dice.choice(["b", "----x", "x" * 70])
    is_broken = dice.random() < 0.3
    field = dice.choice(["image", "file", "", "image[]"]) if is_broken else "image"
    name = dice.choice(NAMES)
    part = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n'
        f"Content-Type: {dice.choice(HEADERS) if is_broken else 'image/png'}\r\n\r\n"
    ).encode("utf-8", "replace")
    body = part + content + f"\r\n--{boundary}--\r\n".encode()
    header = f"multipart/form-data; boundary={boundary}"
    break_ = dice.randrange(8) if is_broken else None
    if break_ == 0:
        body = body[: dice.randrange(len(body))]
    elif break_ == 1:
        body = part + body
    elif break_ == 2:
        header = dice.choice(
            ["multipart/form-data", "text/plain", "application/json", "", "multipart/form-data; boundary="]
        )
    elif break_ == 3:
        body = body.replace(b"\r\n", b"\n")
    elif break_ == 4:
        body = body.replace(b"form-data;", b"", 1)
    elif break_ == 5:
        header += "; charset=" + dice.choice(["klingon", "utf-16", "utf-7"])
    elif break_ == 6:
        body = dice.randbytes(200)
    elif break_ == 7:
        body = body.replace(b"Content-Disposition", b"Content-Disposition" + b"x" * 20_000, 1)
    return body, {"content-type": header} if header else {}


def files(folder):
    """All files in a folder."""
    return set() if folder is None else {str(path) for path in Path(folder).rglob("*")}


def main(run, n):
    """Attack the app of a run, and print what came back."""
    from sightline.serve.app import Service, make_app
    from sightline.serve.model import open_model

    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = os.environ["TMPDIR"] = scratch
        service = Service(model=open_model(Path(run)))
        client = Client(make_app(service), base_url=f"http://localhost:8017/{service.access.token}/")
        found = {"uploads": attack(client, n, scratch=scratch), "questions": question(client, n)}
    for name, (counts, faults) in found.items():
        statuses = ", ".join(f"{count} of status {status}" for status, count in sorted(counts.items()))
        sys.stdout.write(f"{n} {name}: {statuses}; {len(faults)} faults\n")
        sys.stdout.writelines(f"  {fault}\n" for fault in faults[:20])
    return not any(faults for _, faults in found.values())


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1], int(sys.argv[2])))
