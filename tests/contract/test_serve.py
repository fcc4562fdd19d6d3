"""``sightline serve`` as a process: addresses, shapes of answers, limits, the token, refusals."""

import io
import json
import re
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest
from PIL import Image

from tests.command import start
from tests.contract.test_imports import budget, process
from tests.golden.make import shape
from tests.golden.written import same_as_written

RUNS = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"
IMAGE = RUNS / "data" / "pictures" / "00.png"
FOUND = {}  # the shapes of answers, compared at the end of the file


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A served captioner that listens everywhere, which a token guards: its address and its token."""
    file = tmp_path_factory.mktemp("served") / "found.json"
    run = RUNS / "caption" / "finished"
    with process(file, "--", "serve", run, "--host", "0.0.0.0", "--port", "0") as child:  # noqa: S104
        try:
            printed = child.stdout.readline().decode()
            port, token = re.fullmatch(r"http://[^/]+:(\d+)/([\w-]+)/\s*", printed).groups()
            yield f"http://127.0.0.1:{port}", token
            child.send_signal(signal.SIGUSR1)
            while not file.exists():
                assert child.poll() is None, "the server has ended"
                time.sleep(0.01)
        finally:
            child.send_signal(signal.SIGTERM)
            child.communicate(timeout=60)
    budget(file)


@pytest.fixture(scope="module")
def client(server):
    address, token = server
    with httpx.Client(base_url=f"{address}/{token}", timeout=60) as known:
        yield known


@pytest.fixture
def stranger(server):
    """A client that knows nothing."""
    with httpx.Client(base_url=server[0], timeout=60) as unknown:
        yield unknown


def image(content=None, name="a.png"):
    return {"files": {"image": (name, IMAGE.read_bytes() if content is None else content, "image/png")}}


def told(answer, status=200):
    """What an answer of JSON says."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def sentence(answer, status):
    """The one sentence of a refusal."""
    error = told(answer, status)
    assert list(error) == ["error"]
    assert "\n" not in error["error"]
    assert len(error["error"]) < 300
    return error["error"]


@pytest.fixture(scope="module")
def look(client):
    """A result."""
    return told(client.post("/api/look", **image()))


# Who may come in


def test_the_printed_address_opens_the_page(server, client):
    address, token = server
    assert "<title>" in client.get("/").text
    assert told(client.get("/api/about"))["kind"] == "caption"
    assert len(token) >= 32
    assert "whole address" in sentence(httpx.get(f"{address}/{token}", timeout=60), 401)


@pytest.mark.parametrize("path", ["/", "/api/about", "/api/examples", "/api/looks/x", "/static/explorer.js"])
def test_nothing_is_said_without_the_token(server, stranger, path):
    _, token = server
    refused = sentence(stranger.get(path), 401)
    for other in ("wrong", token[:-1], f"{token}x", f"?token={token}"):
        assert sentence(stranger.get(f"/{other}{path}"), 401) == refused
    assert sentence(stranger.get(path, headers={"authorization": f"Bearer {token}"}), 401) == refused


def test_everybody_may_know_that_it_is_there(stranger):
    FOUND["GET /healthz"] = shape(told(stranger.get("/healthz")))


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"host": "evil.example"}, 421, "not called 'evil.example'"),
        ({"origin": "http://evil.example"}, 403, "may not send requests here"),
        ({"sec-fetch-site": "cross-site"}, 403, "another site may not send"),
    ],
)
def test_pages_of_others_are_refused(client, headers, status, words):
    assert words in sentence(client.post("/api/look", headers=headers, **image()), status)


# What it answers


