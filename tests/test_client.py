"""The HTTP client against a server that answers as told."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.answers import Answer
from themis.client import Client, absolute, job_app
from themis.errors import (
    ConfigError,
    DeniedError,
    DuplicateError,
    LimitError,
    MissingError,
    MissingFileError,
    RefusedError,
    ThemisError,
    UnavailableError,
    UnknownAppError,
    UnknownCallerError,
)
from themis.security.permissions import Verb
from themis.service.http.responses import error_answer
from themis.service.http.routes.table import ROUTES

TOKEN = "themis_0123456789ab_" + "s" * 43
Reply = tuple[int, Any, dict[str, str]]


class Scripted(ThreadingHTTPServer):
    """Gives its replies in order, the last one for ever, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, *replies: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = list(replies)
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Scripted

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.command, self.path, body, dict(self.headers)))
        replies = self.server.replies
        status, answer, headers = replies.pop(0) if len(replies) > 1 else replies[0]
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - http.server wants these names

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(*replies: Reply) -> Iterator[tuple[Scripted, Client, list[float]]]:
    waits: list[float] = []
    with Scripted(*replies) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            yield server, Client(address, TOKEN, sleep=waits.append), waits
        finally:
            server.shutdown()
            thread.join()


def ok(**answer: object) -> Reply:
    return 200, answer, {}


def refusal(error: Exception) -> Reply:
    problem = error_answer(error)
    return int(problem.status), problem.data(), {}


CALLS: dict[str, Callable[[Client], object]] = {
    "/v1/about": lambda c: c.about(),
    "/v1/whoami": lambda c: c.whoami(),
    "POST /v1/apps": lambda c: c.submit({"name": "a"}, "k"),
    "/v1/apps": lambda c: c.apps(),
    "/v1/apps/{app}": lambda c: c.status("x"),
    "/v1/apps/{app}/explain": lambda c: c.explain("x"),
    "/v1/apps/{app}/results": lambda c: c.results("x"),
    "/v1/apps/{app}/jobs/{job}/log": lambda c: c.logs("x", "x"),
    "POST /v1/apps/{app}/retry": lambda c: c.retry("x"),
    "POST /v1/apps/{app}/pause": lambda c: c.pause("x"),
    "POST /v1/apps/{app}/resume": lambda c: c.resume("x"),
    "POST /v1/apps/{app}/cancel": lambda c: c.cancel("x"),
    "POST /v1/apps/{app}/hold": lambda c: c.hold("x"),
    "POST /v1/apps/{app}/release": lambda c: c.release("x"),
    "/v1/nodes": lambda c: c.nodes(),
    "POST /v1/nodes/{node}/cordon": lambda c: c.cordon("x"),
    "POST /v1/nodes/{node}/drain": lambda c: c.drain("x"),
    "POST /v1/nodes/{node}/uncordon": lambda c: c.uncordon("x"),
    "POST /v1/nodes/{node}/remove": lambda c: c.remove_node("x"),
    "POST /v1/nodes/{node}/gpus/{index}/restore": lambda c: c.restore_gpu("x", 1),
    "/v1/owners": lambda c: c.owners(),
    "PUT /v1/owners/{owner}/quota": lambda c: c.quota("x", None),
    "PUT /v1/owners/{owner}/weight": lambda c: c.weight("x", 2.0),
    "/v1/tokens": lambda c: c.tokens(),
    "POST /v1/tokens": lambda c: c.create_token("tenant", "x"),
    "DELETE /v1/tokens/{token}": lambda c: c.revoke_token("x"),
    "/v1/rounds": lambda c: c.rounds(),
    "/v1/rounds/{round}": lambda c: c.round(1),
    "POST /v1/whatif": lambda c: c.begin_forecast({"app": {}}),
    "/v1/whatif/{question}": lambda c: c.newest_forecast("x"),
    "DELETE /v1/whatif/{question}": lambda c: c.drop_forecast("x"),
    "/v1/snapshot": lambda c: c.snapshot(),
    "/v1/audit": lambda c: c.audit(),
    "/v1/config": lambda c: c.config(),
    "POST /v1/config/reload": lambda c: c.reload(),
    "POST /v1/login-links": lambda c: c.login_link(),
}

