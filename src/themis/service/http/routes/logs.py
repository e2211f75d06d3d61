"""The logs of jobs."""

from themis.core.model import AppId, JobId, OwnerId
from themis.errors import MissingError
from themis.protocol.node_messages import MOST_LOG
from themis.service.http.context import ApiContext
from themis.service.http.query import seconds, whole_number
from themis.service.http.routing import ApiRequest, Data

LONGEST_WAIT = 30.0
"""How long a request may wait for something new, in seconds."""

OFFSET = whole_number(
    "offset", "Bytes of all runs of the job; negative: bytes before the end.", least=-(10**15)
)
LIMIT = whole_number("limit", "Bytes in one answer.", default=MOST_LOG, least=64, most=MOST_LOG)
WAIT = seconds("wait", "How long to wait for something new, in seconds.", most=LONGEST_WAIT)


async def log(api: ApiContext, request: ApiRequest) -> Data:
    """A piece of the log of a job, also of one that has ended."""
    app, job = AppId(request.path("app")), JobId(request.path("job"))
    owner = api.service.owner_of(app)
    request.allow(owner)
    if owner is None:
        raise MissingError(app, "there is no such app")
    steward = api.service.steward
    state = steward.arbiter.world.apps.get(app)
    known = state is not None and any(job == each.id for each in state.spec.jobs)
    if not known and steward.log_of(app, job) is None:
        reason = "it has no such job" if state is not None else "nothing is kept of such a job"
        raise MissingError(f"{app} {job}"[:200], reason)
    return await api.service.logs.read(
        OwnerId(owner),
        app,
        job,
        offset=request.read(OFFSET),
        limit=request.read(LIMIT),
        wait=request.read(WAIT),
        caller=request.caller,
    )
