"""A real service and its HTTP API in one loop, without a socket, and a token for each role.

async with http_service(folder) as http:
    answer = await http.call("root", "GET", "/v1/apps")
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.grpc_service import Inline
from tests.support.scripted_world import simple_app
from tests.support.virtual import AtOnce
from themis.config.keys import CallerLimits
from themis.core.arbiter import Settings
from themis.core.arbiter import events as ev
from themis.core.model import Machine
from themis.core.policies import Policy
from themis.core.steward.events import ReportCame
from themis.protocol.node_messages import NodeReport, SlotReport, SlotState
from themis.recording.codec import dumps
from themis.security.token_store import TokenStore
from themis.security.tokens import Role, create_token
from themis.service.http.app import make_app
from themis.service.http.context import ApiContext
from themis.service.http.settings import ApiSettings
from themis.service.persistence.recovery import recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import open_store
from themis.service.service import Service

HOST = "127.0.0.1:7421"
WALL = 2000.0
"""The wall clock at the start."""


class HttpService:
    """A service, its API, and a token for each role."""

    def __init__(
        self,
        service: Service,
        token_store: TokenStore,
        client: httpx.AsyncClient,
        transport: httpx.ASGITransport,
        api: ApiContext,
    ) -> None:
        self.service = service
        self.api = api
        self.client = client
        self.transport = transport
        self.wall = WALL
        self.tokens: dict[str, str] = {}
        for role, subject in (
            (Role.ADMIN, "root"),
            (Role.TENANT, "ann"),
            (Role.TENANT, "bob"),
            (Role.VIEWER, "eve"),
            (Role.NODE, "m0"),
        ):
            issued = create_token(token_store, role, subject, now=1000.0)
            self.tokens[subject] = issued.token.reveal()

    async def call(self, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request; with an empty name it has no credential."""
        headers = {"authorization": f"Bearer {self.tokens[who]}"} if who else {}
        content = None if body is None else json.dumps(body)
        return await self.client.request(method, path, headers=headers, content=content)

    async def submit(self, who: str, name: str, owner: str) -> httpx.Response:
        """Submit a small app."""
        spec = json.loads(dumps(simple_app(name, gpus=1, jobs=2, owner=owner)))
        return await self.call(who, "POST", "/v1/apps", {"spec": spec, "key": name})


@asynccontextmanager
async def http_service(
    path: Path,
    limits: CallerLimits | None = None,
    *,
    known: bool = False,
    machines: Sequence[Machine] = (Machine("m0", "r0", (2, 2)),),
    rule: Policy | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[HttpService]:
    """A service with one machine of four GPUs, on a store in this folder.

    Args:
        path: The folder.
        limits: Of its API.
        known: Whether the store is that of an earlier one, which has the machines.
        machines: Others instead of the one.
        rule: What decides, instead of equal shares.
        settings: Of its arbiter.
    """
    store = open_store(f"sqlite:///{path / 'store.sqlite'}", reserve_bytes=0)
    parameters = StartParameters("equal-share", settings=settings or Settings())
    state = recover(store, parameters, "test", policy=rule)
    service = Service(state, store, Inline(), AtOnce())
    await service.start()
    if not known:
        for machine in machines:
            service.steward._lifecycle.feed(ev.MachineJoined(service.now(), machine))
            service.steward._reports.add_node(machine.name, service.now())
    token_store = TokenStore(service.rows, service.rows.keep)
    around = ApiSettings(frozenset({HOST}), limits=limits or CallerLimits(), wall=lambda: http.wall)
    api = ApiContext(service, token_store, around)
    transport = httpx.ASGITransport(make_app(api))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        http = HttpService(service, token_store, client, transport, api)
        try:
            yield http
        finally:
            await service.close()
            store.close()


def says_that_it_is_empty(http: HttpService) -> None:
    """The one machine of four GPUs reports that nothing is on them."""
    slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(4))
    steward = http.service.steward
    for number, epoch in ((1, 0), (2, steward.epoch), (3, steward.epoch)):
        # What it says last stands until it is told something else.
        revision = steward.nodes["m0"].revision if number == 3 else 0
        report = NodeReport(
            "m0", 1, number, epoch, revision, slots, (), Machine("m0", "r0", (2, 2))
        )
        http.service.loop.apply(ReportCame(http.service.now(), report))
