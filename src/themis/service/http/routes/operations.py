"""The audit log and the configuration."""

from dataclasses import asdict
from functools import partial
from typing import Any

from themis.errors import RefusedError
from themis.service.http.context import ApiContext
from themis.service.http.query import whole_number
from themis.service.http.routing import ApiRequest, Data

_MOST_ROWS = 1000
"""Rows in one answer."""

FIRST = whole_number("first", "Rows from this one on.", default=1, least=1)
LAST = whole_number("last", "Only this many of the newest rows.", most=_MOST_ROWS)


async def audit(api: ApiContext, request: ApiRequest) -> Data:
    """Rows of the audit log."""
    request.allow()
    first, last = request.read(FIRST), request.read(LAST)
    api.write_audit(*api.refusals.due(request.wall))
    service = api.service
    await service.queue.settled()
    read = partial(service.store.audit, first, last or _MOST_ROWS, newest=last > 0)
    rows: Any = await service.queue.run(read)
    return {"rows": [{"number": number, **asdict(row)} for number, row in rows]}


async def show_config(api: ApiContext, request: ApiRequest) -> Data:
    """The configuration in force."""
    request.allow()
    return api.settings.describe()


async def reload_config(api: ApiContext, request: ApiRequest) -> Data:
    """Read the configuration again."""
    request.allow()
    if api.settings.reload is None:
        raise RefusedError("reload", "this service was started without a file")
    answer = await api.settings.reload()
    api.write_audit(request.audit_row("configuration"))
    return answer
