"""Tuners of your own, in a process of your own.

    from themis import OwnTuner

    class Impatient(OwnTuner):
        def should_stop(self, trial):
            best = min(other.cost for other in self.training)
            return trial.iterations >= 10 and trial.cost > 2 * best

    found = Impatient().run("app.yaml")      # comes back when the app is over
    print(found["best"])

It submits the app file and decides for its trials; everything else (GPUs, starts, checkpoints,
retries) is done as for any other app. The process may be killed at any time: started again, it goes
on where it was. docs/guides/own-tuner.md has the whole story.
"""

import asyncio
import json
import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from themis.apps import AppFile, Minder, parse_app, plain_app, read_app
from themis.client import SERVER, Client, absolute
from themis.config.secret import Secret
from themis.core.model import AppId
from themis.core.tuners import Stepwise, Trial
from themis.errors import (
    ConfigError,
    DeniedError,
    LimitError,
    RefusedError,
    StaleAnswerError,
    TunerError,
    UnavailableError,
    UnknownAppError,
    UnknownCallerError,
)
from themis.security.token_files import find_token

if TYPE_CHECKING:
    from themis.agent_host.host import AppRunner
    from themis.rpc.client import Connection

_LOG = logging.getLogger(__name__)
_PATIENCE = 600.0
"""Seconds that a service may be away when only the results are missing."""
_LONGEST_WAIT = 10.0

Results = dict[str, Any]
"""As `Client.results` has them: `outcome`, `best`, and what came of each of the `jobs`."""


class OwnTuner(Stepwise):
    """Decides for the trials of one app. Write some of these anew, and `run` it.

    | to write | asked |
    |---|---|
    | `should_stop(trial)` | whenever a trial has reported its metric |
    | `choose(ranked, count)` | when all trials of a phase are done: who trains in the next one |
    | `suggest(trial)` | when a trial begins: its parameters |
    | `winner(ranked)` | at the end: who was best |
    | `placed(trial, gpus)` | told when a trial gets or loses GPUs |

    `trials`, `training`, `fresh`, `phase` and `phases` say how things are; `jobs_in_phase` and
    `jobs_remaining` are the paper's calls. What was decided is kept by the service and not asked
    again after a restart, so the answers may be anything. What else it keeps in itself is lost
    with the process: decide by `trials`, which come back.
    """

    def run(
        self,
        app: str | os.PathLike[str] | Mapping[str, Any],
        *,
        key: str | None = None,
        seed: int | None = None,
        server: str | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        agents: str | None = None,
    ) -> Results:
        """Submit an app and decide for it to its end.

        Called again after this process died, with the same app, it goes on with the one that is
        under way; after that one is over, it submits another. With a `key` there is only one.

        Args:
            app: An app file, or its keys.
            key: A text of this search: called again with it, it is the same one also when over.
            seed: What a random search draws from; None for any.
            server: `http://HOST:PORT` or `https://HOST:PORT`; by default THEMIS_SERVER, or this
                machine.
            token: By default the one in the file that the command line uses.
            ca: Who signed the service's certificate (PEM); by default THEMIS_CA.
            agents: HOST:PORT where agents call, if it is not where the service says.

        Raises:
            ConfigError: Something in the app file, or an address, cannot be; or the token is not a
                tenant's.
            StaleAnswerError: Another process speaks for the app by now.
            TunerError: A method gave what cannot be.
            ThemisError: As `Client` does.
        """
        place = ServiceAddress.of(server, token, ca, agents)
        return asyncio.run(self._submit_and_speak(place, _written(app), key, seed))

    def attach(
        self,
        app: str,
        *,
        server: str | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        agents: str | None = None,
    ) -> Results:
        """Decide for an app that was submitted with `tuner: own`, to its end.

        Args:
            app: Its name.
            server: This and the others: as with `run`.
            token: The token.
            ca: Who signed the certificate.
            agents: Where agents call.

        Raises:
            UnknownAppError: There is no such app.
            ConfigError: The token is not a tenant's.
            RefusedError: The service decides for it.
            ThemisError: As with `run`.
        """
        place = ServiceAddress.of(server, token, ca, agents)
        if "outcome" in place.client.status(app):
            return place.client.results(app)
        place.check_role()
        return asyncio.run(self._speak(place, app))

    async def _submit_and_speak(
        self, place: "ServiceAddress", written: AppFile, key: str | None, seed: int | None
    ) -> Results:
        await asyncio.to_thread(place.check_role)
        name = await asyncio.to_thread(_submitted, place.client, written, key, seed)
        _LOG.info("%s is submitted", name)
        return await self._speak(place, name, written)

    async def _speak(
        self, place: "ServiceAddress", app: str, written: AppFile | None = None
    ) -> Results:
        connection = await asyncio.to_thread(place.connection)
        try:
            await to_the_end(self, AppId(app), connection, place.client, written)
        finally:
            await connection.close()
        return await _results(place.client, app)


