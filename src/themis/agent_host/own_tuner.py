"""Tuners of your own, in a process of your own.

    from themis import OwnTuner

    class Impatient(OwnTuner):
        def should_stop(self, trial):
            best = min(other.cost for other in self.training)
            return trial.iterations >= 10 and trial.cost > 2 * best

    results = Impatient().run("app.yaml")    # returns when the app is over
    print(results["best"])

It submits the app file and decides for its trials; everything else (GPUs, starts, checkpoints,
retries) is as for any other app. The process may be killed at any time: started again, it goes on
where it was. docs/guides/own-tuner.md describes all of it.
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

from themis.apps import AppFile, TunedBy, parse_app, plain_app, read_app
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
    from themis.agent_host.host import AgentRunner
    from themis.rpc.client import Connection

_LOG = logging.getLogger(__name__)
_RESULTS_TIMEOUT = 600.0
"""Seconds for which results are asked for while the service does not answer."""
_LONGEST_BACKOFF = 10.0

Results = dict[str, Any]
"""As `Client.results` returns them: `outcome`, `best`, and the result of each of the `jobs`."""


class OwnTuner(Stepwise):
    """Decides for the trials of one app. Override some of these methods, and `run` it.

    | method | called |
    |---|---|
    | `should_stop(trial)` | whenever a trial has reported its metric |
    | `choose(ranked, count)` | when all trials of a phase are done: which train in the next one |
    | `suggest(trial)` | when a trial begins: its parameters |
    | `winner(ranked)` | at the end: which was best |
    | `placed(trial, gpus)` | when a trial gets or loses GPUs |

    `trials`, `training`, `fresh`, `phase` and `phases` are the state; `jobs_in_phase` and
    `jobs_remaining` are the paper's calls. The service keeps each decision and does not ask again
    after a restart, so a decision may depend on anything. Attributes of your own are lost with the
    process: decide by `trials`, which are restored.
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

        Called again with the same app after this process died, it goes on with the app under way;
        once that one is over, it submits another. With a `key` there is only one app.

        Args:
            app: An app file, or its keys.
            key: Names this search: a call with the same key is for the same app,
                also if it is over.
            seed: The seed of a random search; None for any.
            server: `http://HOST:PORT` or `https://HOST:PORT`; by default THEMIS_SERVER, or this
                machine.
            token: By default the one in the file that the command line uses.
            ca: The authority that signed the service's certificate (PEM); by default THEMIS_CA.
            agents: HOST:PORT of the service for agents, if it differs from what the service tells.

        Raises:
            ConfigError: The app file or an address is invalid, or the token is not a tenant's.
            StaleAnswerError: Another process runs the app's agent by now.
            TunerError: A method returned something invalid.
            ThemisError: As with `Client`.
        """
        address = ServiceAddress.of(server, token, ca, agents)
        return asyncio.run(self._submit_and_run(address, _own_app(app), key, seed))

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
            server: As with `run`.
            token: As with `run`.
            ca: As with `run`.
            agents: As with `run`.

        Raises:
            UnknownAppError: There is no such app.
            ConfigError: The token is not a tenant's.
            RefusedError: The app has a tuner of the service's.
            ThemisError: As with `run`.
        """
        address = ServiceAddress.of(server, token, ca, agents)
        if "outcome" in address.client.status(app):
            return address.client.results(app)
        address.check_role()
        return asyncio.run(self._run_agent(address, app))

    async def _submit_and_run(
        self, address: "ServiceAddress", app_file: AppFile, key: str | None, seed: int | None
    ) -> Results:
        await asyncio.to_thread(address.check_role)
        name = await asyncio.to_thread(_submit, address.client, app_file, key, seed)
        _LOG.info("%s is submitted", name)
        return await self._run_agent(address, name, app_file)

    async def _run_agent(
        self, address: "ServiceAddress", app: str, app_file: AppFile | None = None
    ) -> Results:
        connection = await asyncio.to_thread(address.connection)
        try:
            await run_agent(self, AppId(app), connection, address.client, app_file)
        finally:
            await connection.close()
        return await _results(address.client, app)


