"""Who may speak to a server, and what its answers say to the browser."""

import re
from http.cookies import SimpleCookie

import pytest

from sightline.serve.guard import HEADERS, Access
from tests.serve.conftest import image

TOKEN = "right-token"  # noqa: S105
GUARDED = Access(names=frozenset({"gpu-box"}), any_address=True, token=TOKEN, cookie="sightline-1")


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
    for address in ("/api/look", "/api/looks/x/ask", "/token"):
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


def test_the_pages_have_no_script_or_style_of_their_own(open_client):
    client = open_client()
    for text in (client.get("/").text, client.get("/static/token.html").text):
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=|https?://", text)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": TOKEN},
        {"cookie": "sightline-1=wrong"},
        {"cookie": "other=right-token"},
        {"authorization": b"Bearer \xff\xfe"},
        {"cookie": '"; =;;'},
    ],
)
def test_without_the_token_nothing_is_told(open_client, headers):
    client = open_client(access=GUARDED)
    for method, address in (
        ("GET", "/api/about"),
        ("POST", "/api/look"),
        ("GET", "/static/serve.js"),
        ("GET", "/x"),
    ):
        response = client.start(method, address, headers=headers).result(10)
        assert response.status_code == 401
        assert "toy" not in response.text
    page = client.get("/", headers=headers)
    assert page.status_code == 401
    assert 'action="/token"' in page.text
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer {TOKEN}"},
        {"cookie": f"sightline-1={TOKEN}"},
    ],
)
def test_the_token_opens(open_client, headers):
    client = open_client(access=GUARDED)
    assert client.get("/api/about", headers=headers).status_code == 200


def test_the_printed_address_becomes_a_cookie_and_leaves_the_address(open_client):
    client = open_client(access=GUARDED)
    assert client.get("/?token=wrong").status_code == 401
    assert client.get(f"/api/about?token={TOKEN}").status_code == 401  # only the page takes it there
    answers = [client.get(f"/?token={TOKEN}"), client.post("/token", data={"token": TOKEN})]
    for response in answers:
        assert (response.status_code, response.headers["location"]) == (303, "/")
        cookie = SimpleCookie(response.headers["set-cookie"])["sightline-1"]
        assert cookie.value == TOKEN
        assert cookie["httponly"]
        assert cookie["samesite"] == "strict"
    wrong = client.post("/token", data={"token": "wrong"})
    assert (wrong.status_code, "hidden" in wrong.text, "hidden" in client.get("/").text) == (401, False, True)


def test_where_no_token_is_asked_for_none_is_set(open_client):
    assert "set-cookie" not in open_client().post("/token", data={"token": ""}).headers


def test_a_token_does_not_show(open_client):
    assert TOKEN not in repr(GUARDED)
