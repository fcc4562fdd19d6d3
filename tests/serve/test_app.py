"""The addresses of a server: what they answer, and what they refuse."""

import json
import re
import tempfile

import pytest

from sightline.serve.limits import Limits
from tests.serve.conftest import LIMITS, Model, image, png
from tests.until import until


def test_about_and_examples(open_client):
    client = open_client()
    about = client.get("/api/about").json()
    assert (about["title"], about["kind"], about["takes"]) == ("toy", "caption", "image")
    assert about["limits"] == {"upload": 50_000, "pixels": 10_000, "text": 50}
    assert "/some/where" not in json.dumps(about)
    assert [x["label"] for x in client.get("/api/examples").json()] == ["one", "two"]
    shown = client.get("/api/examples/0.png")
    assert (shown.content, shown.headers["content-type"]) == (png(3, 5), "image/png")
    for number in ("1", "2", "-1", "x", "99999999999999999999"):
        refusal = client.get(f"/api/examples/{number}.png")
        assert (refusal.status_code, list(refusal.json())) == (404, ["error"])


def test_an_image_is_looked_at_and_the_result_answers_questions(open_client):
    client = open_client()
    result = client.post("/api/look", **image()).json()
    assert result["text"] == "(3, 5, 7)"
    assert result["alternatives"] == [{"text": "(3, 5, 7)", "score": -0.5}]
    assert result["meta"] == {"title": "seen"}
    question = {"ask": "map", "sight": 0, "head": "mean", "size": [5, 7]}
    assert client.post(f"/api/looks/{result['id']}/ask", json=question).json() == {"asked": question}


def test_a_text_is_read(open_client):
    client = open_client(Model(takes="text"))
    assert client.post("/api/look", json={"text": "eleven okay"}).json()["text"] == "11"


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"", 400, "must be JSON"),
        (b"{", 400, "must be JSON"),
        (b"[1]", 400, "got list"),
        (b"{}", 400, "got nothing"),
        (b'{"text": 7}', 400, r"got \['text'\]"),
        (b'{"text": NaN}', 400, "NaN is no JSON"),
        (b'{"text": "  "}', 422, "an empty text"),
        (b'{"text": "\\ud800"}', 422, "half of a character"),
        (b'{"text": "' + b"a" * 51 + b'"}', 413, "50 characters, got 51"),
        (b'{"text": "' + b"a" * 50_000 + b'"}', 413, "may have 1,624 bytes"),
        (b"\xff\xfe\x00", 400, "must be JSON"),
        (b"[" * 600, 400, "must be JSON"),
    ],
)
def test_a_text_that_is_none_is_refused(open_client, content, status, words):
    response = open_client(Model(takes="text")).post("/api/look", content=content)
    assert response.status_code == status
    assert re.search(words, response.json()["error"])


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        ({}, 400, "no Content-Type"),
        ({"json": {"text": "a"}}, 400, "Missing boundary|form with one file"),
        ({"data": {"image": "text"}}, 400, "form"),
        ({"files": {"picture": ("a.png", png())}}, 400, r"got \['picture'\]"),
        ({"files": [("image", ("a", png())), ("image", ("b", png()))]}, 400, "Too many files"),
        (image(b""), 422, "it is empty"),
        (image(b"<html>hello</html>"), 422, "it is text"),
        (image(png()[:45]), 422, "can't be read"),
        (image(png(101, 100)), 422, "may have 10000 pixels, 'upload' has 10100"),
        (image(b"\0" * 60_000), 413, "may have 50,000 bytes, got 60"),
    ],
)
def test_an_upload_that_is_no_image_is_refused(open_client, request_, status, words):
    response = open_client().post("/api/look", **request_)
    assert response.status_code == status
    assert re.search(words, response.json()["error"])


@pytest.mark.parametrize("form", ["TIFF", "PPM", "JPEG2000", "ICO"])
def test_only_the_formats_of_the_web_are_decoded(open_client, form):
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, form)
    response = open_client().post("/api/look", **image(file.getvalue()))
    assert (response.status_code, "save it as JPEG" in response.json()["error"]) == (422, True)


