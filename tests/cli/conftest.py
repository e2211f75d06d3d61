"""The command line in this process: quick, and with everything that it printed."""

import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from themis import client as client_module
from themis.cli import main
from themis.errors import MissingError
from themis.service.http.responses import error_answer
from themis.sim import RunConfig, run


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Call `themis` with some arguments."""
    usual = gc.get_threshold()

    def call(*args: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["themis", *map(str, args)])
        code = main()
        out, err = capsys.readouterr()
        return Done(code, out, err)

    yield call
    gc.set_threshold(*usual)  # commands that simulate change it, for a process that ends with them
    gc.unfreeze()


@pytest.fixture(scope="session")
def recorded_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The event log of a short run; tests that damage it copy it first."""
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    config = RunConfig(cluster="demo16", apps=2, policy="themis", options={"lease": "4h"})
    run(config, log_to=path)
    return path


class Canned(ThreadingHTTPServer):
    """A service that answers as told, by `GET /v1/apps`; of a list one after the other."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str], Any]] = []

    def answer(self, route: str, query: dict[str, str]) -> Any:
        """What this route has to say now."""
        name = route.split("/")[3] if route.count("/") > 2 else route
        found = self.answers.get(route, MissingError(name, "no such thing"))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        return found(query) if callable(found) else found

    def bodies(self, route: str) -> list[Any]:
        """What was sent there."""
        return [body for asked, _, body in self.asked if asked == route]


class _Handler(BaseHTTPRequestHandler):
    server: Canned

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        route = f"{self.command} {parts.path}"
        self.server.asked.append((route, query, body))
        found, status = self.server.answer(route, query), 200
        if isinstance(found, Exception):
            problem = error_answer(found)
            found, status = problem.data(), int(problem.status)
        raw = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - http.server wants these names

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Canned]:
    """A service on this machine that is the one that is called, and a client that never sleeps."""

    class Restless(client_module.Client):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **{**named, "sleep": lambda _: None})

    token = tmp_path / "secret.token"
    token.write_text("themis_0123456789ab_" + "s" * 43 + "\n")
    token.chmod(0o600)
    monkeypatch.setattr(client_module, "Client", Restless)
    monkeypatch.setenv("THEMIS_TOKEN_FILE", str(token))
    monkeypatch.delenv("THEMIS_CA", raising=False)
    with Canned() as server:
        monkeypatch.setenv("THEMIS_SERVER", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
