"""A server on a socket: what only shows there, its start and its end."""

import contextlib
import json
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from sightline.serve import connection
from sightline.serve.app import Service
from sightline.serve.guard import Access
from sightline.serve.server import Server, access_for, address_of, bind
from tests.command import run, start
from tests.serve.conftest import LIMITS, Model, image
from tests.until import until

RUN = Path(__file__).parents[1] / "fixtures" / "written_by_0_1" / "caption" / "finished"
HEAD = "POST /t/api/look HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"


@contextlib.contextmanager
def served(**limits):
    service = Service(model=Model(), limits=replace(LIMITS, **limits), access=Access(token="t"))  # noqa: S106
    ready = threading.Event()
    with bind("127.0.0.1", 0) as listening:
        server = Server(service, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        assert ready.wait(60)
        try:
            yield listening.getsockname()[1], service
        finally:
            service.model.go.set()
            server.stop()
            thread.join(60)
            assert not thread.is_alive()
            service.worker.stop()


def exchange(port, *pieces):
    """Send some bytes as they are, and read all that comes back."""
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        with contextlib.suppress(OSError):  # the server may have hung up, and answered
            for piece in pieces:
                client.sendall(piece if isinstance(piece, bytes) else piece.encode())
        read = b""
        with contextlib.suppress(OSError):
            while chunk := client.recv(65536):
                read += chunk
    return read.decode("latin-1")


def test_what_is_no_http_gets_no_more_than_a_refusal():
    with served() as (port, _service):
        for text in ("GET\r\n\r\n", "\x00" * 100 + "\r\n\r\n", "GET / HTTP/9.9\r\nConnection: close\r\n\r\n"):
            assert "Traceback" not in exchange(port, text)
        twice = exchange(
            port, "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
        assert twice.startswith(("HTTP/1.1 400", "HTTP/1.1 421"))
        assert exchange(port, "GET / HTTP/1.0\r\n\r\n").startswith("HTTP/1.1 421")
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200


def test_a_body_that_is_too_long_is_answered_before_it_is_read():
    with served() as (port, service):
        answer = exchange(port, HEAD, f"Content-Length: {10**12}\r\n\r\n", b"x" * 100_000)
        assert answer.startswith("HTTP/1.1 413")
        assert "may have 50,000 bytes" in answer
        chunk = b"8000\r\n" + b"y" * 0x8000 + b"\r\n"
        answer = exchange(port, HEAD, "Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 3)
        assert answer.startswith("HTTP/1.1 413")
        assert service.worker.taken["look"] == 0


LARGE = 6 << 20  # more than the buffers of both sockets hold
CLOSE = "Connection: close\r\n"


def refused(port, *pieces):
    """The answer to a client that sends all it has before it reads, as most do; it must not be cut off."""
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        for piece in pieces:
            client.sendall(piece if isinstance(piece, bytes) else piece.encode())
        read = b""
        while chunk := client.recv(65536):
            read += chunk
    return read.decode("latin-1")


def chunked(content):
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(
    ("change", "limits", "status"),
    [
        ("", {}, 413),
        (CLOSE, {"waiting": 0, "upload": 2 * LARGE}, 503),
        (CLOSE, {"connections": 0}, 503),
        (CLOSE + "Origin: http://evil.example\r\n", {}, 403),
        (CLOSE + "X-Broken\r\n", {}, 400),
    ],
)
def test_a_refusal_reaches_a_client_that_still_sends(change, limits, status, is_chunked):
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {LARGE}"
    body = chunked(b"x" * LARGE) if is_chunked else b"x" * LARGE
    with served(**limits) as (port, service):
        answer = refused(port, f"{HEAD}{change}{length}\r\n\r\n", body)
        assert answer.startswith(f"HTTP/1.1 {status}")
        assert ("\r\nretry-after: 1\r\n" in answer) == (status == 503)
        assert service.worker.taken["look"] == 0


def test_a_client_that_was_refused_may_go_on_with_its_connection():
    upload = f"{HEAD}Content-Length: {LARGE}\r\n\r\n"
    with served(waiting=0, upload=2 * LARGE) as (port, _):
        last = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answers = refused(port, upload, b"x" * LARGE, upload, b"x" * LARGE, last)
    assert [x[:3] for x in answers.split("HTTP/1.1 ")[1:]] == ["503", "503", "200"]


def test_a_refused_client_that_never_ends_is_cut_off(monkeypatch):
    monkeypatch.setattr(connection, "_LINGER", 0.1)
    with served() as (port, _), socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(f"{HEAD}Content-Length: {10**12}\r\n\r\n".encode())

        def is_cut_off():
            try:
                client.sendall(b"x" * (1 << 16))
            except ConnectionError:
                return True

        until(is_cut_off)


def test_a_client_gives_up_an_idle_connection_before_the_server_does():
    server = Server(Service(model=Model(), limits=LIMITS, access=Access()))
    assert server.config.timeout_keep_alive > 10 * httpx.Limits().keepalive_expiry


def test_a_body_that_does_not_come_frees_its_place():
    with served(seconds=0.2, waiting=1) as (port, service):
        answer = exchange(port, HEAD, "Content-Length: 1000\r\n\r\n", "--b\r\n")
        assert answer.startswith("HTTP/1.1 408")
        assert "5 bytes came" in answer
        service.limits = replace(service.limits, seconds=60)
        assert httpx.post(f"http://127.0.0.1:{port}/t/api/look", **image()).status_code == 200


def test_a_client_that_goes_away_gives_its_place_back():
    impatient = httpx.Timeout(60, read=0.3)
    with served(waiting=2) as (port, service):
        service.model.go.clear()
        for _ in range(2):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"http://127.0.0.1:{port}/t/api/look", timeout=impatient, **image())
        until(lambda: service.worker.taken["look"] == 0)
        service.model.go.set()
        assert httpx.post(f"http://127.0.0.1:{port}/t/api/look", **image()).status_code == 200
        assert service.model.calls <= 3


def test_many_clients_get_answers_or_a_polite_refusal():
    with served() as (port, service), ThreadPoolExecutor(16) as threads, httpx.Client(timeout=60) as client:
        address = f"http://127.0.0.1:{port}/t/api/look"
        answers = list(threads.map(lambda _: client.post(address, **image()), range(100)))
        statuses = {x.status_code for x in answers}
        assert statuses <= {200, 503}
        assert all("retry-after" in x.headers for x in answers if x.status_code == 503)
        assert service.worker.peak["look"] <= LIMITS.waiting
        assert len(service.kept) <= LIMITS.kept


SLOW = """
import time
from sightline.serve import server
from sightline.serve.model import ServedRun
server._GRACE = 60  # on a busy machine too, all are answered
ServedRun.look = lambda self, given, limits: time.sleep(600)
"""


@pytest.mark.plain
def test_a_signal_ends_it_though_the_model_is_at_work(tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(SLOW)
    child = start("serve", RUN, "--port", "0", place=tmp_path, imports=[slow])
    child.wait_until(lambda: child.out.exists() and child.out.read_text().endswith("\n"))
    address = child.out.read_text().strip()
    assert address.startswith("http://127.0.0.1:")
    with ThreadPoolExecutor(4) as threads:
        under_way = [
            threads.submit(httpx.post, f"{address}api/look", timeout=60, **image()) for _ in range(4)
        ]
        child.wait_until(lambda: httpx.get(f"{address}healthz").json()["taken"]["look"] == 4)
        child.send(signal.SIGTERM)
        result = child.result()
        for future in under_way:
            response = future.result(60)
            assert (response.status_code, response.json()["error"]) == (503, "the server is stopping")
    assert result.code == 0
    assert result.err == "open it in a browser; Ctrl-C ends it\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "'nowhere' does not exist; `sightline demo` trains one"),
        ((__file__,), "is a file, not a folder"),
        ((Path(__file__).parent,), "there is no config.json in"),
        ((RUN, "--port", "70000"), "a port is between 0 and 65535, got 70000"),
        ((RUN, "--host", "no.such.host.invalid"), "can't listen on port 8017 of 'no.such.host.invalid'"),
        ((RUN, "--device", "gpu7"), "there is no device 'gpu7' here; did you mean 'cuda7'?"),
    ],
)
@pytest.mark.bad_input
def test_what_cannot_be_served_is_a_sentence(words, sentence):
    result = run("serve", *words, *(() if "--port" in words or "--host" in words else ("--port", "0")))
    assert result.code == 2
    assert sentence in result.err
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_by_either_signal_but_one_that_is_ignored(number):
    service = Service(model=Model(), limits=LIMITS, access=Access())
    service.worker.stop()
    server = Server(service)
    for handler in (signal.SIG_IGN, lambda *_: None):
        signal.signal(number, handler)
        with server.capture_signals():
            signal.raise_signal(number)
        assert server.should_exit == (handler is not signal.SIG_IGN)
        assert signal.getsignal(number) is handler


@pytest.mark.bad_input
@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "python_multipart"])
def test_what_is_not_installed_is_named(package, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("sightline.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    result = run("serve", RUN, "--port", "0")
    assert (result.code, result.err) == (
        2,
        f"sightline serve needs {package}, which is not installed; pip install 'sightline[serve]'\n",
    )


@pytest.mark.bad_input
def test_a_port_that_is_taken_is_a_sentence():
    with bind("127.0.0.1", 0) as taken:
        result = run("serve", RUN, "--port", taken.getsockname()[1])
    assert (result.code, "address already in use" in result.err) == (2, True)


def test_who_may_speak_to_a_server_and_where():
    access = [access_for(host) for host in ("127.0.0.1", "::1", "0.0.0.0", "::", "example.org")]  # noqa: S104
    assert len({one.token for one in access}) == 5
    assert [one.any_address for one in access] == [False, False, True, True, False]
    named = access_for("192.168.1.7", ("Proxy.example",))
    assert named.knows_host("proxy.example")
    assert named.knows_host("192.168.1.7:80")
    assert not named.knows_host("192.168.1.8:80")
    assert address_of("192.168.1.7", 80, named) == f"http://192.168.1.7:80/{named.token}/"
    assert address_of("::1", 80, Access(token="t")) == "http://[::1]:80/t/"  # noqa: S106


def test_health_is_json():
    with served() as (port, _):
        text = exchange(port, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert json.loads(text.split("\r\n\r\n")[1])["status"] == "ok"
