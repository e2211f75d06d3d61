"""The service as a process: store, service, doors, signals, and an end within seconds.

    await ServiceProcess(loaded, again=lambda: load(path)).run()

Order matters at the start: certificates and addresses are checked, the store is locked and read, a
round can be held, and only then does anybody get an answer. At the end the doors close first, what
was decided is written, and training goes on untouched.
"""

import asyncio
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from themis import __version__
from themis.agent_host.host_supervisor import HostCommand, HostSupervisor
from themis.config.addresses import Address
from themis.config.keys import KEYS, MAPPINGS, ServiceConfig, value_of
from themis.config.loader import Loaded
from themis.config.reload import plan_reload
from themis.config.value_types import plain
from themis.core.arbiter import Settings
from themis.core.arbiter import events as ev
from themis.core.policies import Policy, policy
from themis.engines.supervisor.gpu_locks import highest_below
from themis.errors import ConfigError, FatalStoreError, ThemisError
from themis.node.bridge.child import BridgeChild, check_bridge
from themis.node.bridge.process import engine_folder
from themis.node.local_nodes import LocalNodes, local_machines
from themis.ops.systemd import READY, STOPPING, notify
from themis.security.bind_address import check_bind, listen
from themis.security.browser_sessions import sweep
from themis.security.tls import check_files
from themis.security.token_files import ensure_admin
from themis.security.token_store import StoredTokens
from themis.service.grpc_server import GrpcServer, GrpcSettings
from themis.service.http.app import make_app
from themis.service.http.connection_limits import ConnectionLimiter
from themis.service.http.context import ApiContext
from themis.service.http.server import open_http
from themis.service.http.settings import ApiSettings
from themis.service.persistence.recovery import RecoveredState, recover
from themis.service.persistence.round_history import REMEMBERED, Steps, read_rounds
from themis.service.persistence.start_parameters import StartParameters, parameters_row
from themis.service.persistence.store import is_new, open_store
from themis.service.persistence.store.base import Store
from themis.service.service import Service
from themis.service.solver.worker_client import SolverClient

_LOG = logging.getLogger(__name__)

_PRUNE_EVERY = 3600.0
_SWEEP_EVERY = 600.0
_REAP_EVERY = 2.0
_TEND_EVERY = 0.5
LOCAL = "local"
"""The engine whose machines have nodes of their own."""
_ENTRIES_AT_ONCE = 50
_DOOR_PATIENCE = 3.0
"""Seconds that calls under way get when the service stops."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a service can be reached."""

    http: Address
    grpc: Address | None
    admin_token: str
    """The file of a token that was just made, if any."""
    store: str = ""
    """Without a password."""
    epoch: int = 0


