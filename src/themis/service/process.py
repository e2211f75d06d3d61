"""The process `themis serve`: store, service, servers, signals, and an end within seconds.

    await ServiceProcess(loaded, again=lambda: load(path)).run()

Order matters at the start: certificates and addresses are checked, the store is locked and read, a
round can be held, and only then are requests answered. At the end the servers close first, what was
decided is written, and training goes on untouched.
"""

import asyncio
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from themis import __version__
from themis.agent_host.host_supervisor import HostCommand, HostSupervisor
from themis.config.addresses import Address
from themis.config.keys import KEYS, MAPPINGS, ServiceConfig, value_of
from themis.config.loader import Loaded
from themis.config.reload import changed_keys
from themis.config.value_types import plain
from themis.core.arbiter import events as ev
from themis.engines.supervisor.gpu_locks import highest_below
from themis.errors import ConfigError, ThemisError
from themis.node.bridge.child import BridgeChild, check_bridge
from themis.node.bridge.process import engine_folder
from themis.node.local_nodes import LocalNodes, local_machines
from themis.ops.systemd import READY, STOPPING, notify
from themis.security.bind_address import check_bind, listen
from themis.security.tls import check_files
from themis.security.token_files import ensure_admin
from themis.security.token_store import TokenStore
from themis.service.call_admission import GrpcSettings
from themis.service.grpc_server import GrpcServer
from themis.service.housekeeping import keep_house, remember_rounds, sweep_sessions
from themis.service.http.app import make_app
from themis.service.http.connection_limits import ConnectionLimiter
from themis.service.http.context import ApiContext
from themis.service.http.server import open_http
from themis.service.http.settings import ApiSettings
from themis.service.persistence.recovery import RecoveredState, recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import is_new, open_store
from themis.service.persistence.store.sql import Store
from themis.service.service import Service
from themis.service.solver.worker_client import SolverClient

_LOG = logging.getLogger(__name__)

_PRUNE_EVERY = 3600.0
_SWEEP_EVERY = 600.0
_REAP_EVERY = 2.0
_TEND_EVERY = 0.5
LOCAL = "local"
"""The engine whose machines run a node each."""
_ENTRIES_AT_ONCE = 50
_CLOSE_PATIENCE = 3.0
"""Seconds that calls under way get when the service stops."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a service listens."""

    http: Address
    grpc: Address | None
    admin_token: str
    """The file of the admin token that was just made, if any."""
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
        self._connections = ConnectionLimiter(loaded.config.limits)
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
            ConfigError: The configuration is impossible.
            ThemisError: The store cannot be used, or failed while serving.
        """
        config = self._loaded.config
        new = is_new(config.store)
        _check(config, new=new)
        _state_folder(config)
        async with AsyncExitStack() as stack:
            store = open_store(config.store)
            stack.callback(store.close)
            service = self._service = await self._begin(store, config, new=new)
            stack.push_async_callback(service.close)
            token_store = TokenStore(service.rows, service.rows.keep)
            made = ensure_admin(token_store, config.state_dir, now=time.time())
            await service.queue.settled()
            grpc, own = await self._open_grpc(stack, service, token_store, config)
            http = await stack.enter_async_context(self._http(service, token_store, config))
            handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop}
            stack.enter_context(_signals({**handlers, signal.SIGHUP: self._reload_soon}))
            self._beside(stack, keep_house(service, lambda: self._loaded.config.retention))
            self._beside(stack, sweep_sessions(token_store))
            await self._start_hosts(stack, service, token_store, HostCommand(config, own))
            await self._start_nodes(stack, service, token_store, config, grpc)
            epoch = service.steward.epoch
            self._announce(Listening(http, grpc, str(made or ""), store.url, epoch))
            _LOG.info(
                "serving in epoch %d: http %s, grpc %s, policy %s, %d apps, %d machines",
                *(epoch, http, grpc, config.policy),
                *(len(service.steward.arbiter.world.apps), len(service.steward.nodes)),
            )
            notify(READY)
            # Not before: the first round is due, and the store is needed for it.
            self._beside(stack, remember_rounds(service))
            try:
                await self._until_the_end(service)
            finally:
                notify(STOPPING)
        _LOG.info("stopped; what runs on nodes goes on")

    @staticmethod
    def _beside(stack: AsyncExitStack, work: Coroutine[None, None, None]) -> None:
        stack.callback(asyncio.create_task(work).cancel)

    async def _start_hosts(
        self,
        stack: AsyncExitStack,
        service: Service,
        token_store: TokenStore,
        command: HostCommand,
    ) -> None:
        hosting = asyncio.create_task(HostSupervisor(service.files, token_store, command).run())
        hosting.add_done_callback(_log_failure)
        stack.push_async_callback(_ended, hosting)

    async def _start_nodes(
        self,
        stack: AsyncExitStack,
        service: Service,
        token_store: TokenStore,
        config: ServiceConfig,
        grpc: Address,
    ) -> None:
        """Start the bridge to another scheduler, or the nodes of this machine."""
        if config.engine != LOCAL:
            bridge = self._bridge = BridgeChild(config, grpc)
            bridge.tend(token_store, now=time.time())
            self._beside(stack, _tend(bridge, token_store))
        elif config.local_nodes is not None:
            nodes = LocalNodes(config, grpc)
            nodes.start(token_store, now=time.time())
            await service.queue.settled()
            self._beside(stack, _reap(nodes))

    async def _begin(self, store: Store, config: ServiceConfig, *, new: bool) -> Service:
        options = dict(self._loaded.policy_options)
        parameters = StartParameters(config.policy, options, self._loaded.settings)
        solver = SolverClient(config.solver)
        # The solver's process loads its libraries while the store is read.
        loading = asyncio.create_task(solver.start())
        above = seen_there(config) if new else 0
        try:
            state = await asyncio.to_thread(_recover_at_once, store, config, parameters, above)
        except BaseException:
            loading.cancel()
            await solver.close()
            raise
        await loading
        service = Service(state, store, solver)
        await service.start()
        return service

    async def _open_grpc(
        self,
        stack: AsyncExitStack,
        service: Service,
        token_store: TokenStore,
        config: ServiceConfig,
    ) -> tuple[Address, Address]:
        """Listen; the address for others, and that for the service's own agent hosts."""
        self._grpc = GrpcServer(service, token_store, GrpcSettings(config.tls, config.limits))
        address = self._grpc_address = await self._grpc.start(config.grpc)
        stack.push_async_callback(self._grpc.close, _CLOSE_PATIENCE)
        service.listening()
        return address, self._grpc.own or address

    async def _until_the_end(self, service: Service) -> None:
        stopped: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
        failed: asyncio.Future[Any] = service.queue.failed
        await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        service.stop()
        if failed.done():
            error = failed.result()
            _LOG.critical("nothing can be stored any more: %s", error)
            if isinstance(error, ThemisError):
                raise error
            raise ThemisError(f"nothing can be stored any more: {error}")

    @asynccontextmanager
    async def _http(
        self, service: Service, token_store: TokenStore, config: ServiceConfig
    ) -> AsyncIterator[Address]:
        self._api = ApiContext(service, token_store, self._api_settings(config))
        app = make_app(self._api)
        async with open_http(
            app, config.http, self._connections, config.tls, _CLOSE_PATIENCE
        ) as address:
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
            describe=lambda: described(self._loaded),
            trouble=lambda: self._bridge.trouble if self._bridge is not None else "",
            reload=self.reload if self._again is not None else None,
        )

    # Changes while running

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
        changed = changed_keys(self._loaded, wanted)
        if wanted.settings != self._loaded.settings:
            now = self._service.now()
            await self._service.loop.carry_out(ev.SettingsChanged(now, wanted.settings))
        self._loaded = wanted
        self._api.change(self._api_settings(wanted.config))
        self._connections.change(wanted.config.limits)
        if self._grpc is not None:
            self._grpc.change(wanted.config.limits)
        logging.getLogger("themis").setLevel(wanted.config.log_level.upper())
        _LOG.info("configuration read again; changed: %s", ", ".join(changed) or "nothing")
        return {"changed": changed}