# Routes that the client calls, whether the service of this version has them or not.
SWEEPS = {
    "/v1/apps/{app}/results",
    "/v1/apps/{app}/jobs/{job}/log",
    "POST /v1/apps/{app}/retry",
}


def route(method: str, path: str) -> str:
    return path if method == "GET" else f"{method} {path}"


def test_every_route_for_people_has_a_method_that_calls_it() -> None:
    # Browsers and monitoring need none.
    none, pages = {Verb.HEALTH, Verb.LOGOUT, Verb.METRICS}, re.compile(r"/(static/.*|v1/board.*)?$")
    routes = {
        route(e.method, e.path) for e in ROUTES if e.verb not in none and not pages.match(e.path)
    }
    assert (routes | SWEEPS) - {"/openapi.json", "/login/{code}"} == set(CALLS)
    with serving(ok(path="/login/c")) as (server, client, _):
        for name, call in CALLS.items():
            call(client)
            method, path, _, headers = server.asked[-1]
            wanted = name
            for part, value in (("{index}", "1"), ("{round}", "1")):
                wanted = wanted.replace(part, value)
            for part in ("{app}", "{job}", "{node}", "{owner}", "{token}", "{question}"):
                wanted = wanted.replace(part, "x")
            assert route(method, path.partition("?")[0]) == wanted
            assert headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnknownCallerError("tenant vision", "this token has expired"), UnknownCallerError),
        (DeniedError("tenant vision", "`hold` is for admin"), DeniedError),
        (UnknownAppError("sweep", "there is no such app"), UnknownAppError),
        (MissingError("m7", "there is no such machine"), MissingError),
        (DuplicateError("sweep", "the name is taken"), DuplicateError),
        (RefusedError("body.gpus", "at least 0"), RefusedError),
        (ConfigError("note", "a token", "words"), RefusedError),
    ],
    ids=lambda item: type(item).__name__ if isinstance(item, Exception) else "",
)
def test_refusal_of_the_service_is_passed_on_verbatim(
    error: Exception, kind: type[RefusedError]
) -> None:
    with serving(refusal(error)) as (server, client, waits):
        with pytest.raises(kind) as caught:
            client.nodes()
        assert type(caught.value) is kind
        assert str(caught.value) == str(error)
        assert (len(server.asked), waits) == (1, [])  # the same again would be refused again


def test_missing_app_is_reported_as_such() -> None:
    missing = refusal(MissingError("sweep", "there is no such app, or it has ended"))
    with serving(missing) as (_, client, _), pytest.raises(UnknownAppError, match="sweep: there"):
        client.hold("sweep")


def test_weather_is_waited_for_where_a_second_call_changes_nothing() -> None:
    weather = refusal(UnavailableError("the service is stopping"))
    with serving(weather, weather, ok(apps=[])) as (server, client, waits):
        assert client.apps() == {"apps": []}
        assert len(server.asked) == 3
        assert 0.0 < waits[0] < waits[1] * 4.0
    # A submission has a key: sent again it is the same one.
    with serving(weather, ok(app="a")) as (server, client, waits):
        assert client.submit({"name": "a"}) == {"app": "a"}
        assert server.asked[0][2] == server.asked[1][2]
        assert server.asked[0][2]["key"]


def test_changing_request_is_sent_once() -> None:
    weather = refusal(UnavailableError("the service is stopping"))
    for name, call in CALLS.items():
        if name.startswith("/") or name == "POST /v1/apps":
            continue
        with serving(weather) as (server, client, waits):
            with pytest.raises(UnavailableError, match="the service is stopping"):
                call(client)
            assert (len(server.asked), waits) == (1, []), name


def test_throttled_caller_retries_at_the_given_time() -> None:
    limit = refusal(LimitError("caller", "too many calls"))
    with serving((*limit[:2], {"Retry-After": "1"}), ok(nodes=[])) as (_, client, waits):
        assert client.nodes() == {"nodes": []}
        assert 1.0 <= waits[0] <= 1.5
    with serving((*limit[:2], {"Retry-After": "3600"})) as (_, client, waits):
        with pytest.raises(LimitError) as caught:
            client.nodes()
        assert (caught.value.retry_after, waits) == (3600.0, [])


