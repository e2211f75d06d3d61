"""What if, and snapshots: questions about what is not there yet."""

import asyncio
import zlib

from starlette.responses import Response

from themis.apps import parse_app
from themis.apps.whatif_cases import cases_of, wishes_from
from themis.core.model import OwnerId
from themis.core.model.ids import check_name
from themis.errors import DeniedError
from themis.recording.cluster_snapshots import Snapshot, dumps_snapshot
from themis.recording.forecast_questions import LONGEST, SEEDS, ForecastQuestion
from themis.service.http.round_redaction import sealed_forecast
from themis.service.http.routes.base import Call, Data, Handlers, as_json, whole
from themis.service.http.routes.endpoints import LONGEST_WAIT
from themis.service.snapshot import snapshot_of

_COST = 5.0
"""Calls that a question counts as."""


class Foretelling(Handlers):
    """Forks of the live state."""

    async def whatif(self, call: Call) -> Data:
        sealed = self._allow(call)
        body, service = call.body, self._service
        me = call.identity.subject if call.identity else ""
        owner = OwnerId(check_name("owner", body.get("owner") or me))
        if sealed and owner != me:
            raise DeniedError(_who(call), "`whatif` is allowed to tenants for apps of their own")
        wishes = wishes_from(body)
        if sealed and wishes.of_operators:
            raise DeniedError(_who(call), "`policy` and `add_machines` are for admins to ask about")
        self._charge(call, _COST)
        written = parse_app(body["app"])
        name = service.free_name(written.name)
        seed = body.get("seed")
        seconds = min(LONGEST, float(body.get("seconds", LONGEST)))

        async def prepare() -> tuple[Snapshot, ForecastQuestion]:
            world = service.steward.arbiter.world
            # All trials of an app are drawn, for each case that differs in them.
            cases = await asyncio.to_thread(
                cases_of,
                written,
                wishes,
                name=name,
                owner=owner,
                seed=zlib.crc32(written.name.encode()) if seed is None else seed,
                topology=world.topology,
            )
            for case in cases:
                if not case.machines:
                    world.check_fits(case.spec)
            question = ForecastQuestion(cases, body.get("seeds", SEEDS), seconds)
            return snapshot_of(service), question

        number = await service.forecasts.ask(_who(call), prepare, admin=not sealed)
        return {"question": number, "app": name}

    async def foretold(self, call: Call) -> Data:
        sealed = self._allow(call)
        seen = whole(call, "seen", 0, "the number of an answer")
        wait = min(LONGEST_WAIT, float(whole(call, "wait", 0, "seconds")))
        number, answer = await self._service.forecasts.answer(
            _who(call), call.path("question"), seen=seen, wait=wait
        )
        return {"seen": number, "answer": sealed_forecast(answer, call.identity, sealed=sealed)}

    async def forget(self, call: Call) -> Data:
        self._allow(call)
        await self._service.forecasts.drop(_who(call), call.path("question"))
        return {"done": True}

    async def snapshot(self, call: Call) -> Response:
        self._allow(call)
        self._charge(call, _COST)
        taken = snapshot_of(self._service, call.wall)
        # Megabytes of a large cluster; nobody else shall wait for them.
        return as_json((await asyncio.to_thread(dumps_snapshot, taken)).encode())


def _who(call: Call) -> str:
    identity = call.identity
    return "nobody" if identity is None else f"{identity.role} {identity.subject}"
