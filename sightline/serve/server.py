"""The socket of a server, its start, and its end within a second of a signal."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType

import uvicorn

from sightline.messages import logger
from sightline.serve.app import Service, make_app
from sightline.serve.connection import KEEP_ALIVE, Connection
from sightline.serve.guard import Access, is_loopback
from sightline.serve.limits import Limits
from sightline.serve.model import ExampleInput, ServedModel
from sightline.train.interrupt import hear_signals

__all__ = ["Server", "access_for", "address_of", "bind", "serve"]

_LAST_PORT = 65535
_GRACE = 0.3  # seconds that answers under way have when the server ends
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - only where it is asked for


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
        host: A name or an address of this machine.
        port: 0 takes one that is free.

    Raises:
        ValueError: In a sentence, if it can't be had.
    """
    if not 0 <= port <= _LAST_PORT:
        raise ValueError(f"a port is between 0 and {_LAST_PORT}, got {port}; 0 takes a free one")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise ValueError(
            f"can't listen on port {port} of {host!r}: {reason.lower()}; choose another --port, 0 takes "
            "a free one"
        ) from None


def access_for(host: str, names: tuple[str, ...] = ()) -> Access:
    """Who may speak to a server at an address: who knows its token, by a name that it has."""
    known = {host.lower(), *(name.lower() for name in names)}
    if not is_loopback(host):
        known |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return Access(names=frozenset(known), any_address=host in _EVERYWHERE)


def address_of(host: str, port: int, access: Access) -> str:
    """What to type into a browser."""
    name = socket.gethostname() if host in _EVERYWHERE else host
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/{access.token}/"


def serve(
    model: ServedModel,
    listening: socket.socket,
    access: Access,
    *,
    limits: Limits | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve a model until a signal comes. A look that the model is at goes on in its thread, unheard.

    Args:
        model: What is served.
        listening: The socket.
        access: Who may speak to it.
        limits: The bounds.
        ready: Called when requests are answered.
    """
    service = Service(model=model, limits=limits or Limits(), access=access, examples=_in_background(model))
    Server(service, ready).run(sockets=[listening])
    service.worker.stop()


class Server(uvicorn.Server):
    """Answers requests; ends at the first signal, and tells those who wait."""

    def __init__(self, service: Service, ready: Callable[[], None] = lambda: None) -> None:
        """Put a service behind HTTP.

        Args:
            service: What answers.
            ready: Called when requests are answered.
        """
        config = uvicorn.Config(
            make_app(service, is_full=self._is_full),
            access_log=False,
            http=Connection,
            lifespan="off",
            log_config=None,
            log_level="critical",
            loop="asyncio",
            server_header=False,
            timeout_graceful_shutdown=_GRACE,  # type: ignore[arg-type]  # part of a second will do
            timeout_keep_alive=KEEP_ALIVE,
            ws="none",
        )
        super().__init__(config)
        self.service, self.ready = service, ready
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.ready()

    def _is_full(self) -> bool:
        return len(self.server_state.connections) > self.service.limits.connections

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals for the time of the block; uvicorn would raise them once more at its end."""
        with hear_signals(self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """End at a signal."""
        self.stop()

    def stop(self) -> None:
        """End, from any thread."""
        self.should_exit = True
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.service.stopping.set)


def _in_background(model: ServedModel) -> "Future[list[ExampleInput]]":
    """The examples of a model, looked for while it is served already: data may take its time to open."""
    future: Future[list[ExampleInput]] = Future()

    def find() -> None:
        try:
            future.set_result(list(model.examples()))
        except Exception as problem:  # noqa: BLE001 - a page without examples is a page
            logger.warning("no examples to try: %s", problem)
            future.set_result([])

    threading.Thread(target=find, name="examples", daemon=True).start()
    return future