def test_unexpected_error_comes_with_its_reference() -> None:
    failed = refusal(ZeroDivisionError("secret details"))
    with serving(failed) as (server, client, _):
        with pytest.raises(ThemisError, match=failed[1]["reference"]) as caught:
            client.nodes()
        assert not isinstance(caught.value, UnavailableError | RefusedError)
        assert len(server.asked) == 1


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b'"x"', b"", b"\xff", b"[" * 100_000])
def test_foreign_server_is_distinguished_from_a_service(raw: bytes) -> None:
    told = pytest.raises(UnavailableError, match="no Themis service")
    with serving((200, raw, {})) as (_, client, _), told:
        client.about()


def test_unreachable_service_is_reported_with_advice_and_without_token() -> None:
    with serving(ok()) as (server, _, _):
        port = server.server_port
    client = Client(f"http://127.0.0.1:{port}", TOKEN, sleep=lambda _: None)
    with pytest.raises(UnavailableError, match="themis serve") as caught:
        client.apps()
    assert TOKEN not in str(caught.value) + repr(client) + repr(caught.value)


@pytest.mark.parametrize(
    "server",
    [
        "127.0.0.1:7421",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:x",
        "http://127.0.0.1:70000",
        "http://127.0.0.1/path",
        "http://127.0.0.1?x=1",
        "http://u:hunter2@127.0.0.1",
    ],
)
def test_invalid_address_is_refused(server: str) -> None:
    with pytest.raises(ConfigError, match="http://HOST:PORT") as caught:
        Client(server)
    assert "hunter2" not in str(caught.value)


def test_a_token_does_not_leave_this_machine_without_tls() -> None:
    with pytest.raises(ConfigError, match="https://"):
        Client("http://themis.lab:7421", TOKEN)
    for here in ("http://localhost:1", "http://[::1]:1", "http://127.1.2.3:1"):
        Client(here, TOKEN)
    Client("http://themis.lab:7421")  # without one there is nothing to lose
    with pytest.raises(ConfigError) as caught:
        Client(token=f"{TOKEN}\r\nX-Evil: 1")
    assert TOKEN not in str(caught.value)


def test_missing_certificate_authority_is_reported(tmp_path: Any) -> None:
    with pytest.raises(MissingFileError):
        Client("https://127.0.0.1", ca=tmp_path / "ca.pem")
    file = tmp_path / "odd.pem"
    file.write_text("no certificate")
    with pytest.raises(ConfigError, match="a certificate"):
        Client("https://127.0.0.1", ca=file)


@given(st.text())
def test_no_name_leads_to_another_route(name: str) -> None:
    calls: list[str] = []

    def note(method: str, path: str, *_: Any, **__: Any) -> Answer:
        calls.append(path)
        return Answer()

    client = Client()
    client._call = note
    try:
        client.hold(name)
    except RefusedError:
        return
    (path,) = calls
    assert path.startswith("/v1/apps/")
    assert path.endswith("/hold")
    middle = path.removeprefix("/v1/apps/").removesuffix("/hold")
    assert middle
    assert middle.isascii()
    assert not set(middle) & set("/?# \r\n")


# Sweeps


def test_a_submission_says_what_and_where_it_is(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PWD", raising=False)
    with serving(ok(app="a", plan={})) as (server, client, _):
        client.submit({"name": "a", "command": ["x"]}, "k", seed=7, dry_run=True)
        client.submit({"name": "a", "command": ["x"], "workdir": "code"})
        client.submit({"name": "a", "command": ["x"], "workdir": "/data"})
    first, second, third = (asked[2] for asked in server.asked)
    here = str(tmp_path.resolve())
    assert first == {
        "app": {"name": "a", "command": ["x"], "workdir": here},
        "key": "k", "seed": 7, "dry_run": True,
    }  # fmt: skip
    assert (second["app"]["workdir"], second["seed"], second["dry_run"]) == (
        f"{here}/code", None, False
    )  # fmt: skip
    assert third["app"]["workdir"] == "/data"
    assert second["key"] != third["key"]


def test_a_folder_is_called_as_it_was_entered(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "link")
    monkeypatch.setenv("PWD", str(tmp_path / "link"))
    assert absolute("x") == str(tmp_path / "link" / "x")
    assert absolute("../x") == str((tmp_path / "x").resolve())
    monkeypatch.setenv("PWD", str(tmp_path))  # which is another folder
    assert absolute(".") == str((tmp_path / "real").resolve())


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "train.py", "--lr", "1"], "train"),
        (["python3.11", "/a/My_Model.py"], "my-model"),
        (["torchrun", "train.py"], "train"),
        (["python"], "python"),
        (["./Fine Tune.sh"], "fine-tune"),
        (["..."], "job"),
        (["x" * 99], "x" * 40),
    ],
)
def test_a_job_is_named_after_what_it_runs(command: list[str], name: str) -> None:
    assert job_app(command)["name"] == name


