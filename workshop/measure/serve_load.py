"""Load on a server: 64 clients for 30 seconds, by ``python -m workshop.measure.serve_load runs/demo``.

Every client sends an image as soon as its last one was answered or refused. Three things are promised, and
the exit code says whether they were kept: nothing comes back but answers and polite refusals, the queue is
never longer than its bound, and the server's memory afterwards is that of before, give or take a tenth.
"""

import argparse
import asyncio
import collections
import io
import subprocess
import sys
import time
from pathlib import Path

import httpx
from PIL import Image

WARM_UP = 40  # answers before memory is read first: as many as are kept, and some


def main() -> None:
    """Start a server, ask it, and print what came back."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("run", type=Path)
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--seconds", type=float, default=30.0)
    asked = options.parse_args()
    command = [sys.executable, "-m", "sightline", "serve", str(asked.run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().strip()
            ok = asyncio.run(measure(address, server.pid, asked.clients, asked.seconds))
        finally:
            server.terminate()
    sys.exit(not ok)


async def measure(address: str, pid: int, n_clients: int, seconds: float) -> bool:
    """Ask, print and judge."""
    limits = httpx.Limits(max_connections=n_clients)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60, trust_env=False) as client:
        content = picture()
        for _ in range(WARM_UP):
            (await client.post("api/look", files={"image": content})).raise_for_status()
        before, waits, counts = resident(pid), [], collections.Counter()
        end = time.monotonic() + seconds
        await asyncio.gather(*(ask(client, content, end, counts, waits) for _ in range(n_clients)))
        after = resident(pid)
        health = (await client.get("healthz")).json()
    peak, bound = health["peak"]["look"], health["limits"]["look"]
    waits.sort()
    print(f"{n_clients} clients, {seconds:g} s: {dict(counts)}")
    if waits:
        print(f"answers: median {waits[len(waits) // 2]:.2f} s, slowest {waits[-1]:.2f} s")
    print(f"queue: at most {peak} of {bound}; memory: {before:.0f} MB before, {after:.0f} MB after")
    return set(counts) <= {"answered", "refused politely"} and peak <= bound and after <= 1.1 * before


async def ask(
    client: httpx.AsyncClient, content: bytes, end: float, counts: collections.Counter, waits: list
) -> None:
    """One client: the next image when the last is answered; after a refusal as soon as it was told."""
    while time.monotonic() < end:
        started = time.monotonic()
        try:
            response = await client.post("api/look", files={"image": content})
        except httpx.HTTPError as problem:
            counts[type(problem).__name__] += 1
            continue
        if response.status_code == 200:
            counts["answered"] += 1
            waits.append(time.monotonic() - started)
        elif response.status_code == 503 and "retry-after" in response.headers and "error" in response.json():
            counts["refused politely"] += 1
            await asyncio.sleep(float(response.headers["retry-after"]))
        else:
            counts[f"status {response.status_code}"] += 1


def picture() -> bytes:
    """A photograph's worth of bytes: 640 x 480 pixels of noise."""
    file = io.BytesIO()
    Image.effect_noise((640, 480), 90).convert("RGB").save(file, "JPEG", quality=85)
    return file.getvalue()


def resident(pid: int) -> float:
    """The memory that a process holds, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not say how much memory a process holds")


if __name__ == "__main__":
    main()
