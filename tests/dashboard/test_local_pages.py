"""The pages of finished runs over HTTP, and their files."""

import http.client
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from urllib.parse import urlsplit

import pytest

from themis.dashboard.app_history import AppHistories
from themis.dashboard.assets import POLICY, asset, names
from themis.dashboard.finished_run import FinishedRun, RunApps
from themis.dashboard.local_server import serve
from themis.dashboard.model import DataOrigin
from themis.dashboard.timeline_columns import HeldSegment
from themis.errors import ConfigError, MissingError


def recording(title: str) -> FinishedRun:
    apps = RunApps()
    apps.add("a/b?c", submitted=1.0, ended=9.0, rho=1.5)
    held = (HeldSegment(0, "a/b?c", 2.0, 9.0, "auction"),)
    return FinishedRun(DataOrigin("run", title), None, apps, held, AppHistories(), [])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve([recording("one"), recording("two")]) as address:
        yield address


def get(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    at = urlsplit(url)
    link = http.client.HTTPConnection(at.netloc, timeout=10)
    try:
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        link.close()


def cookie_of(url: str) -> str:
    at = urlsplit(url)
    status, headers, _ = get(url, f"/?{at.query}")
    assert (status, headers["Location"]) == (303, "/")
    assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
    return headers["Set-Cookie"].partition(";")[0]


def test_only_visitors_with_the_secret_address_get_in(url: str) -> None:
    for path in ("/", "/static/main.js", "/v1/board", "/?key=wrong", "/?key=%ff"):
        assert get(url, path)[0] == 403
    name = cookie_of(url).partition("=")[0]
    assert get(url, "/", Cookie=f"{name}=wrong")[0] == 403
    assert get(url, "/", Cookie="\x01=;;;")[0] == 403
    cookie = cookie_of(url)
    assert get(url, "/", Cookie=cookie)[0] == 200
    assert get(url, "/", Cookie=cookie, Host="evil.example")[0] == 403


def test_two_servers_on_one_machine_let_the_same_browser_in(url: str) -> None:
    with serve([recording("three")]) as other:
        jar = dict(cookie_of(each).split("=", 1) for each in (url, other))
        both = "; ".join(f"{name}={value}" for name, value in jar.items())
        assert [get(each, "/", Cookie=both)[0] for each in (url, other)] == [200, 200]


def test_the_port_of_a_server_that_ended_can_be_had_at_once() -> None:
    with serve([recording("one")]) as first:
        port = urlsplit(first).port
        assert port is not None
        assert get(first, "/")[0] == 403
    with serve([recording("two")], port) as second:
        assert get(second, "/")[0] == 403


def test_the_model_is_answered_as_json(url: str) -> None:
    cookie = cookie_of(url)

    def told(path: str) -> dict[str, object]:
        status, headers, body = get(url, path, Cookie=cookie)
        assert status == 200, body
        assert headers["Cache-Control"] == "no-store"
        found: dict[str, object] = json.loads(body)
        return found

    assert told("/v1/board")["runs"] == ["one", "two"]
    assert told("/v1/board?run=1")["origin"] != told("/v1/board")["origin"]
    assert told("/v1/board/timeline")["names"] == ["a/b?c"]
    assert told("/v1/board/apps/a%2Fb%3Fc")["leases"]
    assert told("/v1/board/rounds") == {"rounds": [], "before": None}
    assert len(told("/v1/board/runs")["runs"]) == 2  # type: ignore[arg-type]  # a list


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/board?run=7", 404),
        ("/v1/board?run=-1", 422),
        ("/v1/board/apps/nobody", 404),
        ("/v1/rounds/1", 404),
        ("/v1/rounds/x", 422),
        ("/v1/nothing", 404),
        ("/static/../model.py", 404),
        ("/static/%2e%2e/model.py", 404),
        ("/etc/passwd", 404),
    ],
)
def test_missing_page_is_refused_in_one_sentence(url: str, path: str, status: int) -> None:
    found, _, body = get(url, path, Cookie=cookie_of(url))
    assert (found, bool(json.loads(body)["reason"])) == (status, True)


def test_every_file_has_a_strict_policy_and_is_cached(url: str) -> None:
    cookie = cookie_of(url)
    for name in names():
        path = "/" if name == "index.html" else f"/static/{name}"
        status, headers, body = get(url, path, Cookie=cookie)
        assert status == 200
        assert headers["Content-Security-Policy"] == POLICY
        assert body == asset(name).data
        again = {"Cookie": cookie, "If-None-Match": headers["ETag"]}
        assert get(url, path, **again)[0] == 304


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "default-src 'none'" in POLICY
    assert "require-trusted-types-for 'script'" in POLICY


def test_no_file_makes_markup_from_text_or_asks_another_site() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|"
        r"srcdoc|DOMParser|createContextualFragment|javascript:|setAttribute\(\"style\""
    )
    outside = re.compile(r"https?://(?!www\.w3\.org/2000/svg)")
    for name in names():
        text = asset(name).data.decode()
        assert not forbidden.search(text), name
        assert not outside.search(text), name
        assert not re.search(r"<[^>]+\s(?:on\w+|style)=", text), name
    page = asset("index.html").data.decode()
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)
    assert "<style" not in page


def test_all_files_of_the_pages_are_known_and_named_by_one_another() -> None:
    there = {item.name for item in files("themis.dashboard").joinpath("static").iterdir()}
    assert there == set(names())
    texts = {name: asset(name).data.decode() for name in names()}
    for name in names():
        others = [text for other, text in texts.items() if other != name]
        assert name == "index.html" or any(name in text for text in others), name
    for text in texts.values():
        for wanted in re.findall(r'from "\./([\w.-]+)"', text):
            assert wanted in there
    with pytest.raises(MissingError):
        asset("../model.py")


def test_port_in_use_is_reported(url: str) -> None:
    port = urlsplit(url).port
    assert port is not None
    with pytest.raises(ConfigError, match="port"), serve([recording("one")], port):
        pass


def test_swatches_have_the_colours_of_the_timeline() -> None:
    static = files("themis.dashboard").joinpath("static")
    row = re.search(r"COLOURS = \[(.*?)\]", static.joinpath("palette.js").read_text())
    assert row is not None
    style = static.joinpath("style.css").read_text()
    swatches = dict(re.findall(r"\.c(\d)-p0 \{ --colour: (#\w+);", style))
    assert list(swatches.values()) == re.findall(r"#\w+", row.group(1))