class _FunctionTuner(OwnTuner):
    """Calls functions in place of methods."""

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
        should_stop: Whether to end a trial that has reported, given the others of its phase.
        choose: Which trials go on: given them, the best first, and how many at most.
        suggest: The parameters of a trial that begins.
        **where: As with `OwnTuner.run`.

    Raises:
        ThemisError: As with `OwnTuner.run`.
    """
    functions = {"should_stop": should_stop, "choose": choose, "suggest": suggest}
    return _FunctionTuner(functions).run(app, **where)


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where the service is, and the credentials to call it."""

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
        """Check that the token may run an agent, before an app is submitted that has none.

        Raises:
            ConfigError: It is not a tenant's.
            ThemisError: As with `Client`.
        """
        caller = self.client.whoami()
        if caller.get("role") != "tenant":
            create = "`themis token create --role tenant --subject OWNER --out FILE`"
            raise ConfigError(
                "token",
                f"{caller.get('role')} {caller.get('subject')}",
                f"a tenant's, since only its owner runs an app's agent: {create}",
            )

    def connection(self) -> "Connection":
        """A gRPC connection for agents.

        Raises:
            ConfigError: The address is invalid.
            UnavailableError: The service does not answer.
        """
        from themis.config.addresses import check_address  # noqa: PLC0415 - slow to import
        from themis.rpc.client import Connection, Credentials  # noqa: PLC0415 - see above

        address = check_address(self.agents or self._published(), "node.server")
        connection = Connection(address, Credentials(ca=self.ca, token=self.token))
        connection.check()
        return connection

    def _published(self) -> str:
        host = urlsplit(self.client.server).hostname or ""
        port = self.client.about().get("grpc_port")
        if not port:
            raise UnavailableError("the service publishes no address for agents: set agents=")
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _own_app(app: str | os.PathLike[str] | Mapping[str, Any]) -> AppFile:
    """The app with `tuner: own` and an absolute working directory."""
    if isinstance(app, Mapping):
        app_file, folder = parse_app(dict(app)), ""
    else:
        app_file, folder = read_app(Path(app)), str(Path(app).parent)
    given = os.path.expanduser(app_file.workdir)
    workdir = absolute(os.path.join(folder, given) if given else ".")
    return replace(app_file, workdir=workdir, tuner=TunedBy.OWN)


def _submit(client: Client, app_file: AppFile, key: str | None, seed: int | None) -> str:
    """The name of the app: the one under way from an earlier call, or a new one."""
    data = plain_app(app_file)
    if key is not None:
        return str(client.submit(data, key, seed=seed)["app"])
    number = 0
    while True:
        number += 1
        # Submissions are numbered; the first one that is not over is the one to go on with.
        name = str(client.submit(data, f"own tuner, {app_file.name} {number}", seed=seed)["app"])
        # An app that ended long ago is forgotten, and another owner may have its name.
        with suppress(UnknownAppError, DeniedError):
            if "outcome" not in client.status(name):
                return name


async def run_agent(
    tuner: Stepwise,
    app: AppId,
    connection: "Connection",
    client: Client,
    app_file: AppFile | None = None,
    began: "Callable[[AgentRunner], None] | None" = None,
) -> None:
    """Run an app's agent until the app is over; it begins again whenever something goes wrong.

    Args:
        tuner: Decides for the app.
        app: The app.
        connection: To the service, for agents.
        client: To the service, over HTTP.
        app_file: What was submitted, if it was submitted just now.
        began: Called with each agent that begins.
    """
    from themis.agent_host.host import AgentRunner  # noqa: PLC0415 - needs gRPC
    from themis.rpc.client import Backoff, HostClient  # noqa: PLC0415 - needs gRPC

    rng = random.Random()
    backoff = Backoff(rng, most=_LONGEST_BACKOFF)
    while True:
        service = HostClient(connection)
        try:
            sheet = await service.sheet(app)
            if json.loads(sheet.body).get("tuner") != TunedBy.OWN:
                raise DeniedError(app, "the service runs its tuner; submit it with `tuner: own`")
            if app_file is not None and sheet.body != json.dumps(plain_app(app_file)):
                _LOG.warning("%s is under way with another app file, which is used", app)
            runner = AgentRunner.of_sheet(service, sheet, rng, own_tuner=tuner)
            if began is not None:
                began(runner)
            _LOG.info("%s is over: %s", app, await runner.run())
            return
        except UnknownAppError:
            if "outcome" in await asyncio.to_thread(client.status, app):
                return  # It was over before, and an earlier agent has heard that.
            raise
        except (DeniedError, UnknownCallerError, StaleAnswerError, TunerError):
            raise
        except (UnavailableError, LimitError, RefusedError) as error:
            _LOG.warning("the agent of %s begins again: %s", app, error)
        await asyncio.sleep(backoff.failed())


async def _results(client: Client, app: str) -> Results:
    """The results; retried for a while if the service does not answer."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _RESULTS_TIMEOUT
    while True:
        try:
            return await asyncio.to_thread(client.results, app)
        except (UnavailableError, LimitError):
            if loop.time() > end:
                raise
        await asyncio.sleep(1.0)


__all__ = ["OwnTuner", "Results", "Trial", "tune"]
