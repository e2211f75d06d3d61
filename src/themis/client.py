"""Call a service over HTTP. Standard library only, so a base install has it.

    client = Client("https://themis.lab:7421", token=token, ca="ca.pem")
    app = client.run(["python", "train.py"], gpus=2)["app"]
    client.wait(app)["outcome"]        # "finished"
    client.results(app)["best"]

Methods are named like the verbs of the command line and answer what the service answers: plain
data, which notebooks show as tables. What it refuses comes back as the errors of `themis.errors`,
in its own words.
"""

import json
import math
import os
import random
import re
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from os import PathLike, fspath
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from themis.answers import Answer as Answered
from themis.answers import Answers
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
"""Where a service listens unless told otherwise."""

Answer = dict[str, Any]

_TIMEOUT = 30.0
_TRIES = 3
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0
_SHORTEST_WAIT = 0.5
_MOST_BYTES = 64 * 2**20
_PATIENCE = 600.0
"""Seconds that a service which has answered before may be away while somebody waits for an app."""
CHUNK = 65536
"""Bytes of a log that come in one answer."""
POLL = 20.0
"""Seconds that the service may keep a call for news of a log."""

ANSWER_POLL = 10
"""Seconds that it may keep a call for a better forecast."""

_ERRORS: Mapping[str, Callable[[str, str], RefusedError]] = {
    "unknowncaller": UnknownCallerError,
    "denied": DeniedError,
    "unknownapp": UnknownAppError,
    "missing": MissingError,
    "duplicate": DuplicateError,
    "refused": RefusedError,
    "config": RefusedError,
}
"""What the service calls its refusals."""


