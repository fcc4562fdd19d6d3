"""The addresses of a server, below its token (``guard.py``).

GET  /                     the page
GET  /static/NAME          its scripts and styles, and those of the explorer
GET  /api/about            what is served, and its limits
GET  /api/examples         inputs to try; /api/examples/N.png an image among them
POST /api/look             an image (a form with the file ``image``) or ``{"text": ...}``
GET  /api/looks/ID         a result once more, while it is kept
POST /api/looks/ID/ask     a question of the explorer to a result
GET  /healthz              that it is there, for other programs
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from sightline.messages import logger
from sightline.serve import uploads
from sightline.serve.assets import Asset, read_assets
from sightline.serve.guard import Access, Guard, refuse_busy
from sightline.serve.limits import Limits
from sightline.serve.model import ExampleInput, ServedModel
from sightline.serve.results import KeptResults, Result
from sightline.serve.uploads import Refused
from sightline.serve.worker import Busy, Place, Worker

__all__ = ["Service", "make_app"]

ASK, LOOK = "ask", "look"  # lanes of the worker: a question to a result goes before a new input
_STOPPING = "the server is stopping"
_ETAG_HEADERS = {"cache-control": "no-cache"}


def _no_examples() -> "Future[list[ExampleInput]]":
    found: Future[list[ExampleInput]] = Future()
    found.set_result([])
    return found


@dataclass(kw_only=True, eq=False)
class Service:
    """A model behind its queue, with the results that can be asked.

    Attributes:
        model: What is served.
        limits: The bounds.
        access: Who may speak to it.
        examples: Inputs to try, perhaps still looked for.
        stopping: Set when the server ends: whoever waits is told so.
    """

    model: ServedModel
    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    examples: "Future[list[ExampleInput]]" = field(default_factory=_no_examples)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    worker: Worker = field(init=False)
    kept: KeptResults = field(init=False)

    def __post_init__(self) -> None:
        lanes = {ASK: self.limits.questions, LOOK: self.limits.waiting}
        self.worker = Worker(lanes)
        self.kept = KeptResults(most=self.limits.kept, most_bytes=self.limits.kept_bytes)

    async def wait(self, request: Request, place: Place, work: Callable[[], Any]) -> Any:
        """What the worker makes of some work; nothing is done for a client that went away."""
        done = asyncio.wrap_future(place.submit(work))
        ends = [asyncio.ensure_future(_until_gone(request)), asyncio.ensure_future(self.stopping.wait())]
        try:
            await asyncio.wait([done, *ends], return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                return self._outcome(done)
            raise Refused(503, _STOPPING)
        finally:
            for task in (done, *ends):
                task.cancel()

    def _outcome(self, done: asyncio.Future[Any]) -> Any:
        try:
            return done.result()
        except (ValueError, OSError) as problem:
            raise Refused(422, self._sentence(problem)) from None
        except Exception as problem:  # noqa: BLE001 - a model may raise anything
            logger.exception("the model failed")
            raise Refused(500, f"the model failed: {self._sentence(problem)}") from None

    def _sentence(self, problem: Exception) -> str:
        """What is wrong, without the place of the model on the disk."""
        first = next(iter(str(problem).strip().split("\n\n")), "") or type(problem).__name__
        return " ".join(first.replace(str(self.model.folder), self.model.title).split())


def make_app(service: Service, is_full: Callable[[], bool] = lambda: False) -> ASGIApp:
    """The app of a service, guarded; ``is_full`` says whether there are more connections than may be."""
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # who sent a broken form is told so
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    _add_pages(app, service, read_assets())
    _add_model(app, service)
    _add_looks(app, service)
    app.exception_handler(Refused)(_answer_refused)
    app.exception_handler(Busy)(_answer_busy)
    app.exception_handler(HTTPException)(_answer_unknown)
    app.exception_handler(RequestValidationError)(_answer_no_number)
    return Guard(app, service.access, is_full)


def _add_pages(app: FastAPI, service: Service, assets: Mapping[str, Asset]) -> None:
    def asset(request: Request, name: str) -> Response:
        found = assets.get(name)
        if found is None:
            raise Refused(404, "there is nothing at this address")
        headers = {"etag": found.etag, **_ETAG_HEADERS}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.kind, headers=headers)

    @app.get("/")
    async def page(request: Request) -> Response:
        return asset(request, "index.html")

    @app.get("/static/{name}")
    async def static(request: Request, name: str) -> Response:
        return asset(request, name)

    @app.get("/healthz")
    async def health() -> Response:
        worker = service.worker
        return JSONResponse(
            {"status": "ok", "taken": worker.taken, "peak": worker.peak, "limits": worker.limits}
        )


def _add_model(app: FastAPI, service: Service) -> None:
    model, limits = service.model, service.limits

    @app.get("/api/about")
    async def about() -> Response:
        bounds = asdict(limits)
        return JSONResponse(
            {
                "title": model.title,
                "kind": model.kind,
                "takes": model.takes,
                "limits": {name: bounds[name] for name in ("upload", "pixels", "text")},
                "formats": uploads.FORMATS,
            }
        )

    @app.get("/api/examples")
    async def examples() -> Response:
        found = await asyncio.shield(asyncio.wrap_future(service.examples))
        return JSONResponse([{"label": x.label, "is_image": x.image is not None} for x in found])

    @app.get("/api/examples/{number}.png")
    async def example(number: int) -> Response:
        found = await asyncio.shield(asyncio.wrap_future(service.examples))
        image = found[number].image if 0 <= number < len(found) else None
        if image is None:
            raise Refused(404, f"there is no example {number}, there are {len(found)}")
        return Response(image, media_type="image/png")


def _add_looks(app: FastAPI, service: Service) -> None:
    model, limits = service.model, service.limits

    @app.post("/api/look")
    async def look(request: Request) -> Response:
        with service.worker.place(LOOK) as place:
            given: bytes | str
            if model.takes == "image":
                given = await uploads.read_image_file(request, limits)
            else:
                given = await uploads.read_text(request, limits)
            result, meta = await service.wait(request, place, lambda: _look(model, given, limits))
        return JSONResponse(_told(service.kept.add(result), result, meta))

    @app.get("/api/looks/{key}")
    async def again(request: Request, key: str) -> Response:
        result = _kept(service, key)
        with service.worker.place(ASK) as place:
            return JSONResponse(_told(key, result, await service.wait(request, place, result.answers.meta)))

    @app.post("/api/looks/{key}/ask")
    async def ask(request: Request, key: str) -> Response:
        question = await uploads.read_json(request, limits, limits.question)
        result = _kept(service, key)
        with service.worker.place(ASK) as place:
            return JSONResponse(await service.wait(request, place, lambda: result.answers.answer(question)))


def _kept(service: Service, key: str) -> Result:
    result = service.kept.get(key)
    if result is None:
        raise Refused(404, "this result is no longer kept, only the last ones are; give the input once more")
    return result


def _told(key: str, result: Result, meta: dict[str, Any]) -> dict[str, Any]:
    """A result as the page takes it."""
    return {
        "id": key,
        "given": result.given,
        "text": result.text,
        "score": result.score,
        "alternatives": [{"text": text, "score": score} for text, score in result.alternatives],
        "meta": meta,
    }


def _look(model: ServedModel, given: bytes | str, limits: Limits) -> tuple[Result, dict[str, Any]]:
    result = model.look(given, limits)
    if isinstance(given, str):
        result = replace(result, given=given)
    return result, result.answers.meta()


async def _until_gone(request: Request) -> None:
    """Wait until the client has gone away; its whole body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _answer_refused(request: Request, problem: Exception) -> Response:  # noqa: ARG001
    assert isinstance(problem, Refused)  # noqa: S101 - registered for it
    closing = {"connection": "close"} if problem.status in {408, 413, 503} else {}
    return JSONResponse({"error": problem.sentence}, problem.status, headers=closing)


async def _answer_busy(request: Request, problem: Exception) -> Response:  # noqa: ARG001
    assert isinstance(problem, Busy)  # noqa: S101 - registered for it
    return refuse_busy("the model is busy with other requests; try again in a moment", problem.seconds)


async def _answer_unknown(request: Request, problem: Exception) -> Response:  # noqa: ARG001
    assert isinstance(problem, HTTPException)  # noqa: S101 - registered for it
    sentence = {404: "there is nothing at this address", 405: "this address takes other requests"}
    return JSONResponse(
        {"error": sentence.get(problem.status_code, str(problem.detail))}, problem.status_code
    )


async def _answer_no_number(request: Request, problem: Exception) -> Response:  # noqa: ARG001
    return JSONResponse({"error": "there is nothing at this address"}, 404)
