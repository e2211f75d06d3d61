"""Serves the pages of finished runs to one user of this machine; standard library only.

    with serve(runs, port=0) as url:
        print(url)

Other users of the machine do not get in: the address has a secret in it, which becomes a cookie at
the first visit. Other host names (DNS rebinding) are refused, and there are no writes.
"""

import hmac
import logging
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from themis.dashboard.assets import HEADERS, INDEX, asset
from themis.dashboard.finished_run import FinishedRun
from themis.dashboard.model import RunComparison
from themis.errors import ConfigError, DeniedError, MissingError, RefusedError, ThemisError
from themis.recording.codec import dumps

_LOG = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_MOST_ROUNDS = 200
_STATUS = ((DeniedError, 403), (MissingError, 404), (RefusedError, 422))


class LocalPages:
    """The JSON of each path, apart from sockets."""

    def __init__(self, runs: Sequence[FinishedRun]) -> None:
        self._runs = runs
        self._titles = tuple(item.origin.title for item in runs)

    def answer(self, path: str, query: dict[str, str]) -> str:
        """The JSON of a path.

        Raises:
            RefusedError: There is no such page, or a parameter is wrong.
        """
        parts = [unquote(part) for part in path.strip("/").split("/")]
        run = self._run(query)
        match parts:
            case ["v1", "board"]:
                return dumps(run.board(self._titles))
            case ["v1", "board", "timeline"]:
                return dumps(run.timeline())
            case ["v1", "board", "apps", name]:
                return dumps(run.app(name))
            case ["v1", "board", "rounds"]:
                limit = min(_MOST_ROUNDS, _whole(query, "limit", 50))
                return dumps(run.rounds(_whole(query, "before", 0), limit))
            case ["v1", "board", "runs"]:
                return dumps(RunComparison(tuple(item.compared() for item in self._runs)))
            case ["v1", "rounds", number]:
                return dumps(run.round(_whole({"round": number}, "round", 0)))
            case _:
                raise MissingError(path[:200], "there is no such page")

    def _run(self, query: dict[str, str]) -> FinishedRun:
        number = _whole(query, "run", 0)
        if number >= len(self._runs):
            raise MissingError(f"run {number}", f"there are {len(self._runs)}")
        return self._runs[number]


def _whole(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or len(text) > 15:
        raise RefusedError(name, "a whole number")
    return int(text)


class _Handler(BaseHTTPRequestHandler):
    """One request. Each server makes a subclass with the four values below."""

    pages: LocalPages
    secret: str
    cookie: str
    """The name of the cookie, with the port in it: browsers keep cookies by host alone, and servers
    side by side must not replace each other's."""
    hosts: frozenset[str]
    protocol_version = "HTTP/1.1"
    timeout = 60
    server_version = "themis"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer, whatever happens."""
        try:
            self._answer()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except ThemisError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            body = {"error": "refused", "who": getattr(error, "who", ""), "reason": str(error)}
            self._send(status, dumps(body).encode(), "application/json")

    def _answer(self) -> None:
        place = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(place.query).items()}
        if self.headers.get("Host", "").lower() not in self.hosts:
            raise DeniedError("browser", "this name is not one of this machine's own")
        if hmac.compare_digest(query.get("key", "").encode(), self.secret.encode()):
            self._log_in(place.path)
            return
        if not self._has_cookie():
            raise DeniedError("browser", "open the address that `themis dashboard` printed")
        if place.path.startswith("/v1/"):
            body = self.pages.answer(place.path, query).encode()
            self._send(200, body, "application/json")
            return
        name = place.path.removeprefix("/static/") if place.path != "/" else INDEX
        found = asset(name)
        if self.headers.get("If-None-Match") == found.tag:
            self._send(304, b"", found.media_type, found.headers)
            return
        self._send(200, found.data, found.media_type, found.headers)

    def _log_in(self, path: str) -> None:
        """Let a browser in, and take the secret out of its address."""
        cookie = f"{self.cookie}={self.secret}; Path=/; HttpOnly; SameSite=Strict"
        where = {"Location": "/" if not path.startswith("/static") else path}
        self._send(303, b"", "text/plain", {**HEADERS, **where, "Set-Cookie": cookie})

    def _has_cookie(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.cookie)
        except CookieError:
            return False
        shown = found.value if found is not None else ""
        return hmac.compare_digest(shown.encode(), self.secret.encode())

    def _send(
        self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        sent = headers if headers is not None else {**HEADERS, "Cache-Control": "no-store"}
        for name, value in sent.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        """To the log, not to the terminal."""
        _LOG.debug(format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The port of a server that has just ended is free at once.
    allow_reuse_address = True


@contextmanager
def serve(runs: Sequence[FinishedRun], port: int = 0) -> Iterator[str]:
    """Serve until left; yields the address, with the secret in it.

    Args:
        runs: The runs to show; the first is shown first.
        port: The port; 0 for any.

    Raises:
        ConfigError: The port cannot be used.
    """
    secret = secrets.token_urlsafe(24)
    handler = type("_Bound", (_Handler,), {"pages": LocalPages(runs), "secret": secret})
    try:
        server = _Server((_LOOPBACK, port), handler)
    except OSError as error:
        raise ConfigError("port", port, f"a free port ({error.strerror})") from None
    used = server.server_address[1]
    at = f"{_LOOPBACK}:{used}"
    handler.hosts = frozenset({at, f"localhost:{used}"})  # type: ignore[attr-defined]  # see above
    handler.cookie = f"themis-dashboard-{used}"  # type: ignore[attr-defined]  # see above
    thread = threading.Thread(target=server.serve_forever, name="dashboard", daemon=True)
    thread.start()
    try:
        yield f"http://{at}/?key={secret}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5.0)
