"""Who may speak to a server, and what every answer says to the browser.

Every address begins with a random token, ``http://127.0.0.1:8017/TOKEN/``, which is printed when the server
starts: who has the address may speak to it, on this machine or another. A page of another site must not reach
it through the visitor's browser either: a name of that site that suddenly points here (DNS rebinding) is
refused by the Host header, a form that it sends here (cross-site request forgery) by the Origin header.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Access", "Guard", "is_loopback", "refuse_busy"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data: blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
)
HEADERS = {
    "content-security-policy": "; ".join(_POLICY),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_OPEN = ("/healthz",)  # told to everybody
_SAFE = ("GET", "HEAD")


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may speak to a server.

    Attributes:
        names: Names and addresses that it is called by, beside those of the loopback.
        any_address: Whether a bare IP address will do, as where it listens on all of them.
        token: The first part of every address.
    """

    names: frozenset[str] = frozenset()
    any_address: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def knows_host(self, host: str) -> bool:
        """Whether a Host header names this server; its port may be that of a tunnel.

        Example:
            >>> access = Access()
            >>> [access.knows_host(x) for x in ("localhost:8000", "[::1]", "127.0.0.1:1", "evil.example", "")]
            [True, True, True, False, False]
        """
        name = _host_name(host)
        if name in LOOPBACK or name in self.names:
            return True
        return self.any_address and _is_address(name)

    def path_within(self, path: str) -> str | None:
        """Return a path without the token that it begins with; None if that is not there.

        Example:
            >>> access = Access(token="secret")
            >>> [access.path_within(x) for x in ("/secret/api/about", "/secret/", "/wrong/", "/secret")]
            ['/api/about', '/', None, None]
        """
        given, slash, rest = path.removeprefix("/").partition("/")
        # in a time that does not depend on how much of it is right
        known = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.token.encode())
        return f"/{rest}" if known and slash else None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    Example:
        >>> [is_loopback(x) for x in ("localhost", "127.0.0.5", "::1", "0.0.0.0", "example.org")]
        [True, True, True, False, False]
    """
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


class Guard:
    """Stands before an app: refuses who may not speak to it, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access, is_full: Callable[[], bool] = lambda: False) -> None:
        """Guard an app.

        Args:
            app: What is guarded.
            access: Who may come in.
            is_full: Whether there are more clients than may be.
        """
        self.app, self.access, self.is_full = app, access, is_full

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let through."""
        if scope["type"] != "http":  # there is no other door
            raise RuntimeError(f"this app answers HTTP, got {scope['type']}")

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        path = scope["path"] if scope["path"] in _OPEN else self.access.path_within(scope["path"])
        answer = self._refusal(scope) or (_NO_TOKEN if path is None else self._full())
        await (answer or self.app)({**scope, "path": path or ""}, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self.access.knows_host(hosts[0]):
            name = hosts[0][:100] if hosts else ""
            return _refuse(
                421,
                f"this server is not called {name!r}; use the address it printed, or start it with --name",
            )
        if scope["method"] not in _SAFE:
            if len(origins) > 1 or (origins and urlsplit(origins[0]).netloc.lower() != hosts[0].lower()):
                return _refuse(403, f"a page of {origins[0][:100]!r} may not send requests here")
            if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
                return _refuse(403, "a page of another site may not send requests here")
        return None

    def _full(self) -> Response | None:
        if not self.is_full():
            return None
        answer = refuse_busy("too many connections are open; try again in a moment")
        answer.headers["connection"] = "close"
        return answer


def refuse_busy(sentence: str, seconds: int = 1) -> Response:
    """A refusal that says when to come back."""
    return JSONResponse({"error": sentence}, 503, headers={"retry-after": str(seconds)})


def _refuse(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)


def _host_name(host: str) -> str:
    """The name in a Host header, without its port; empty if it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if host.isprintable() and "@" not in host else ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


_NO_TOKEN = _refuse(401, "use the whole address that the server printed when it started: a token is in it")