class ServiceProcess:
    """One run of the service."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        again: Callable[[], Loaded] | None = None,
        announce: Callable[[Listening], None] = lambda _: None,
    ) -> None:
        self._loaded = loaded
        self._again = again
        self._announce = announce
        self._stop = asyncio.Event()
        self._api: ApiContext | None = None
        self._guard = ConnectionLimiter(loaded.config.limits)
        self._http_address: Address | None = None
        """With the port that was taken, where the configuration leaves it open."""
        self._grpc: GrpcServer | None = None
        self._grpc_address: Address | None = None
        self._service: Service | None = None
        self._bridge: BridgeChild | None = None

    def stop(self) -> None:
        """End soon; what runs on nodes goes on."""
        _LOG.info("told to stop")
        self._stop.set()

    async def run(self) -> None:
        """Serve until told to stop.

        Raises:
            ConfigError: Something in the configuration cannot be.
            ThemisError: The store cannot be used, or failed while serving.
        """
        config = self._loaded.config
        for key, address in (("http", config.http), ("grpc", config.grpc)):
            check_bind(key, address, config.tls)
        check_files(config.tls, now=time.time())
        # What would end it later ends it before there is a store or a token of it.
        if config.engine != LOCAL:
            check_bridge(config)
        elif config.local_nodes is not None:
            local_machines(config)
        new = is_new(config.store)
        if new:
            for key, address in (("http", config.http), ("grpc", config.grpc)):
                listen(key, address).close()
        _state_folder(config)
        async with AsyncExitStack() as stack:
            store = open_store(config.store)
            stack.callback(store.close)
            service = await self._begin(store, config, new=new)
            self._service = service
            stack.push_async_callback(service.close)
            vault = StoredTokens(service.kept, service.keep)
            made = ensure_admin(vault, config.state_dir, now=time.time())
            await service.settled()
            grpc, own = await self._open_grpc(stack, service, vault, config)
            http = await stack.enter_async_context(self._http(service, vault, config))
            stack.enter_context(self._signals())
            for work in (self._keep_house(service), self._sweep(vault)):
                stack.callback(asyncio.create_task(work).cancel)
            supervisor = HostSupervisor(service.hosting, vault, HostCommand(config, own))
            hosting = asyncio.create_task(supervisor.run())
            hosting.add_done_callback(_tell_failure)
            stack.push_async_callback(_ended, hosting)
            epoch = service.steward.epoch
            if config.engine != LOCAL:
                bridge = self._bridge = BridgeChild(config, grpc)
                bridge.tend(vault, now=time.time())
                stack.callback(asyncio.create_task(_tend(bridge, vault)).cancel)
            elif config.local_nodes is not None:
                nodes = LocalNodes(config, grpc)
                nodes.start(vault, now=time.time())
                await service.settled()
                reaping = asyncio.create_task(_reap(nodes))
                stack.callback(reaping.cancel)
            self._announce(Listening(http, grpc, str(made or ""), store.url, epoch))
            _LOG.info(
                "serving in epoch %d: http %s, grpc %s, policy %s, %d apps, %d machines",
                *(epoch, http, grpc, config.policy),
                *(len(service.steward.arbiter.world.apps), len(service.steward.nodes)),
            )
            notify(READY)
            # Not before: the first round is due, and the store is needed for it.
            stack.callback(asyncio.create_task(_remember(service)).cancel)
            try:
                await self._until_the_end(service)
            finally:
                notify(STOPPING)
        _LOG.info("stopped; what runs on nodes goes on")

    async def _begin(self, store: Store, config: ServiceConfig, *, new: bool) -> Service:
        rule = policy(config.policy, **dict(self._loaded.policy_options))
        solving = SolverClient(config.solver)
        # The solver's process loads its libraries while the store is read.
        loading = asyncio.create_task(solving.start())
        try:
            memory = await asyncio.to_thread(
                _recall_at_once,
                *(store, rule, self._loaded.settings, config),
                above_token=seen_there(config) if new else 0,
            )
        except BaseException:
            loading.cancel()
            await solving.close()
            raise
        await loading
        service = Service(memory, store, solving, policy=config.policy)
        await service.start()
        terms = StartParameters(
            config.policy, dict(self._loaded.policy_options), self._loaded.settings
        )
        service.keep(parameters_row(service.kept, memory.epoch.number, terms))
        if service.steward.arbiter.settings != self._loaded.settings:
            await service.carry_out(ev.SettingsChanged(service.now(), self._loaded.settings))
        return service

    async def _open_grpc(
        self,
        stack: AsyncExitStack,
        service: Service,
        vault: StoredTokens,
        config: ServiceConfig,
    ) -> tuple[Address, Address]:
        """Listen; where others find the service, and where its own agents do."""
        self._grpc = GrpcServer(service, vault, GrpcSettings(config.tls, config.limits))
        address = self._grpc_address = await self._grpc.start(config.grpc)
        stack.push_async_callback(self._grpc.close, _DOOR_PATIENCE)
        service.listening()
        return address, self._grpc.own or address

    async def _until_the_end(self, service: Service) -> None:
        stopped = asyncio.create_task(self._stop.wait())
        failed = asyncio.create_task(service.failed())
        await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        service.hush()
        if failed.done():
            error = failed.result()
            _LOG.critical("nothing can be stored any more: %s", error)
            if isinstance(error, ThemisError):
                raise error
            raise ThemisError(f"nothing can be stored any more: {error}")
        failed.cancel()

    # Doors

    @asynccontextmanager
    async def _http(
        self, service: Service, vault: StoredTokens, config: ServiceConfig
    ) -> AsyncIterator[Address]:
        self._api = ApiContext(service, vault, self._api_settings(config))
        app = make_app(self._api)
        async with open_http(app, config.http, self._guard, config.tls, _DOOR_PATIENCE) as address:
            self._http_address = address
            # The port may have been chosen just now, and pages name it.
            self._api.change(self._api_settings(config))
            try:
                yield address
            finally:
                self._api.close()

    def _api_settings(self, config: ServiceConfig) -> ApiSettings:
        at = self._http_address or config.http
        names = {str(at), f"localhost:{at.port}", *config.hosts}
        return ApiSettings(
            hosts=frozenset(names),
            tls=config.tls.cert is not None,
            grpc_port=(self._grpc_address or config.grpc).port,
            session=config.session,
            limits=config.limits,
            describe=self._describe,
            trouble=self._trouble,
            reload=self.reload if self._again is not None else None,
        )

    def _describe(self) -> dict[str, Any]:
        return described(self._loaded)

    def _trouble(self) -> str:
        return self._bridge.trouble if self._bridge is not None else ""

    # Changes while running

    def _signals(self) -> "_Signals":
        return _Signals({signal.SIGTERM: self.stop, signal.SIGINT: self.stop,
                         signal.SIGHUP: self._reload_soon})  # fmt: skip

    def _reload_soon(self) -> None:
        async def work() -> None:
            try:
                await self.reload()
            except ThemisError as error:
                _LOG.error("the configuration was not read again: %s", error)

        self._reloading = asyncio.create_task(work())

    async def reload(self) -> dict[str, Any]:
        """Read the configuration again; all of it or nothing.

        Raises:
            ConfigError: A mistake in it, or a key that cannot change while the service runs.
        """
        if self._again is None or self._api is None or self._service is None:
            raise ConfigError("reload", "no file", "a service that was started with one")
        wanted = self._again()
        plan = plan_reload(self._loaded, wanted)
        if plan.refused:
            raise plan.refused[0]
        if wanted.settings != self._loaded.settings:
            now = self._service.now()
            await self._service.carry_out(ev.SettingsChanged(now, wanted.settings))
        self._loaded = wanted
        self._api.change(self._api_settings(wanted.config))
        self._guard.change(wanted.config.limits)
        if self._grpc is not None:
            self._grpc.change(wanted.config.limits)
        logging.getLogger("themis").setLevel(wanted.config.log_level.upper())
        changed = [change.key for change in plan.changes]
        _LOG.info("configuration read again; changed: %s", ", ".join(changed) or "nothing")
        return {"changed": changed}

    # Chores

    async def _keep_house(self, service: Service) -> None:
        """Snapshots, so that the next start is quick; and an end to what is old."""
        pruned = 0.0
        while True:
            retention = self._loaded.config.retention
            await asyncio.sleep(retention.snapshot)
            prunes = service.now() - pruned >= _PRUNE_EVERY
            pruned = service.now() if prunes else pruned
            try:
                await self._tidy(service, prunes=prunes)
            except FatalStoreError as error:
                service.writer.fail(error)
                return
            except ThemisError as error:  # a full disk, perhaps: the next time may work
                _LOG.error("the store could not be tidied: %s", error)

    async def _tidy(self, service: Service, *, prunes: bool) -> None:
        await service.writer.run(service.store.snapshot)
        more = prunes
        while more:
            done: Any = await service.writer.run(
                lambda: service.store.prune(
                    older_than=service.now() - self._loaded.config.retention.age,
                    keep_bytes=self._loaded.config.retention.bytes,
                    audit_older_than=time.time() - self._loaded.config.retention.age,
                )
            )
            more = done.more

    async def _sweep(self, vault: StoredTokens) -> None:
        while True:
            sweep(vault, now=time.time())
            await asyncio.sleep(_SWEEP_EVERY)


def described(loaded: Loaded) -> dict[str, Any]:
    """Every key with its value and where that comes from; of mappings, where any entry does."""
    told = {}
    for name in KEYS:
        places = {
            str(origin)
            for key, origin in loaded.origins.items()
            if key == name or (name in MAPPINGS and key.startswith(f"{name}."))
        }
        told[name] = {
            "value": plain(value_of(loaded.config, name)),
            "from": ", ".join(sorted(places)) or "default",
        }
    return told


async def _reap(nodes: LocalNodes) -> None:
    while True:
        await asyncio.sleep(_REAP_EVERY)
        nodes.reap()


async def _tend(bridge: BridgeChild, vault: StoredTokens) -> None:
    while True:
        await asyncio.sleep(_TEND_EVERY)
        try:
            bridge.tend(vault, now=time.time())
        except OSError as error:
            _LOG.warning("the bridge cannot be looked after now: %s", error)


def _tell_failure(task: asyncio.Task[None]) -> None:
    """A chore that must not end has ended."""
    if not task.cancelled() and task.exception() is not None:
        _LOG.critical("agents are not looked after any more", exc_info=task.exception())


async def _ended(task: asyncio.Task[None]) -> None:
    """End a task, and wait until it has."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _remember(service: Service) -> None:
    """Read the last rounds of earlier starts, a little at a time: nobody waits for them."""
    apps = service.steward.arbiter.world.apps
    present = {name: state.spec.owner for name, state in apps.items()}
    gone = {name: ended.owner for name, ended in service.departed.all() if name not in apps}
    store = service.store
    steps: Steps = ()
    try:
        usage: Any = await service.writer.run(store.usage)
        first, end = max(usage.first_entry, usage.next_entry - REMEMBERED), usage.next_entry
        while first < end and not service.book.full:
            begin = max(first, end - _ENTRIES_AT_ONCE)
            found: Any = await service.writer.run(partial(read_rounds, store, begin, end - 1))
            service.book.remember(found)
            steps = (*found, *steps)
            end = begin
        service.book.conclude(present)
    except ThemisError as error:
        _LOG.warning("earlier rounds cannot be shown: %s", error)
    service.past.remember(steps, {**gone, **present})


