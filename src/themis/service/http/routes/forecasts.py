"""Forecasts, and snapshots of the live state that answer the same questions offline."""

import asyncio
import zlib

from starlette.responses import Response

from themis.apps import parse_app
from themis.apps.whatif_cases import cases_of
from themis.core.model import OwnerId
from themis.core.model.ids import check_name
from themis.errors import DeniedError
from themis.recording.cluster_snapshots import Snapshot, dumps_snapshot
from themis.recording.forecast_questions import ForecastQuestion
from themis.service.http.bodies import ForecastRequest
from themis.service.http.context import ApiContext
from themis.service.http.query import seconds, whole_number
from themis.service.http.responses import as_json
from themis.service.http.routes.logs import LONGEST_WAIT
from themis.service.http.routing import ApiRequest, Data
from themis.service.snapshot import snapshot_of

SEEN = whole_number("seen", "The number of the newest answer that the caller has.")
WAIT = seconds("wait", "How long to wait for a newer answer, in seconds.", most=LONGEST_WAIT)

_COST = 5.0
"""Requests that a forecast or a snapshot counts as."""


async def whatif(api: ApiContext, request: ApiRequest) -> Data:
    """Begin a forecast of an app that is not submitted."""
    sealed = request.viewer().sealed
    body: ForecastRequest = request.body
    service = api.service
    owner = OwnerId(check_name("owner", body.owner or request.subject or ""))
    if sealed and owner != request.subject:
        raise DeniedError(_asker(request), "tenants may use `whatif` for apps of their own")
    if sealed and body.of_operators:
        raise DeniedError(_asker(request), "`policy` and `add_machines` are for admins")
    api.charge(request.caller, _COST)
    written = parse_app(body.app)
    name = service.submissions.free_name(written.name)
    seed = zlib.crc32(written.name.encode()) if body.seed is None else body.seed

    async def prepare() -> tuple[Snapshot, ForecastQuestion]:
        world = service.steward.arbiter.world
        # In a thread: each case that differs in them draws all trials of the app.
        cases = await asyncio.to_thread(
            cases_of,
            written,
            body,
            name=name,
            owner=owner,
            seed=seed,
            topology=world.topology,
        )
        for case in cases:
            if not case.machines:
                world.check_fits(case.spec)
        question = ForecastQuestion(cases, body.seeds, body.seconds)
        return snapshot_of(service), question

    number = await service.forecasts.ask(_asker(request), prepare, admin=not sealed)
    return {"question": number, "app": name}


async def newest_answer(api: ApiContext, request: ApiRequest) -> Data:
    """The newest answer to a question; waits for one that the caller does not have."""
    viewer = request.viewer()
    number, answer = await api.service.forecasts.answer(
        _asker(request),
        request.path("question"),
        seen=request.read(SEEN),
        wait=request.read(WAIT),
    )
    return {"seen": number, "answer": viewer.forecast(answer)}


async def drop(api: ApiContext, request: ApiRequest) -> Data:
    """End a forecast."""
    request.allow()
    await api.service.forecasts.drop(_asker(request), request.path("question"))
    return {"done": True}


async def snapshot(api: ApiContext, request: ApiRequest) -> Response:
    """The live state as a snapshot file."""
    request.allow()
    api.charge(request.caller, _COST)
    taken = snapshot_of(api.service, request.wall)
    # In a thread: it is megabytes for a large cluster.
    return as_json((await asyncio.to_thread(dumps_snapshot, taken)).encode())


def _asker(request: ApiRequest) -> str:
    identity = request.identity
    return "nobody" if identity is None else f"{identity.role} {identity.subject}"