def test_a_single_job_asks_for_exactly_the_gpus_it_names() -> None:
    app = job_app(["p", "{lr}", '{"a": {}}'], gpus=2, env={"K": "v"}, duration="1h")
    assert app == {
        "name": "p", "command": ["p", "{{lr}}", '{{"a": {{}}}}'],
        "gpus": {"per_job_max": 2, "per_job_min": 2}, "env": {"K": "v"}, "duration": "1h",
    }  # fmt: skip
    assert job_app(["p"], gpus=4, min_gpus=1)["gpus"]["per_job_min"] == 1
    nothing: list[Any] = [[], "python train.py"]
    for none in nothing:
        with pytest.raises(RefusedError, match="a list of arguments"):
            job_app(none)


def piece(offset: int, text: str, *, over: bool = False) -> Reply:
    return ok(job="0", run=1, offset=offset, next=offset + len(text), text=text, over=over)


def test_log_is_followed_until_its_job_ends() -> None:
    gone = refusal(UnavailableError("the service is stopping"))
    pieces = [piece(0, "ab"), gone, gone, gone, piece(2, ""), piece(2, "c", over=True)]
    with serving(*pieces, piece(3, "", over=True)) as (server, client, waits):
        told = [item["text"] for item in client.follow("x", "0")]
    assert told == ["ab", "", "c", ""]
    assert waits  # while the service was away
    assert server.asked[-1][1] == "/v1/apps/x/jobs/0/log?offset=3&limit=65536&wait=20"


def test_a_log_of_a_service_that_never_answered_is_not_waited_for() -> None:
    gone = refusal(UnavailableError("the service is stopping"))
    with serving(gone) as (_, client, _), pytest.raises(UnavailableError):
        list(client.follow("x", "0"))


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_waiting_ends_with_the_app_or_at_the_timeout() -> None:
    clock = Clock()
    seen: list[Any] = []
    running, over = ok(app="x"), ok(app="x", outcome="finished")
    with serving(running, running, over) as (server, _, _):
        client = Client(
            f"http://127.0.0.1:{server.server_port}",
            TOKEN,
            sleep=clock.sleep,
            clock=lambda: clock.now,
        )
        assert client.wait("x", each=seen.append)["outcome"] == "finished"
        assert len(seen) == 3
        server.replies[:] = [running]
        began = clock.now
        assert "outcome" not in client.wait("x", 10.0)
        assert clock.now - began == 10.0


def test_waiting_outlasts_a_restart_of_the_service_but_not_its_end() -> None:
    clock = Clock()
    gone = refusal(UnavailableError("the service is stopping"))
    with serving(ok(app="x"), *[gone] * 9, ok(app="x", outcome="failed")) as (server, _, _):
        client = Client(
            f"http://127.0.0.1:{server.server_port}",
            TOKEN,
            sleep=clock.sleep,
            clock=lambda: clock.now,
        )
        assert client.wait("x")["outcome"] == "failed"
        server.replies[:] = [ok(app="x"), gone]
        with pytest.raises(UnavailableError):
            client.wait("x")
    assert clock.now > 600.0


def test_apps_are_listed_worst_off_first() -> None:
    lines = [{"app": "a", "rho": 1.0}, {"app": "b", "rho": 2.5}, {"app": "c", "rho": None},
             {"app": "d"}]  # fmt: skip
    with serving(ok(apps=lines, gpus={})) as (_, client, _):
        assert [line["app"] for line in client.fair()] == ["b", "a"]


def test_missing_job_is_reported_as_such() -> None:
    missing = refusal(MissingError("9", "there is no such job"))
    with serving(missing) as (_, client, _), pytest.raises(MissingError) as caught:
        client.logs("x", "9")
    assert not isinstance(caught.value, UnknownAppError)