def seen_there(config: ServiceConfig) -> int:
    """The highest token on the machines of another scheduler, whoever gave it.

    Their files are on shared storage and may be older than a new store: a service that began below
    them would be refused everything as stale. A store that is not new knows its own.
    """
    if config.engine == LOCAL:
        return 0

    def unread(error: OSError) -> None:
        _LOG.warning("leases of an earlier service cannot be looked at: %s", error)

    return highest_below(str(engine_folder(config)), unread)


def _recall_at_once(
    store: Store, rule: Policy, settings: Settings, config: ServiceConfig, *, above_token: int
) -> RecoveredState:
    """Recall without looking for garbage meanwhile: everything that is made stays."""
    gc.disable()
    try:
        memory = recover(
            store,
            rule,
            settings,
            __version__,
            seed=config.seed,
            node_ttl=config.node_ttl,
            above_token=above_token,
        )
        gc.freeze()
        # A crowd's bids are made to stay until the next round: looking through them after every
        # few hundred finds nothing.
        gc.set_threshold(10_000, 10, 10)
        return memory
    finally:
        gc.enable()


def _state_folder(config: ServiceConfig) -> None:
    """Make the folder of what the service keeps, for nobody else to read.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        given, allowed = error.strerror, "a folder that can be made"
        raise ConfigError("state_dir", given, allowed, str(config.state_dir)) from None


class _Signals:
    """Signals as calls, as long as it lasts."""

    def __init__(self, calls: dict[signal.Signals, Callable[[], None]]) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number, call in self._calls.items():
            loop.add_signal_handler(number, call)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._calls:
            loop.remove_signal_handler(number)