def test_an_upload_never_touches_the_disk(open_client, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")  # where a large one would be written to
    client = open_client(limits=Limits())
    content = png() + bytes(3 << 20)
    assert client.post("/api/look", **image(content)).status_code == 200


def test_a_result_is_given_again_while_it_is_kept(open_client):
    client = open_client(Model(takes="text"))
    told = client.post("/api/look", json={"text": "some words"}).json()
    assert told["given"] == "some words"
    assert client.get(f"/api/looks/{told['id']}").json() == told
    for _ in range(3):
        client.post("/api/look", json={"text": "others"})
    response = client.get(f"/api/looks/{told['id']}")
    assert (response.status_code, "no longer kept" in response.json()["error"]) == (404, True)
    assert client.get("/api/looks/..%2f").status_code == 404


def test_a_name_of_a_file_goes_nowhere(open_client):
    for name in ("../../a.png", "/etc/passwd", "a\\..\\b", "x" * 3000):
        assert open_client().post("/api/look", **image(name=name)).status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/limits.py",
        "/static/guard.py",
        "/static/",
        "/etc/passwd",
        "/static//etc/passwd",
        "/static/serve.js%00",
        "/static/answers.py",
        "/docs",
        "/openapi.json",
        "/static/a/b",
    ],
)
def test_addresses_are_no_paths(open_client, address):
    response = open_client().get(address)
    assert (response.status_code, "error" in response.json()) == (404, True)


def test_the_page_and_its_files(open_client):
    client = open_client()
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name, kind in (
        ("serve.js", "text/javascript"),
        ("serve.css", "text/css"),
        ("explorer.js", "text/javascript"),
    ):
        response = client.get(f"/static/{name}")
        assert response.headers["content-type"].startswith(kind)
        again = client.get(f"/static/{name}", headers={"if-none-match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("problem", "status", "sentence"),
    [
        (ValueError("the vocabulary has no token for 'x'"), 422, "the vocabulary has no token for 'x'"),
        (ValueError("/some/where/toy reads 8 tokens"), 422, "toy reads 8 tokens"),
        (RuntimeError("shapes\ndiffer"), 500, "the model failed: shapes differ"),
        (MemoryError(), 500, "the model failed: MemoryError"),
    ],
)
def test_an_error_of_the_model_is_a_sentence(open_client, problem, status, sentence):
    client = open_client()
    client.model.problem = problem
    response = client.post("/api/look", **image())
    assert (response.status_code, response.json()) == (status, {"error": sentence})
    client.model.problem = None
    assert client.post("/api/look", **image()).status_code == 200


def test_a_question_that_is_none_is_refused(open_client):
    client = open_client()
    address = f"/api/looks/{client.post('/api/look', **image()).json()['id']}/ask"
    response = client.post(address, json={"ask": "nothing"})
    assert (response.status_code, response.json()["error"]) == (422, "ask for something, got 'nothing'")
    assert client.post(address, content=b"{").status_code == 400
    assert client.post(address, json={"ask": "x" * 600}).status_code == 413
    assert client.post("/api/looks/unknown/ask", json={}).status_code == 404
    assert client.post("/api/looks/%2e%2e/ask", json={}).status_code == 404


def test_old_results_are_forgotten(open_client):
    client = open_client()
    keys = [client.post("/api/look", **image()).json()["id"] for _ in range(4)]
    statuses = [client.post(f"/api/looks/{key}/ask", json={}).status_code for key in keys]
    assert statuses == [404, 200, 200, 200]
    assert len(client.service.kept) == 3
    assert client.service.kept.nbytes == 300


def test_a_full_queue_refuses_politely_and_serves_again(open_client):
    client = open_client()
    key = client.post("/api/look", **image()).json()["id"]
    client.model.go.clear()
    client.model.begun.clear()
    under_way = [client.start("POST", "/api/look", **image()) for _ in range(2)]
    assert client.model.begun.wait(60)
    until(lambda: client.service.worker.taken["look"] == 2)
    response = client.post("/api/look", **image())
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "try again" in response.json()["error"]
    assert client.get("/healthz").json()["taken"]["look"] == 2
    client.model.go.set()
    assert [x.result(60).status_code for x in under_way] == [200, 200]
    assert client.post(f"/api/looks/{key}/ask", json={}).status_code == 200
    assert client.post("/api/look", **image()).status_code == 200
    health = client.get("/healthz").json()
    assert health["status"] == "ok"
    assert health["taken"] == {"ask": 0, "look": 0}
    assert health["peak"]["look"] == 2


def test_who_waits_is_told_that_the_server_stops(open_client):
    client = open_client()
    client.model.go.clear()
    waiting = [client.start("POST", "/api/look", **image()) for _ in range(2)]
    until(lambda: client.service.worker.taken["look"] == 2)
    client.call(client.service.stopping.set)
    answers = [x.result(60) for x in waiting]
    assert [x.status_code for x in answers] == [503, 503]
    assert {x.json()["error"] for x in answers} == {"the server is stopping"}
    assert client.service.worker.taken["look"] == 0


def test_the_bounds_hold_by_default():
    limits = Limits()
    assert limits != LIMITS
    assert limits.upload * limits.waiting < 1 << 27  # what uploads may hold together
