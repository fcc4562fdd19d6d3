"""A page for a model."""

import subprocess
import urllib.request

process = subprocess.Popen(  # a classifier needs nothing further
    ["sightline", "serve", "run", "--port", "0"],  # noqa: S607
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
)
address = process.stdout.readline().strip()
with urllib.request.urlopen(address) as answer:  # noqa: S310  this machine's loopback address
    assert b"<title>" in answer.read()
process.terminate()
process.wait()
print("sightline serve RUN")