def _check(config: ServiceConfig, *, new: bool) -> None:
    """Find mistakes that would end the service later, before there is a store or a token of it.

    Raises:
        ConfigError: There is one.
    """
    addresses = (("http", config.http), ("grpc", config.grpc))
    for key, address in addresses:
        check_bind(key, address, config.tls)
    check_files(config.tls, now=time.time())
    if config.engine != LOCAL:
        check_bridge(config)
    elif config.local_nodes is not None:
        local_machines(config)
    if new:
        for key, address in addresses:
            listen(key, address).close()


def described(loaded: Loaded) -> dict[str, Any]:
    """Every key with its value and where it was set; for mappings, where any entry was set."""
    told = {}
    for name in KEYS:
        places = {
            origin
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


async def _tend(bridge: BridgeChild, token_store: TokenStore) -> None:
    while True:
        await asyncio.sleep(_TEND_EVERY)
        try:
            bridge.tend(token_store, now=time.time())
        except OSError as error:
            _LOG.warning("the bridge cannot be supervised now: %s", error)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log that a task that must not end has ended."""
    if not task.cancelled() and task.exception() is not None:
        _LOG.critical("agent hosts are not supervised any more", exc_info=task.exception())


async def _ended(task: asyncio.Task[None]) -> None:
    """End a task, and wait until it has."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def seen_there(config: ServiceConfig) -> int:
    """The highest token on the machines of another scheduler, given by any service.

    Their files are on shared storage and may be older than a new store: the machines would refuse
    the orders of a service with lower tokens as stale. A store that is not new knows its own.
    """
    if config.engine == LOCAL:
        return 0

    def unread(error: OSError) -> None:
        _LOG.warning("leases of an earlier service cannot be read: %s", error)

    return highest_below(str(engine_folder(config)), unread)


def _recover_at_once(
    store: Store, config: ServiceConfig, parameters: StartParameters, above_token: int
) -> RecoveredState:
    """Recover without garbage collections meanwhile: everything that is made stays."""
    gc.disable()
    try:
        state = recover(
            store,
            parameters,
            __version__,
            seed=config.seed,
            node_ttl=config.node_ttl,
            above_token=above_token,
        )
        gc.freeze()
        # The bids of a crowd stay until the next round: looking through them after every few
        # hundred finds nothing.
        gc.set_threshold(10_000, 10, 10)
        return state
    finally:
        gc.enable()


def _state_folder(config: ServiceConfig) -> None:
    """Make the service's own folder, which other users cannot read.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        given, allowed = error.strerror, "a folder that can be made"
        raise ConfigError("state_dir", given, allowed, str(config.state_dir)) from None


@contextmanager
def _signals(calls: dict[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Handle signals by calls, inside a `with` block."""
    loop = asyncio.get_running_loop()
    for number, call in calls.items():
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in calls:
            loop.remove_signal_handler(number)
