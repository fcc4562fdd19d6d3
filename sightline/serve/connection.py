"""The end of a connection: whoever is refused while it still sends hears the refusal.

A socket that is closed with bytes it has not read resets the connection, and what was sent last, the answer,
is lost with it: the client sees an error of the network. So the answer is followed by a half-close (nothing
more is sent), and what the client still sends is thrown away until it hangs up or its time is over.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["KEEP_ALIVE", "Connection"]

KEEP_ALIVE = 75  # seconds; clients should be the ones to close an idle connection, most do so much earlier
_LINGER = 20.0  # seconds that a refused client has to end what it sends
_NOTHING_TO_COME = (h11.IDLE, h11.DONE, h11.MUST_CLOSE, h11.CLOSED)


class Connection(H11Protocol):
    """A connection of uvicorn that is not reset under a client that still sends."""

    _end: asyncio.TimerHandle | None = None  # set from its half-close on

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Begin."""
        super().connection_made(_Closing(transport, self))  # type: ignore[arg-type]  # all that uvicorn uses

    def data_received(self, data: bytes) -> None:
        """Take what comes; after the half-close nobody wants it."""
        if self._end is None:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def is_closing(self, transport: asyncio.Transport) -> bool:
        """Whether nothing more is to be sent."""
        return self._end is not None or transport.is_closing()

    def close(self, transport: asyncio.Transport) -> None:
        """Close, but not under a client that still sends."""
        if self.conn.their_state in _NOTHING_TO_COME or self._end is not None or transport.is_closing():
            transport.close()
            return
        self._unset_keepalive_if_required()
        self._end = self.loop.call_later(_LINGER, transport.close)
        transport.write_eof()
        self.flow.resume_reading()


class _Closing:
    """A transport whose end is its connection's affair."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport, self._connection = transport, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._connection.is_closing(self._transport)

    def close(self) -> None:
        self._connection.close(self._transport)
