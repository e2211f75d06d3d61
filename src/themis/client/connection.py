"""One service over HTTP: connects anew for each call, sends it again where that is safe.

    connection = ServiceConnection("https://themis.lab:7421", token, "ca.pem")
    connection.call("GET", "/v1/apps", safe=True)

What the service refuses comes back as the errors of `themis.errors`, in the service's words.
"""

import json
import random
import ssl
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from os import PathLike, fspath
from typing import Any
from urllib.parse import urlsplit

from themis.answers import Answer
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

SERVER = "http://127.0.0.1:7421"
"""The default address of a service."""
TIMEOUT = 30.0
"""Seconds that a service may stay silent."""
TRIES = 3
"""How often a call is sent at most."""

_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0
_MOST_BYTES = 64 * 2**20

_ERRORS: Mapping[str, Callable[[str, str], RefusedError]] = {
    "unknowncaller": UnknownCallerError,
    "denied": DeniedError,
    "unknownapp": UnknownAppError,
    "missing": MissingError,
    "duplicate": DuplicateError,
    "refused": RefusedError,
    "config": RefusedError,
}
"""Errors by the names that the service gives them."""


class ServiceConnection:
    """Where a service is, and how to call it. It holds no socket, so threads may share it."""

    def __init__(
        self,
        server: str,
        token: str | None,
        ca: str | PathLike[str] | None,
        *,
        timeout: float = TIMEOUT,
        tries: int = TRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(server)
        _check(server, token)
        self.server = f"{parts.scheme}://{parts.netloc}"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._token = token
        self._context = tls_context(ca) if parts.scheme == "https" else None
        self._timeout = timeout
        self._tries = max(1, tries)
        self._sleep = sleep

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, safe: bool = False
    ) -> Answer:
        """The answer to one call; `safe` says that sending it twice changes nothing more."""
        for attempt in range(1, self._tries + 1):
            try:
                return self._once(method, path, body)
            except (UnavailableError, LimitError) as error:
                wait = _wait(error, attempt)
                if not safe or attempt == self._tries or wait is None:
                    raise
                self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        text = None
        if body is not None:
            text = _json(body)
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            raw = answer.read(_MOST_BYTES + 1)
            status, after = answer.status, answer.getheader("Retry-After")
        except ssl.SSLCertVerificationError as error:
            raise UnavailableError(
                f"{self.server}: its certificate is not trusted ({error.verify_message}); name "
                "the file of the authority that signed it, and call it by a name in it"
            ) from None
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{self.server}: {_trouble(error)}") from None
        finally:
            connection.close()
        return self._read(status, after, raw)

    def _connection(self) -> HTTPConnection:
        if self._context is not None:
            return HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=self._context
            )
        return HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _read(self, status: int, after: str | None, raw: bytes) -> Answer:
        try:
            data: Any = json.loads(raw) if len(raw) <= _MOST_BYTES else None
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise UnavailableError(
                f"{self.server}: what answers there (with status {status}) is no Themis service"
            )
        if status == 200:
            return Answer(data)
        raise _error(status, after, data)


def _check(server: str, token: str | None) -> None:
    allowed = f"http://HOST:PORT or https://HOST:PORT, such as {SERVER}"
    parts = urlsplit(server)
    try:
        sound = parts.port != 0
    except ValueError:
        sound = False
    extra = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if not sound or parts.scheme not in {"http", "https"} or not parts.hostname or extra:
        # A password in it must not come back in a message.
        raise ConfigError("server", server.rpartition("@")[2], allowed)
    if token and not (token.isascii() and token.isprintable()):
        raise ConfigError("token", "something else", "one line: themis_<id>_<secret>")
    if token and parts.scheme == "http" and not _is_here(parts.hostname):
        raise ConfigError("server", server, "https:// for another machine: a token is a secret")


def _error(status: int, after: str | None, data: Mapping[str, Any]) -> ThemisError:
    """A refusal of the service as one of `themis.errors`."""
    name, who, reason = (str(data.get(key) or "") for key in ("error", "who", "reason"))
    reason = reason or f"it answered with status {status}"
    if name == "limit":
        seconds = float(after) if after and after.isdecimal() else None
        return LimitError(who or "caller", reason, seconds)
    if name in _ERRORS:
        return _ERRORS[name](who or "the service", reason.removeprefix(f"{who}: "))
    if data.get("reference"):
        reason = f"{reason} under {data['reference']}"
    if name == "unavailable" or status in {502, 503, 504}:
        return UnavailableError(f"the service cannot do this now: {reason}")
    return ThemisError(f"the service failed: {reason}")


def _wait(error: Exception, attempt: int) -> float | None:
    """Seconds until another try; None if another try makes no sense."""
    if isinstance(error, LimitError):
        if error.retry_after is None or error.retry_after > _LONGEST_WAIT:
            return None
        # Spread out: callers that were refused together must not return together.
        return error.retry_after + random.uniform(0.0, 0.5)
    return float(_FIRST_WAIT * 2 ** (attempt - 1)) * random.uniform(0.5, 1.5)


def _trouble(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time; is the service busy, or something in between?"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; is the service running (`themis serve`), and there?"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there ({error.reason or error}); is it http:// and not https://?"
    if isinstance(error, HTTPException | ConnectionError):
        cause = str(error) or type(error).__name__
        return f"the call was cut off ({cause}); is it https:// and not http://?"
    return f"it cannot be reached ({getattr(error, 'strerror', None) or error})"


def _json(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise RefusedError("body", f"it cannot be written as JSON ({error})") from None


def tls_context(ca: str | PathLike[str] | None) -> ssl.SSLContext:
    """A context that trusts the authority in a file; None for those of this machine.

    Raises:
        ConfigError: The file is missing, or has no certificate.
    """
    path = None if ca is None else fspath(ca)
    try:
        context = ssl.create_default_context(cafile=path)
    except FileNotFoundError:
        raise MissingFileError("ca", str(path)) from None
    except OSError as error:  # an invalid certificate raises one too
        given = getattr(error, "strerror", None) or "something else"
        raise ConfigError("ca", given, "a certificate (PEM)", str(path)) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _is_here(host: str) -> bool:
    """Whether an address is on this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
