"""A service with a model that does what a test tells it, and clients for it."""

import io
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from PIL import Image

from sightline.serve.app import Service, make_app
from sightline.serve.guard import Access
from sightline.serve.limits import Limits
from sightline.serve.model import ExampleInput
from sightline.serve.results import Result
from sightline.serve.uploads import decode_image
from tests.serve.client import Client

LIMITS = Limits(
    upload=50_000, pixels=10_000, text=50, waiting=2, questions=3, kept=3, kept_bytes=1000, question=500
)


class Answers:
    """Answers a question with the question, and refuses ``{"ask": "nothing"}``."""

    def meta(self):
        return {"title": "seen"}

    def answer(self, request):
        if request.get("ask") == "nothing":
            raise ValueError("ask for something, got 'nothing'")
        return {"asked": request}


class Model:
    """A model that says how large an input is; it waits for ``go`` where a test has taken that away."""

    folder, title, kind = Path("/some/where/toy"), "toy", "caption"

    def __init__(self, takes="image"):
        self.takes = takes
        self.go, self.begun, self.problem, self.calls = threading.Event(), threading.Event(), None, 0
        self.go.set()

    def look(self, given, limits):
        self.calls += 1
        self.begun.set()
        assert self.go.wait(60)
        if self.problem is not None:
            raise self.problem
        size = tuple(decode_image(given, limits, None).shape) if self.takes == "image" else len(given)
        return Result(
            answers=Answers(), nbytes=100, text=f"{size}", score=-0.5, alternatives=((f"{size}", -0.5),)
        )

    def examples(self):
        return [ExampleInput(label="one", image=png(3, 5)), ExampleInput(label="two")]


def png(width=7, height=5):
    """A small image."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(file, "PNG")
    return file.getvalue()


def image(content=None, name="a.png"):
    """The argument of a request that sends an image."""
    return {"files": {"image": (name, png() if content is None else content, "image/png")}}


@pytest.fixture
def open_client():
    """Makes a service and a client of it."""
    clients = []

    def make(model=None, limits=LIMITS, access=None, **options):
        service = Service(model=model or Model(), limits=limits, access=access or Access())
        service.examples = Future()
        service.examples.set_result(list(service.model.examples()))
        base = f"http://localhost:8017/{service.access.token}/"
        client = Client(make_app(service), **{"base_url": base} | options)
        client.service, client.model = service, service.model
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.service.model.go.set()
        client.service.worker.stop()
        client.close()
