"""The client's methods, one for each thing that a caller can ask of a service."""

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any
from urllib.parse import quote, urlencode

from themis.answers import Answers
from themis.client.connection import SERVER, TIMEOUT, TRIES, ServiceConnection
from themis.client.job_app import absolute, job_app
from themis.errors import (
    LimitError,
    MissingError,
    RefusedError,
    ThemisError,
    UnavailableError,
    UnknownAppError,
)

Answer = dict[str, Any]

_SHORTEST_WAIT = 0.5
_AWAY_PAUSE = 2.0
"""Seconds between two calls while the service is away."""
_PATIENCE = 600.0
"""Seconds that a service which has answered before may be away while a caller waits for an app."""
CHUNK = 65536
"""Bytes of a log in one answer."""
POLL = 20.0
"""Seconds that the service may wait for news of a log before it answers."""

ANSWER_POLL = 10
"""Seconds that it may wait for a better forecast before it answers."""


class Client:
    """One service as one caller sees it. Threads may share it: each call connects anew.

    Args:
        server: `http://HOST:PORT` or `https://HOST:PORT`. Without TLS a token is sent to this
            machine only.
        token: The caller's token; None for what needs no token.
        ca: The file (PEM) of the authority that signed the service's certificate; None for the
            authorities that this machine trusts.
        timeout: Seconds that the service may stay silent.
        tries: How often a call is sent at most that is safe to repeat.

    Every method may raise:
        UnavailableError: No service answers there, or it cannot answer now.
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
        timeout: float = TIMEOUT,
        tries: int = TRIES,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = ServiceConnection(
            server, token, ca, timeout=timeout, tries=tries, sleep=sleep
        )
        self._call = self._connection.call
        self._sleep = sleep
        self._clock = clock

    @property
    def server(self) -> str:
        """The address of the service."""
        return self._connection.server

    def __repr__(self) -> str:
        return f"Client({self.server!r})"

    # Apps

    def apps(self, *, ended: bool = False) -> Answer:
        """All apps (those of others without names), and how many GPUs are in which state.

        Args:
            ended: Also, under `ended`, the caller's own apps that have ended and are not forgotten.
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
        """Submit an app; the answer has its name under `app`, and what it takes under `plan`.

        Args:
            app: The keys of an app file. A `workdir` that is missing or relative is taken from the
                current folder.
            key: A text that identifies this submission: sent again, it makes no second app.
            seed: The seed of a random search; None for any.
            dry_run: Only return the plan.
        """
        body = {
            "app": {**app, "workdir": absolute(str(app.get("workdir") or "."))},
            "key": key or secrets.token_hex(16),
            "seed": seed,
            "dry_run": dry_run,
        }
        return self._call("POST", "/v1/apps", body, safe=True)

    def declare(self, spec: Mapping[str, Any], key: str | None = None) -> Answer:
        """Submit an app whose owner runs its agent: jobs and phases, and no command.

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
        """A piece of a job's log: its `text`, and where the `next` piece begins.

        Args:
            app: The app.
            job: The job.
            offset: Where to begin, in bytes; negative to count from the end.
            limit: Bytes at most.
            wait: Seconds that the service may wait for something new.
        """
        query = urlencode({"offset": int(offset), "limit": int(limit), "wait": f"{wait:g}"})
        return self._app("GET", app, f"/jobs/{_part('job', job)}/log?{query}")

    def follow(
        self, app: str, job: str, *, offset: int = 0, wait: float = POLL
    ) -> Iterator[Answer]:
        """Pieces of a job's log as it grows, until the job has ended; some are empty.

        It continues after the service was away for a while.
        """
        heard: float | None = None
        while True:
            asked = self._clock()
            try:
                piece = self.logs(app, job, offset=offset, wait=wait)
            except (UnavailableError, LimitError) as error:
                self._wait_out(error, heard)
                continue
            heard = self._clock()
            offset = int(piece["next"])
            yield piece
            if not piece["text"]:
                if piece.get("over"):
                    return
                # A pause, even if the service answered at once.
                self._sleep(max(0.0, asked + min(_SHORTEST_WAIT, wait) - self._clock()))

    def results(self, app: str) -> Answer:
        """Parameters, metric and checkpoint of each job, and which is the `best`."""
        return self._app("GET", app, "/results")

    def wait(
        self,
        app: str,
        timeout: float | None = None,
        *,
        each: Callable[[Answer], None] | None = None,
        interval: float = 5.0,
    ) -> Answer:
        """Wait until an app has ended; its last status, without `outcome` after a timeout.

        Args:
            app: The app.
            timeout: Seconds at most.
            each: Called with each status.
            interval: Seconds between two calls at most; the first ones come sooner.
        """
        end = math.inf if timeout is None else self._clock() + timeout
        heard: float | None = None
        sheet: Answer = {}
        pause = min(0.25, interval)
        while True:
            try:
                sheet = self.status(app)
            except (UnavailableError, LimitError) as error:
                self._wait_out(error, heard, until=end)
            else:
                heard = self._clock()
                if each is not None:
                    each(sheet)
            left = end - self._clock()
            if "outcome" in sheet or left <= 0.0:
                return sheet
            self._sleep(min(pause, left))
            pause = min(2.0 * pause, interval)

    def _wait_out(self, error: Exception, heard: float | None, until: float = math.inf) -> None:
        """Pause while the service is away; raises if it never answered, or is away for long."""
        now = self._clock()
        if heard is None or now - heard > _PATIENCE:
            raise error
        self._sleep(max(0.0, min(_AWAY_PAUSE, until - now)))

    def retry(self, app: str) -> Answer:
        """Submit an ended app once more; the new one is under `app`."""
        return self._app("POST", app, "/retry")

    def fair(self) -> list[Answer]:
        """The apps by finish-time fairness, the worst off first."""
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

        Under `cases` is the app as written, then one case for each change. Times are seconds from
        now, as `low`, `mid` and `high` over the drawn samples.

        Args:
            app: The keys of an app file.
            gpus: Other limits on the GPUs of a job.
            stop: Other stopping rules, as `none` or `halving,eta=3`.
            at: Other times of submission: seconds from now, or as +8h.
            policy: Other policies; for admins.
            add_machines: A number of machines like the most common one, or a list of machines with
                `name`, `rack`, `slots`, `gpu_model` and `gpu_memory`; for admins.
            seeds: How many samples of the unknown future are drawn.
            seconds: How long the answer may take.
            seed: The seed of a random search.
            owner: The owner of the app, if an admin asks.
            each: Called with each earlier answer, which is less precise.
        """
        given = {"gpus": list(gpus), "stop": list(stop), "at": list(at), "policy": list(policy),
                 "add_machines": list(add_machines), "seeds": seeds, "seconds": seconds,
                 "seed": seed, "owner": owner}  # fmt: skip
        wishes = {key: value for key, value in given.items() if value not in (None, [])}
        question = str(self.begin_forecast({"app": dict(app), **wishes})["question"])
        seen, final = 0, False
        try:
            while True:
                news = self.newest_forecast(question, seen=seen, wait=ANSWER_POLL)
                answer: Answer = news.get("answer") or {}
                fresh, seen = int(news.get("seen") or 0) > seen, int(news.get("seen") or 0)
                final = bool(answer.get("final"))
                if fresh and each is not None:
                    each(answer)
                if final:
                    return answer
        finally:
            if not final:  # the caller was interrupted
                with suppress(ThemisError):
                    self.drop_forecast(question)

    def begin_forecast(self, body: Answer) -> Answer:
        """Begin a forecast; its number is under `question`. `whatif` does all three steps."""
        return self._call("POST", "/v1/whatif", body)

    def newest_forecast(self, question: str, *, seen: int = 0, wait: int = 0) -> Answer:
        """The newest `answer` of a forecast; waits for a newer one than number `seen`."""
        path = f"/v1/whatif/{_part('question', question)}"
        return self._get(path + _query(seen=seen, wait=wait))

    def drop_forecast(self, question: str) -> Answer:
        """End a forecast."""
        return self._call("DELETE", f"/v1/whatif/{_part('question', question)}")

    def snapshot(self) -> Answer:
        """The state of the cluster, for `themis whatif --snapshot`; as an operator."""
        return self._get("/v1/snapshot")

    # Machines

    def nodes(self) -> Answer:
        """Machines and their GPUs."""
        return self._get("/v1/nodes")

    def cordon(self, node: str) -> Answer:
        """Grant no new leases on a machine; its leases may be renewed."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/cordon")

    def drain(self, node: str) -> Answer:
        """Grant no new leases on a machine, and renew none."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/drain")

    def uncordon(self, node: str) -> Answer:
        """Use a machine again."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/uncordon")

    def remove_node(self, node: str) -> Answer:
        """Stop showing a machine that is gone for good; it must be silent."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/remove")

    def restore_gpu(self, node: str, index: int) -> Answer:
        """Take a GPU out of quarantine."""
        return self._call("POST", f"/v1/nodes/{_part('node', node)}/gpus/{int(index)}/restore")

    # Owners

    def owners(self) -> Answer:
        """Quotas and weights."""
        return self._get("/v1/owners")

    def quota(self, owner: str, gpus: int | None) -> Answer:
        """Limit how many GPUs an owner may hold; None for no limit."""
        return self._call("PUT", f"/v1/owners/{_part('owner', owner)}/quota", {"gpus": gpus})

    def weight(self, owner: str, weight: float) -> Answer:
        """Set an owner's share."""
        return self._call("PUT", f"/v1/owners/{_part('owner', owner)}/weight", {"weight": weight})

    # Tokens and browsers

    def tokens(self) -> Answer:
        """The tokens that the caller may see, without their secrets."""
        return self._get("/v1/tokens")

    def create_token(
        self, role: str, subject: str, *, days: float | None = None, note: str = ""
    ) -> Answer:
        """A new token; only this answer has its secret, under `token`."""
        body = {"role": role, "subject": subject, "days": days, "note": note}
        return self._call("POST", "/v1/tokens", body)

    def revoke_token(self, token: str) -> Answer:
        """Revoke a token, by its id."""
        return self._call("DELETE", f"/v1/tokens/{_part('token', token)}")

    def login_link(self) -> str:
        """An address that logs one browser in, once."""
        return self.server + str(self._call("POST", "/v1/login-links")["path"])

    def whoami(self) -> Answer:
        """Role and subject of the token."""
        return self._get("/v1/whoami")

    # Rounds, the audit log and the configuration

    def rounds(self, before: int | None = None, limit: int | None = None) -> Answer:
        """The last rounds, or those before a number; the oldest first, at most `limit` (50).

        `before` in the answer is the `before` of the previous page; None if there is none.
        """
        return self._get("/v1/rounds" + _query(before=before, limit=limit))

    def round(self, number: int) -> Answer:
        """One round: its apps, their bids, and what each won."""
        return self._get(f"/v1/rounds/{int(number)}")

    def audit(self, first: int | None = None, last: int | None = None) -> Answer:
        """Rows of the audit log: from row `first` on (at most 1000), or only the `last` ones."""
        return self._get("/v1/audit" + _query(first=first, last=last))

    def config(self) -> Answer:
        """The configuration in force: each key with its value and the source of it."""
        return self._get("/v1/config")

    def reload(self) -> Answer:
        """Make the service read its configuration again."""
        return self._call("POST", "/v1/config/reload")

    def about(self) -> Answer:
        """Version and epoch of the service, and the port that agents call."""
        return self._get("/v1/about")

    def _get(self, path: str) -> Answer:
        return self._call("GET", path, safe=True)

    def _app(self, method: str, app: str, what: str = "") -> Answer:
        path = f"/v1/apps/{_part('app', app)}{what}"
        try:
            return self._call(method, path, safe=method == "GET")
        except MissingError as error:
            if error.who not in {app, "the service"}:  # a job, for example
                raise
            raise UnknownAppError(app, error.reason) from None


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
    """The query with its question mark; empty without parameters."""
    query = urlencode({key: value for key, value in given.items() if value is not None})
    return f"?{query}" if query else ""