class Client:
    """One service as one caller sees it. Connects anew for each call, so threads may share it.

    Args:
        server: `http://HOST:PORT` or `https://HOST:PORT`. Without TLS a token is sent to this
            machine only.
        token: Who calls; None for what everybody may see.
        ca: The file (PEM) of the authority that signed the service's certificate; None for those
            that this machine trusts.
        timeout: Seconds that the service may stay silent.
        tries: How often a call that changes nothing, or changes it once, is sent at most.

    Every method may raise:
        UnavailableError: Nobody answers there, or the service cannot answer now.
        UnknownCallerError: No token, or one that is not valid (any more).
        DeniedError: The token does not allow this.
        MissingError: There is nothing under this name; `UnknownAppError` for apps.
        RefusedError: The service does not take it.
    """

    def __init__(
        self,
        server: str = SERVER,
        token: str | None = None,
        ca: str | PathLike[str] | None = None,
        *,
        timeout: float = _TIMEOUT,
        tries: int = _TRIES,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(server)
        self._check(server, token)
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._token = token
        self._context = _tls_context(ca) if self._tls else None
        self._timeout = timeout
        self._tries = max(1, tries)
        self._sleep = sleep
        self._clock = clock

    @staticmethod
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

    @property
    def server(self) -> str:
        """Where it calls."""
        return self._server

    def __repr__(self) -> str:
        return f"Client({self._server!r})"

    # Apps

    def apps(self, *, ended: bool = False) -> Answer:
        """All apps (those of others without names), and how many GPUs are in which state.

        Args:
            ended: Also, under `ended`, one's own that are over and not forgotten.
        """
        return self._get("/v1/apps?ended=true" if ended else "/v1/apps")

    def status(self, app: str) -> Answer:
        """One app in full."""
        return self._app("GET", app)

    def explain(self, app: str) -> Answer:
        """Why an app waits: `reason`, and `what`, `why` and `then` in words."""
        return self._app("GET", app, "/explain")

    def submit(
        self,
        app: Mapping[str, Any],
        key: str | None = None,
        *,
        seed: int | None = None,
        dry_run: bool = False,
    ) -> Answer:
        """Submit an app; the answer has its name under `app`, and what it comes to under `plan`.

        Args:
            app: The keys of an app file. A `workdir` that is missing or relative is taken to be in
                the folder one is in.
            key: A text of this submission: sent again with it, it is the same app and not another.
            seed: What a random search draws from; None for any.
            dry_run: Only say what it comes to.
        """
        body = {
            "app": {**app, "workdir": absolute(str(app.get("workdir") or "."))},
            "key": key or secrets.token_hex(16),
            "seed": seed,
            "dry_run": dry_run,
        }
        return self._call("POST", "/v1/apps", body, safe=True)

    def declare(self, spec: Mapping[str, Any], key: str | None = None) -> Answer:
        """Submit an app that has an agent of its own: its jobs and phases, and nothing to run.

        Args:
            spec: The jobs and phases as plain data.
            key: As with `submit`.
        """
        body = {"spec": dict(spec), "key": key or secrets.token_hex(16)}
        return self._call("POST", "/v1/apps", body, safe=True)

    def run(self, command: Sequence[str], *, dry_run: bool = False, **keys: Any) -> Answer:
        """Submit one job; `keys` are those of `job_app`."""
        return self.submit(job_app(command, **keys), dry_run=dry_run)

    def logs(
        self, app: str, job: str, *, offset: int = 0, limit: int = CHUNK, wait: float = 0.0
    ) -> Answer:
        """A piece of a job's log: its `text`, and where the `next` one begins.

        Args:
            app: Whose job.
            job: Which.
            offset: Where to begin, in bytes; negative for so many before the end.
            limit: Bytes at most.
            wait: Seconds that the service may wait for something to be there.
        """
        query = urlencode({"offset": int(offset), "limit": int(limit), "wait": f"{wait:g}"})
        return self._app("GET", app, f"/jobs/{_part('job', job)}/log?{query}")

    def follow(
        self, app: str, job: str, *, offset: int = 0, wait: float = POLL
    ) -> Iterator[Answer]:
        """Pieces of a job's log as it grows, until the job is over; some are empty.

        It goes on after a time in which the service is away.
        """
        heard: float | None = None
        while True:
            asked = self._clock()
            try:
                piece = self.logs(app, job, offset=offset, wait=wait)
            except (UnavailableError, LimitError) as error:
                self._bear(error, heard)
                continue
            heard = self._clock()
            offset = int(piece["next"])
            yield piece
            if not piece["text"]:
                if piece.get("over"):
                    return
                # Not at once again where nobody made the call wait.
                self._sleep(max(0.0, asked + min(_SHORTEST_WAIT, wait) - self._clock()))

    def results(self, app: str) -> Answer:
        """What came of each job: parameters, metric, checkpoint; and which is the `best`."""
        return self._app("GET", app, "/results")

    def wait(
        self,
        app: str,
        timeout: float | None = None,
        *,
        each: Callable[[Answer], None] | None = None,
        interval: float = 5.0,
    ) -> Answer:
        """Wait until an app is over; its last status, without `outcome` if time was up before.

        Args:
            app: Which.
            timeout: Seconds at most.
            each: Called with its status whenever that was looked at.
            interval: Seconds between two looks at most; at the beginning they are quicker.
        """
        end = math.inf if timeout is None else self._clock() + timeout
        heard: float | None = None
        sheet: Answer = {}
        pause = min(0.25, interval)
        while True:
            try:
                sheet = self.status(app)
            except (UnavailableError, LimitError) as error:
                self._bear(error, heard, until=end)
            else:
                heard = self._clock()
                if each is not None:
                    each(sheet)
            left = end - self._clock()
            if "outcome" in sheet or left <= 0.0:
                return sheet
            self._sleep(min(pause, left))
            pause = min(2.0 * pause, interval)

    def _bear(self, error: Exception, heard: float | None, until: float = math.inf) -> None:
        """Let time pass while the service is away; raises if it never was there, or is for long."""
        now = self._clock()
        if heard is None or now - heard > _PATIENCE:
            raise error
        self._sleep(max(0.0, min(_FIRST_WAIT * 10, until - now)))

    def retry(self, app: str) -> Answer:
        """Submit an app that is over once more; the new one is under `app`."""
        return self._app("POST", app, "/retry")

    def fair(self) -> list[Answer]:
        """The apps by finish-time fairness, those that are worst off first."""
        known = [line for line in self.apps()["apps"] if _rho(line) is not None]
        worst = sorted(known, key=lambda line: (-(_rho(line) or 0.0), str(line.get("app"))))
        return Answers(worst)

    def pause(self, app: str) -> Answer:
        """Take no new GPUs for an app."""
        return self._app("POST", app, "/pause")

    def resume(self, app: str) -> Answer:
        """Let a paused app go on."""
        return self._app("POST", app, "/resume")

    def cancel(self, app: str) -> Answer:
        """End an app."""
        return self._app("POST", app, "/cancel")

    def hold(self, app: str) -> Answer:
        """Keep an app from running, as an operator."""
        return self._app("POST", app, "/hold")

    def release(self, app: str) -> Answer:
        """Let a held app run again."""
        return self._app("POST", app, "/release")

    # What if

    def whatif(
        self,
        app: Mapping[str, Any],
        *,
        gpus: Sequence[int] = (),
        stop: Sequence[str] = (),
        at: Sequence[str | float] = (),
        policy: Sequence[str] = (),
        add_machines: Sequence[Any] = (),
        seeds: int | None = None,
        seconds: float | None = None,
        seed: int | None = None,
        owner: str | None = None,
        each: Callable[[Answer], None] | None = None,
    ) -> Answer:
        """When an app would start and finish if it were submitted now; nothing is submitted.

        Under `cases` is the app as written, then one case for each thing that is to be changed.
        Times are seconds from now, as `low`, `mid` and `high` over what is drawn.

        Args:
            app: The keys of an app file.
            gpus: Other numbers of GPUs that a job can use.
            stop: Other rules of stopping, as `none` or `halving,eta=3`.
            at: Other times: seconds from now, or as +8h.
            policy: Other policies; for admins.
            add_machines: So many more machines like the most common one, or a list of machines
                with `name`, `rack`, `slots`, `gpu_model` and `gpu_memory`; for admins.
            seeds: How often what is not known is drawn.
            seconds: How long the answer may take.
            seed: What a random search draws from.
            owner: Whose it would be, if an admin asks.
            each: Called with every answer on the way, which is less sure.
        """
        given = {"gpus": list(gpus), "stop": list(stop), "at": list(at), "policy": list(policy),
                 "add_machines": list(add_machines), "seeds": seeds, "seconds": seconds,
                 "seed": seed, "owner": owner}  # fmt: skip
        wishes = {key: value for key, value in given.items() if value not in (None, [])}
        question = str(self.ask({"app": dict(app), **wishes})["question"])
        seen, final = 0, False
        try:
            while True:
                news = self.foretold(question, seen=seen, wait=ANSWER_POLL)
                answer: Answer = news.get("answer") or {}
                fresh, seen = int(news.get("seen") or 0) > seen, int(news.get("seen") or 0)
                final = bool(answer.get("final"))
                if fresh and each is not None:
                    each(answer)
                if final:
                    return answer
        finally:
            if not final:  # Nobody waits for it any more.
                with suppress(ThemisError):
                    self.forget(question)

    def ask(self, body: Answer) -> Answer:
        """Begin a forecast; its number is under `question`. `whatif` does all of it."""
        return self._call("POST", "/v1/whatif", body)

    def foretold(self, question: str, *, seen: int = 0, wait: int = 0) -> Answer:
        """The newest `answer` to a question, once there is a newer one than the `seen`-th."""
        path = f"/v1/whatif/{_part('question', question)}"
        return self._get(path + _query(seen=seen, wait=wait))

    def forget(self, question: str) -> Answer:
        """Drop a question."""
        return self._call("DELETE", f"/v1/whatif/{_part('question', question)}")

    def snapshot(self) -> Answer:
        """The state of the cluster, for `themis whatif --snapshot`; as an operator."""
        return self._get("/v1/snapshot")

    # Machines

    def nodes(self) -> Answer:
        """Machines and their GPUs."""
        return self._get("/v1/nodes")

    def cordon(self, node: str) -> Answer:
        """No new leases on a machine; those that are there may be renewed."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/cordon")

    def drain(self, node: str) -> Answer:
        """Neither new leases nor renewals."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/drain")

    def uncordon(self, node: str) -> Answer:
        """Use a machine again."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/uncordon")

    def remove_node(self, node: str) -> Answer:
        """Show a machine no more that is gone for good; it must be silent."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/remove")

    def restore_gpu(self, node: str, index: int) -> Answer:
        """Take a GPU out of quarantine."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/gpus/{int(index)}/restore")

    # Owners

    def owners(self) -> Answer:
        """Quotas and weights."""
        return self._get("/v1/owners")

    def quota(self, owner: str, gpus: int | None) -> Answer:
        """Let an owner have at most so many GPUs; None for any number."""
        return self._call("PUT", f"/v1/owners/{_part('owner', owner)}/quota", {"gpus": gpus})

    def weight(self, owner: str, weight: float) -> Answer:
        """Set an owner's share."""
        return self._call("PUT", f"/v1/owners/{_part('owner', owner)}/weight", {"weight": weight})

    # Tokens and browsers

    def tokens(self) -> Answer:
        """All tokens that one may see, without their secrets."""
        return self._get("/v1/tokens")

    def create_token(
        self, role: str, subject: str, *, days: float | None = None, note: str = ""
    ) -> Answer:
        """A new token; the answer has its secret under `token`, this once."""
        body = {"role": role, "subject": subject, "days": days, "note": note}
        return self._call("POST", "/v1/tokens", body)

    def revoke_token(self, token: str) -> Answer:
        """End a token, by its id."""
        return self._call("DELETE", f"/v1/tokens/{_part('token', token)}")

    def login_link(self) -> str:
        """An address that logs one browser in, once."""
        return self._server + str(self._call("POST", "/v1/login-links")["path"])

    def whoami(self) -> Answer:
        """Role and subject of the token."""
        return self._get("/v1/whoami")

    # What happened, and what holds

    def rounds(self, before: int | None = None, limit: int | None = None) -> Answer:
        """The last rounds, or those before a number; the oldest first, at most `limit` (50).

        `before` in the answer asks for those that come before them; None if there are none.
        """
        return self._get("/v1/rounds" + _query(before=before, limit=limit))

    def round(self, number: int) -> Answer:
        """One round: who was there, who was asked, who won what."""
        return self._get(f"/v1/rounds/{int(number)}")

    def audit(self, first: int | None = None, last: int | None = None) -> Answer:
        """Who did what: from row `first` on (at most 1000), or the `last` so many."""
        return self._get("/v1/audit" + _query(first=first, last=last))

    def config(self) -> Answer:
        """The configuration in force: every key with its value and where that is from."""
        return self._get("/v1/config")

    def reload(self) -> Answer:
        """Let the service read its configuration again."""
        return self._call("POST", "/v1/config/reload")

    def about(self) -> Answer:
        """Version and epoch of the service, and the port that agents call."""
        return self._get("/v1/about")

    # How

    def _get(self, path: str) -> Answer:
        return self._call("GET", path, safe=True)

    def _app(self, method: str, app: str, what: str = "") -> Answer:
        path = f"/v1/apps/{_part('app', app)}{what}"
        try:
            return self._call(method, path, safe=method == "GET")
        except MissingError as error:
            if error.who not in {app, "the service"}:  # a job, say
                raise
            raise UnknownAppError(app, error.reason) from None

    def _call(
        self, method: str, path: str, body: Answer | None = None, *, safe: bool = False
    ) -> Answer:
        """One call; sent again only where a second time changes nothing."""
        for attempt in range(1, self._tries + 1):
            try:
                return self._once(method, path, body)
            except (UnavailableError, LimitError) as error:
                wait = _wait(error, attempt)
                if not safe or attempt == self._tries or wait is None:
                    raise
                self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, body: Answer | None) -> Answer:
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
                f"{self._server}: its certificate is not trusted ({error.verify_message}); name "
                "the file of the authority that signed it, and call it by a name in it"
            ) from None
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{self._server}: {_trouble(error)}") from None
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
                f"{self._server}: what answers there (with status {status}) is no Themis service"
            )
        if status == 200:
            return Answered(data)
        raise _error(status, after, data)


