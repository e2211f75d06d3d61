"""What jobs print."""

import math

from themis.core.model import AppId, JobId, OwnerId
from themis.errors import MissingError, RefusedError
from themis.protocol.node_messages import MOST_LOG
from themis.service.http.routes.base import Call, Data, Handlers, whole
from themis.service.http.routes.endpoints import LONGEST_WAIT

_MOST_OFFSET = 1 << 50


class Logs(Handlers):
    """What people read while their jobs run, and after."""

    async def log(self, call: Call) -> Data:
        app, job = AppId(call.path("app")), JobId(call.path("job"))
        owner = self._service.owner_of(app)
        self._allow(call, owner)
        steward = self._service.steward
        state = steward.arbiter.world.apps.get(app)
        if owner is None:
            raise MissingError(app, "there is no such app")
        known = state is not None and any(job == each.id for each in state.spec.jobs)
        if not known and steward.logged(app, job) is None:
            reason = "it has no such job" if state is not None else "nothing is kept of such a job"
            raise MissingError(f"{app} {job}"[:200], reason)
        return await self._service.logs.read(
            OwnerId(owner),
            app,
            job,
            offset=_offset(call),
            limit=min(MOST_LOG, whole(call, "limit", MOST_LOG, "a whole number of bytes", low=64)),
            wait=_wait(call),
            caller=call.caller,
        )


def _offset(call: Call) -> int:
    text = call.request.query_params.get("offset", "0")
    digits = text.removeprefix("-")
    if not digits.isdecimal() or len(digits) > 15 or int(digits) > _MOST_OFFSET:
        raise RefusedError("offset", "a whole number of bytes; negative for so many from the end")
    return int(text)


def _wait(call: Call) -> float:
    text = call.request.query_params.get("wait", "0")
    try:
        wait = float(text) if len(text) <= 20 else math.nan
    except ValueError:
        wait = math.nan
    if not 0.0 <= wait < math.inf:
        raise RefusedError("wait", f"seconds, at most {LONGEST_WAIT:g}")
    return min(wait, LONGEST_WAIT)