def test_the_page_and_what_it_needs(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    names = re.findall(r'(?:src|href)="/?(static/[\w.]+)"', page.text)
    assert len(names) >= 3
    for name in names:
        found = client.get(f"/{name}")
        assert found.status_code == 200
        again = client.get(f"/{name}", headers={"if-none-match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_every_answer_says_what_a_browser_may_do_with_it(client):
    for path in ("/", "/api/about", "/nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers


def test_what_is_served(client):
    about = told(client.get("/api/about"))
    FOUND["GET /api/about"] = shape(about)
    assert (about["kind"], about["takes"]) == ("caption", "image")
    assert about["limits"]["upload"] == 8 << 20


def test_examples(client):
    examples = told(client.get("/api/examples"))
    FOUND["GET /api/examples"] = shape(examples)
    assert examples[0]["is_image"]
    picture = client.get("/api/examples/0.png")
    assert picture.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(picture.content)).size == (24, 24)
    assert "no example 99" in sentence(client.get("/api/examples/99.png"), 404)
    assert sentence(client.get("/api/examples/x.png"), 404)


def test_a_look_and_the_same_once_more(client, look):
    FOUND["POST /api/look"] = shape(look)
    assert look["text"] == look["alternatives"][0]["text"]
    assert told(client.get(f"/api/looks/{look['id']}")) == look


ASKS = {
    "map": {"sight": 0, "head": "mean", "size": [3, 2]},
    "row": {"sight": 0, "head": 0, "query": 0, "size": 3},
    "column": {"sight": 0, "head": 0, "key": 1, "size": 2},
    "top": {"sight": 0, "head": "mean", "query": 0, "n": 2},
    "word": {"sight": 0, "query": 0},
    "strips": {"sight": 0, "head": 0},
    "overview": {},
    "tokens": {"text": 0, "span": [0, 2]},
    "find": {"text": 0, "letters": "a"},
}


@pytest.mark.parametrize("ask", ASKS)
def test_every_question_of_the_explorer(client, look, ask):
    assert ask in look["meta"]["asks"]
    found = told(client.post(f"/api/looks/{look['id']}/ask", json={"ask": ask, **ASKS[ask]}))
    FOUND[f"POST /api/looks/ID/ask {ask}"] = shape(found)


@pytest.fixture
def translator(tmp_path):
    """A client of a served translator, on the loopback address."""
    child = start("serve", RUNS / "translate" / "finished", "--port", "0", place=tmp_path)
    try:
        child.wait_until(lambda: child.out.exists() and child.out.read_text().endswith("\n"))
        with httpx.Client(base_url=child.out.read_text().strip(), timeout=60) as client:
            yield client
    finally:
        child.send(signal.SIGTERM)
    assert "Traceback" not in child.result().err


def test_a_text_is_looked_at_too(translator):
    assert told(translator.get("/api/about"))["takes"] == "text"
    found = told(translator.post("/api/look", json={"text": "3 May 1999"}))
    assert found["given"] == "3 May 1999"
    FOUND["POST /api/look of a text"] = shape(found)
    long = {"text": "a" * 20_001}
    assert "20,000 characters" in sentence(translator.post("/api/look", json=long), 413)
    assert sentence(translator.post("/api/look", json={"word": "x"}), 400)
    assert sentence(translator.post("/api/look", content=b"{"), 400)


# What it refuses


def test_inputs_that_are_refused(client):
    assert "not an image" in sentence(client.post("/api/look", **image(b"no picture")), 422)
    assert sentence(client.post("/api/look", files={"other": ("a.png", b"x")}), 400)
    assert sentence(client.post("/api/look", json={"text": "x"}), 400)
    assert sentence(client.post("/api/look", **image(b"x" * ((8 << 20) + 1))), 413)
    huge = io.BytesIO()
    Image.new("1", (6000, 5000)).save(huge, "PNG")
    assert "pixels" in sentence(client.post("/api/look", **image(huge.getvalue())), 422)


def test_questions_that_are_refused(client, look):
    address = f"/api/looks/{look['id']}/ask"
    assert sentence(client.post(address, json={"ask": "nothing"}), 422)
    assert sentence(client.post(address, json={"ask": "row", "sight": 99, "query": 0}), 422)
    assert sentence(client.post(address, content=b"["), 400)
    assert sentence(client.post(address, content=json.dumps({"ask": "x" * (1 << 16)})), 413)
    assert "no longer kept" in sentence(client.get("/api/looks/nothing"), 404)
    assert "no longer kept" in sentence(client.post("/api/looks/nothing/ask", json={"ask": "map"}), 404)


def test_addresses_that_are_none(client):
    assert "nothing at this address" in sentence(client.get("/nothing"), 404)
    assert "nothing at this address" in sentence(client.get("/static/..%2Fapp.py"), 404)
    assert "other requests" in sentence(client.get("/api/look"), 405)
    assert "other requests" in sentence(client.delete("/api/about"), 405)


def test_what_is_no_http_is_refused(server):
    host, port = server[0].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as client:
        client.sendall(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
        assert client.recv(4096).startswith((b"HTTP/1.1 400", b"HTTP/1.1 421"))


def test_the_shapes_of_all_answers_are_those_written_down():
    """After all others of this file, whose answers these are."""
    if len(FOUND) < 5 + len(ASKS):
        pytest.skip("the answers come from the other tests of this file")
    same_as_written("serve.json", FOUND)
