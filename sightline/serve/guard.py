"""Who may speak to a server, and what every answer says to the browser.

A page of another site must not reach a server on this machine through the visitor's browser. Two doors lead
there: a name of that site which suddenly points here (DNS rebinding; the Host header tells), and a form that
it sends here (cross-site request forgery; the Origin header tells).
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Access", "Guard", "ask_for_token", "is_loopback", "refuse_busy", "remember"]

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
_OPEN = ("/healthz", "/token", "/static/explorer.css", "/static/serve.css")  # told to everybody
_SAFE = ("GET", "HEAD")


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may speak to a server.

    Attributes:
        names: Names and addresses that it is called by, beside those of the loopback.
        any_address: Whether a bare IP address will do, as where it listens on all of them.
        token: What a client must know; None: nothing.
        cookie: The name of the cookie that remembers it.
    """

    names: frozenset[str] = frozenset()
    any_address: bool = False
    token: str | None = field(default=None, repr=False)
    cookie: str = "sightline"

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

    def knows_token(self, given: str) -> bool:
        """Whether this is the token, found out in a time that does not depend on how much of it is right."""
        if self.token is None:
            return True
        return hmac.compare_digest(_digest(given), _digest(self.token))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    Example:
        >>> [is_loopback(x) for x in ("localhost", "127.0.0.5", "::1", "0.0.0.0", "example.org")]
        [True, True, True, False, False]
    """
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


class Guard:
    """Stands before an app: refuses who may not speak to it, and puts the headers on every answer."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        sign_in: bytes = b"",
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """Guard an app.

        Args:
            app: What is guarded.
            access: Who may come in.
            sign_in: The page that asks for the token.
            is_full: Whether there are more clients than may be.
        """
        self.app, self.access, self.sign_in, self.is_full = app, access, sign_in, is_full

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

        answer = self._refusal(scope) or self._token(scope) or self._full()
        await (answer or self.app)(scope, receive, guarded)

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

    def _token(self, scope: Scope) -> Response | None:
        """Ask for the token, where one is asked for and none was given."""
        if self.access.token is None or scope["path"] in _OPEN:
            return None
        headers = Headers(scope=scope)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = (
            bearer if scheme.lower() == "bearer" else _cookie(headers.get("cookie", ""), self.access.cookie)
        )
        if given and self.access.knows_token(given):
            return None
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and scope["method"] in _SAFE:
            if asked and self.access.knows_token(asked):
                return remember(self.access)
            return ask_for_token(self.sign_in)
        return _refuse(401, "a token is asked for; it was printed with the address when the server started")


def refuse_busy(sentence: str, seconds: int = 1) -> Response:
    """A refusal that says when to come back."""
    return JSONResponse({"error": sentence}, 503, headers={"retry-after": str(seconds)})


def ask_for_token(page: bytes) -> Response:
    """The page that asks for the token; without a referrer its form could not tell where it comes from."""
    headers = {"referrer-policy": "same-origin"}
    return Response(page, 401, media_type="text/html; charset=utf-8", headers=headers)


def remember(access: Access) -> Response:
    """Send the browser to the page, with a cookie that holds the token and no address that does."""
    answer = RedirectResponse("/", 303)
    answer.set_cookie(access.cookie, access.token or "", httponly=True, samesite="strict", path="/")
    return answer


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


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