class _Called(OwnTuner):
    """Asks functions."""

    def __init__(self, functions: Mapping[str, Callable[..., Any] | None]) -> None:
        self._functions = functions

    def should_stop(self, trial: Trial) -> bool:
        function = self._functions["should_stop"]
        others = [other for other in self.training if other is not trial]
        return bool(function(trial, others)) if function is not None else False

    def choose(self, ranked: Sequence[Trial], count: int) -> Iterable[Trial]:
        function = self._functions["choose"]
        return super().choose(ranked, count) if function is None else function(ranked, count)

    def suggest(self, trial: Trial) -> Mapping[str, Any]:
        function = self._functions["suggest"]
        return super().suggest(trial) if function is None else function(trial)


def tune(
    app: str | os.PathLike[str] | Mapping[str, Any],
    *,
    should_stop: Callable[[Trial, Sequence[Trial]], bool] | None = None,
    choose: Callable[[Sequence[Trial], int], Iterable[Trial]] | None = None,
    suggest: Callable[[Trial], Mapping[str, Any]] | None = None,
    **where: Any,
) -> Results:
    """Tune with functions instead of a class.

        tune("app.yaml", should_stop=lambda trial, others: trial.cost > 10)

    Args:
        app: An app file, or its keys.
        should_stop: Whether a trial that has reported is ended; it sees the others of its phase.
        choose: Who goes on: of trials, the best first, so many at most.
        suggest: The parameters of a trial that begins.
        **where: As with `OwnTuner.run`.

    Raises:
        ThemisError: As with `OwnTuner.run`.
    """
    functions = {"should_stop": should_stop, "choose": choose, "suggest": suggest}
    return _Called(functions).run(app, **where)


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A service as somebody reaches it."""

    client: Client
    token: Secret
    ca: Path | None
    agents: str | None

    @classmethod
    def of(
        cls,
        server: str | None,
        token: str | None,
        ca: str | os.PathLike[str] | None,
        agents: str | None,
    ) -> "ServiceAddress":
        environ = os.environ
        secret = Secret(token) if token else find_token(environ, root=os.geteuid() == 0)
        signed = ca or environ.get("THEMIS_CA") or None
        client = Client(server or environ.get("THEMIS_SERVER") or SERVER, secret.reveal(), signed)
        return cls(client, secret, Path(signed) if signed else None, agents)

    def check_role(self) -> None:
        """See that its token may speak for an app, before there is one that nobody speaks for.

        Raises:
            ConfigError: It is not a tenant's.
            ThemisError: As `Client` does.
        """
        known = self.client.whoami()
        if known.get("role") != "tenant":
            create = "`themis token create --role tenant --subject OWNER --out FILE`"
            raise ConfigError(
                "token",
                f"{known.get('role')} {known.get('subject')}",
                f"a tenant's, since only their owner speaks for apps: {create}",
            )

    def connection(self) -> "Connection":
        """The door for agents.

        Raises:
            ConfigError: There is no such address.
            UnavailableError: The service does not answer.
        """
        from themis.config.addresses import check_address  # noqa: PLC0415 - see above
        from themis.rpc.client import Connection, Credentials  # noqa: PLC0415 - see above

        address = check_address(self.agents or self._told(), "node.server")
        connection = Connection(address, Credentials(ca=self.ca, token=self.token))
        connection.check()
        return connection

    def _told(self) -> str:
        host = urlsplit(self.client.server).hostname or ""
        port = self.client.about().get("grpc_port")
        if not port:
            raise UnavailableError("the service does not say where agents call: name it (agents=)")
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _written(app: str | os.PathLike[str] | Mapping[str, Any]) -> AppFile:
    """The app with `tuner: own`, and a folder that does not depend on where one is."""
    if isinstance(app, Mapping):
        written, folder = parse_app(dict(app)), ""
    else:
        written, folder = read_app(Path(app)), str(Path(app).parent)
    given = os.path.expanduser(written.workdir)
    workdir = absolute(os.path.join(folder, given) if given else ".")
    return replace(written, workdir=workdir, tuner=Minder.OWN)


def _submitted(client: Client, written: AppFile, key: str | None, seed: int | None) -> str:
    """The name of the app: the one under way that this was submitted as before, or a new one."""
    data = plain_app(written)
    if key is not None:
        return str(client.submit(data, key, seed=seed)["app"])
    number = 0
    while True:
        # Each run has a number; the first that is not over is the one that we are about.
        number += 1
        name = str(client.submit(data, f"own tuner, {written.name} {number}", seed=seed)["app"])
        # One may have been over for so long that nobody knows how, or that another has its name.
        with suppress(UnknownAppError, DeniedError):
            if "outcome" not in client.status(name):
                return name


async def to_the_end(
    tuner: Stepwise,
    app: AppId,
    connection: "Connection",
    client: Client,
    written: AppFile | None = None,
    began: "Callable[[AppRunner], None] | None" = None,
) -> None:
    """Speak for an app until it is over, beginning again whenever something goes wrong.

    Args:
        tuner: Who decides.
        app: The app.
        connection: The door for agents.
        client: The service.
        written: What it was submitted as, if it was just now.
        began: Called with each one that begins to speak.
    """
    from themis.agent_host.host import AppRunner  # noqa: PLC0415 - needs gRPC
    from themis.rpc.client import Backoff, HostClient  # noqa: PLC0415 - needs gRPC

    rng = random.Random()
    backoff = Backoff(rng, most=_LONGEST_WAIT)
    while True:
        service = HostClient(connection)
        try:
            sheet = await service.sheet(app)
            if json.loads(sheet.body).get("tuner") != Minder.OWN:
                raise DeniedError(app, "the service decides for it; submit it with `tuner: own`")
            if written is not None and sheet.body != json.dumps(plain_app(written)):
                _LOG.warning("%s is under way with another app file; that one holds", app)
            runner = AppRunner.of_sheet(service, sheet, rng, own=tuner)
            if began is not None:
                began(runner)
            _LOG.info("%s is over: %s", app, await runner.run())
            return
        except UnknownAppError:
            if "outcome" in await asyncio.to_thread(client.status, app):
                return  # It was over before, and whoever spoke for it then has heard it.
            raise
        except (DeniedError, UnknownCallerError, StaleAnswerError, TunerError):
            raise
        except (UnavailableError, LimitError, RefusedError) as error:
            _LOG.warning("the talk about %s begins again: %s", app, error)
        await asyncio.sleep(backoff.failed())


async def _results(client: Client, app: str) -> Results:
    """What came of it, also if the service is away just now."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _PATIENCE
    while True:
        try:
            return await asyncio.to_thread(client.results, app)
        except (UnavailableError, LimitError):
            if loop.time() > end:
                raise
        await asyncio.sleep(1.0)


__all__ = ["OwnTuner", "Results", "Trial", "tune"]