def _error(status: int, after: str | None, data: Answer) -> ThemisError:
    """The service's refusal as an error of ours."""
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
    """Seconds until another try makes sense; None if it does not."""
    if isinstance(error, LimitError):
        if error.retry_after is None or error.retry_after > _LONGEST_WAIT:
            return None
        # Not all who were refused at the same moment at the same moment again.
        return error.retry_after + random.uniform(0.0, 0.5)
    return float(_FIRST_WAIT * 2 ** (attempt - 1)) * random.uniform(0.5, 1.5)


def _trouble(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time; is the service busy, or something in between?"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there; is the service running (`themis serve`), and there?"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there ({error.reason or error}); is it http:// and not https://?"
    if isinstance(error, HTTPException | ConnectionError):
        told = str(error) or type(error).__name__
        return f"the call was cut off ({told}); is it https:// and not http://?"
    return f"it cannot be reached ({getattr(error, 'strerror', None) or error})"


def job_app(
    command: Sequence[str],
    *,
    name: str | None = None,
    gpus: int = 1,
    min_gpus: int | None = None,
    duration: float | str | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
) -> Answer:
    """An app of one job, as the keys of an app file.

    Args:
        command: Program and arguments; braces in them stand for themselves.
        name: Its name; after the program if there is none.
        gpus: How many GPUs it gets.
        min_gpus: How few it would do with; as many as it gets if not said.
        duration: How long it takes on one GPU, if known: seconds, or as 1h.
        env: Variables for it.
        workdir: Where it runs, on every machine.

    Raises:
        RefusedError: There is no command.
    """
    words = [str(word) for word in command]
    if isinstance(command, str) or not words:
        raise RefusedError("command", "a list of arguments is missing, such as python train.py")
    made: Answer = {
        "name": name or _name_for(words),
        "command": [word.replace("{", "{{").replace("}", "}}") for word in words],
        "gpus": {"per_job_max": gpus, "per_job_min": gpus if min_gpus is None else min_gpus},
    }
    given = {"duration": duration, "env": dict(env) if env else None, "workdir": workdir}
    return made | {key: value for key, value in given.items() if value is not None}


def _name_for(words: Sequence[str]) -> str:
    """A name for a command: train for `python -u train.py --lr 1`."""
    program = os.path.basename(words[0])
    if re.fullmatch(r"python[0-9.]*|torchrun|bash|sh|env", program):
        rest = iter(words[1:])
        program = next((word for word in rest if not word.startswith("-")), program)
    plain = re.sub(r"\.(py|sh)\Z", "", os.path.basename(program)).lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "job"


def absolute(path: str) -> str:
    """A path from the root, by the way that one came here: links are kept."""
    here = os.environ.get("PWD", "")
    try:
        known = os.path.isabs(here) and os.path.samefile(here, ".")
    except (OSError, ValueError):
        known = False
    whole = os.path.join(here if known else os.getcwd(), path)
    # Above a link is not the folder that the link is in.
    up = ".." in path.split("/")
    return os.path.realpath(whole) if up else os.path.normpath(whole)


def _rho(line: Answer) -> float | None:
    rho = line.get("rho")
    return float(rho) if isinstance(rho, int | float) else None


def _part(what: str, name: str) -> str:
    """A name as a part of a path."""
    if not name or name in {".", ".."}:
        raise RefusedError(what, "a name is missing")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise RefusedError(what, "a name must be text that can be written as UTF-8") from None


def _query(**given: int | None) -> str:
    """What stands behind the question mark, with it; nothing if nothing is given."""
    query = urlencode({key: value for key, value in given.items() if value is not None})
    return f"?{query}" if query else ""


def _json(body: Answer) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise RefusedError("body", f"it cannot be written as JSON ({error})") from None


def _tls_context(ca: str | PathLike[str] | None) -> ssl.SSLContext:
    path = None if ca is None else fspath(ca)
    try:
        context = ssl.create_default_context(cafile=path)
    except FileNotFoundError:
        raise MissingFileError("ca", str(path)) from None
    except OSError as error:  # no certificate is one too
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
