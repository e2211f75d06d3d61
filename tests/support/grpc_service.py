"""A real service with its gRPC door on loopback, for tests of what calls it.

async with open_world(folder) as world:
    orders = await world.node("m0").report(report)
    await world.stop()
    await world.start()         # the same store, address and tokens
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from themis.config.addresses import Address
from themis.core.arbiter import Settings
from themis.core.auction import Problem, Solution, solver
from themis.errors import InvariantError
from themis.rpc.client import AgentClient, Connection, Credentials, NodeClient
from themis.security.token_files import write_secret
from themis.security.token_store import TokenStore
from themis.security.tokens import Role, create_token
from themis.service.call_admission import GrpcSettings
from themis.service.grpc_server import GrpcServer
from themis.service.persistence.recovery import recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import open_store
from themis.service.persistence.store.sql import Store
from themis.service.service import Service

QUICK = Settings(lease=8.0, grace=1.0, heartbeat=0.5, bid_deadline=0.5, solve_budget=0.5, guard=0.5)
"""Leases short enough to wait for."""
WALL = 1.7e9
LOOPBACK = Address("127.0.0.1", 0)


class Inline:
    """Solves in the loop: auctions of tests are small."""

    async def start(self) -> None:
        """There is nothing to do."""

    async def solve(self, problem: Problem, seconds: float, slack: float = 0.0) -> Solution:
        """At once, whatever the time."""
        return solver("default").solve(problem)

    async def close(self) -> None:
        """There is nothing to do."""


@dataclass
class World:
    """A service and its door. `stop` and `start` are a restart."""

    folder: Path
    token_store: TokenStore = field(default_factory=lambda: TokenStore({}, lambda rows: None))
    rule: str = "fifo"
    settings: Settings = QUICK
    node_ttl: float = 4.0
    door: GrpcSettings = field(default_factory=GrpcSettings)
    address: Address = LOOPBACK
    """Where it listens; the port is chosen at the first start."""
    _service: Service | None = None
    _server: GrpcServer | None = None
    _store: Store | None = None

    async def start(self) -> None:
        """Begin to serve."""
        url = f"sqlite:///{self.folder / 'store.db'}"
        store = self._store = open_store(url, reserve_bytes=0)
        parameters = StartParameters(self.rule, settings=self.settings)
        state = recover(store, parameters, "test", seed=3, node_ttl=self.node_ttl)
        self._service = Service(state, store, Inline())
        await self._service.start()
        door = replace(self.door, wall=lambda: WALL)
        self._server = GrpcServer(self._service, self.token_store, door)
        self.address = await self._server.start(self.address)

    async def stop(self) -> None:
        """Stop serving; does nothing if it did."""
        if self._service is None or self._server is None or self._store is None:
            return
        await self._server.close(0.0)
        await self._service.close()
        self._store.close()
        self._service = None

    @property
    def service(self) -> Service:
        """The service, while there is one."""
        if self._service is None:
            raise InvariantError("the service is stopped")
        return self._service

    @property
    def server(self) -> GrpcServer:
        """Its door."""
        if self._server is None:
            raise InvariantError("the service was never started")
        return self._server

    def token_file(self, role: Role, subject: str) -> Path:
        """A file with a token of this role, made when first asked for."""
        path = self.folder / f"{role}-{subject}.token"
        if not path.exists():
            write_secret(path, create_token(self.token_store, role, subject, now=WALL).token)
        return path

    def connection(self, role: Role, subject: str) -> Connection:
        """One for somebody with a valid token."""
        return Connection(self.address, Credentials(token_file=self.token_file(role, subject)))

    def node(self, name: str) -> NodeClient:
        """A client for a node."""
        return NodeClient(self.connection(Role.NODE, name))

    def agent(self, owner: str) -> AgentClient:
        """A client for an owner's agents."""
        return AgentClient(self.connection(Role.TENANT, owner))


@asynccontextmanager
async def open_world(folder: Path, **settings: Any) -> AsyncIterator[World]:
    """A world that is stopped at the end."""
    world = World(folder, **settings)
    await world.start()
    try:
        yield world
    finally:
        await world.stop()


async def until(is_true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something to become true; the limit is only there so that nothing hangs."""
    async with asyncio.timeout(seconds):
        while not is_true():
            await asyncio.sleep(0.02)
