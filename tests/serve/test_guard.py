"""Who may speak to a server, and what its answers say to the browser."""

import re

import pytest

from sightline.serve.guard import HEADERS, Access
from tests.serve.conftest import image

TOKEN = "right-token"  # noqa: S105
GUARDED = Access(names=frozenset({"gpu-box"}), any_address=True, token=TOKEN)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8017", "LOCALHOST:1", "127.0.0.1:9999", "[::1]:8017", "[::1]"]
)
def test_the_loopback_is_known_by_its_names_on_any_port(open_client, host):
    assert open_client().get("/api/about", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:8017",
        "10.1.2.3:8017",
        "127.0.0.1@evil.example",
        "",
        "[",
        "127.0.0.1.evil.example",
        "localhost\tevil",
        "0x7f.1",
    ],
)
def test_a_foreign_host_is_refused(open_client, host):
    client = open_client()
    for method, address in (
        ("GET", "/"),
        ("GET", "/healthz"),
        ("POST", "/api/look"),
        ("GET", "/static/serve.js"),
    ):
        response = client.start(method, address, headers={"host": host}).result(10)
        assert response.status_code == 421
        assert "not called" in response.json()["error"]


def test_a_server_for_others_is_known_by_its_name_and_by_addresses():
    assert all(
        map(GUARDED.knows_host, ("gpu-box:80", "GPU-box", "10.1.2.3:8017", "[fe80::1]:8017", "localhost"))
    )
    assert not any(map(GUARDED.knows_host, ("evil.example", "gpu-box.evil.example", "10.1.2.3.evil.example")))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:9"},
        {"origin": "null"},
        {"origin": "https://localhost.evil.example:8017"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_site_may_not_send(open_client, headers):
    client = open_client()
    for address in ("/api/look", "/api/looks/x/ask"):
        assert client.post(address, headers=headers, **image()).status_code == 403
    assert client.model.calls == 0


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "http://localhost:8017", "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}],
)
def test_the_page_itself_and_programs_may(open_client, headers):
    assert open_client().post("/api/look", headers=headers, **image()).status_code == 200


def test_every_answer_has_the_headers(open_client):
    client = open_client()
    for method, address in (
        ("GET", "/"),
        ("GET", "/nothing"),
        ("GET", "/api/about"),
        ("POST", "/api/look"),
        ("PUT", "/"),
    ):
        headers = client.start(method, address).result(10).headers
        assert HEADERS.items() <= dict(headers).items()
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert client.get("/api/about").headers["cache-control"] == "no-store"


def test_the_page_has_no_script_or_style_of_its_own_and_names_its_files_from_where_it_is(open_client):
    text = open_client().get("/").text
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=|https?://", text)
    assert not re.search(r"(href|src)=\"/", text)


OUTSIDE = {"base_url": "http://localhost:8017"}


@pytest.mark.parametrize(
    "before", ["", "/wrong", f"/{TOKEN}x", f"/{TOKEN[:-1]}", f"//{TOKEN}", "/%F0%9F", "/é"]
)
def test_without_the_token_nothing_is_told(open_client, before):
    client = open_client(access=GUARDED, **OUTSIDE)
    for method, address in (
        ("GET", "/"),
        ("GET", "/api/about"),
        ("POST", "/api/look"),
        ("GET", "/static/serve.js"),
        ("GET", f"/?token={TOKEN}"),
        ("GET", "/x"),
    ):
        response = client.start(method, before + address).result(10)
        assert response.status_code == 401
        assert response.json() == {
            "error": "use the whole address that the server printed when it started: a token is in it"
        }
    assert client.get(f"/{TOKEN}").status_code == 401  # the address ends in a stroke
    assert client.get("/healthz").status_code == 200


def test_the_token_in_the_address_opens(open_client):
    client = open_client(access=GUARDED, **OUTSIDE)
    for address in ("", "api/about", "static/serve.js", "static/explorer.css", "healthz"):
        assert client.get(f"/{TOKEN}/{address}").status_code == 200
    assert client.post(f"/{TOKEN}/api/look", **image()).status_code == 200
    assert client.get(f"/{TOKEN}/{TOKEN}/").status_code == 404


def test_no_answer_sets_a_cookie(open_client):
    client = open_client()
    assert not any("set-cookie" in client.get(address).headers for address in ("/", "/api/about", "/healthz"))


def test_every_server_has_a_token_of_its_own():
    tokens = {Access().token for _ in range(7)}
    assert len(tokens) == 7
    assert all(len(token) >= 32 for token in tokens)


def test_a_token_does_not_show(open_client):
    assert TOKEN not in repr(GUARDED)
