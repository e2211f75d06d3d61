"""What happened, and what holds: rounds, the audit log, the configuration."""

import asyncio
from typing import Any

from starlette.responses import Response

from themis.core.arbiter.records import RoundRecord
from themis.errors import MissingError, RefusedError
from themis.recording.codec import dumps
from themis.service.http.round_redaction import anonymised
from themis.service.http.routes.base import Call, Data, Handlers, as_json, loads_row, whole
from themis.service.http.routes.endpoints import MOST_ROUNDS, MOST_ROWS, ROUNDS
from themis.service.persistence.round_history import Owners

_MOST_PAGE = 4 << 20
"""Bytes after which a page of rounds ends, however many were asked for."""
_ROUNDS_AS_A_CALL = 5.0
"""So many rounds to write count as one call more."""

_Kept = tuple[RoundRecord, RoundRecord | None, Owners]
"""A round, the one before it, and whose its apps were."""


class History(Handlers):
    """What operators look into."""

    async def rounds(self, call: Call) -> Response:
        self._allow(call)
        before = whole(call, "before", 0, "the number of a round")
        limit = whole(call, "limit", ROUNDS, f"how many rounds, at most {MOST_ROUNDS}", low=1)
        limit = min(limit, MOST_ROUNDS)
        self._charge(call, limit / _ROUNDS_AS_A_CALL)
        numbers = [number for number in self._book.numbers() if not before or number < before]
        page = [self._kept(number) for number in numbers[-limit:]]
        sheets: list[bytes] = []
        length = 0
        # The newest first, so that a page which gets too long lacks the oldest.
        for kept in reversed(page):
            sheets.append(_written(call, kept))
            length += len(sheets[-1])
            if length > _MOST_PAGE:
                break
            # Others have their turn between two: a sheet takes milliseconds.
            await asyncio.sleep(0)
        earlier = numbers[-len(sheets)] if len(sheets) < len(numbers) else None
        told = b'{"now":%b,"rounds":[%b],"before":%b}'
        shown = b",".join(reversed(sheets))
        return as_json(told % (self._now(), shown, dumps(earlier).encode()))

    async def round(self, call: Call) -> Response:
        self._allow(call)
        number = call.path("round")
        if not number.isdecimal() or len(number) > 15 or int(number) not in self._book.numbers():
            kept = self._book.numbers()
            span = f"{kept[0]} to {kept[-1]} are kept" if kept else "there was none yet"
            raise MissingError(f"round {number[:20]}", span)
        sheet = _written(call, self._kept(int(number)))
        return as_json(b'{"now":%b,%b' % (self._now(), sheet[1:]))

    def _now(self) -> bytes:
        """The cluster's time, by which people tell how long ago a round was."""
        return dumps(self._service.now()).encode()

    def _kept(self, number: int) -> _Kept:
        record, before = self._book.round(number)
        return record, before, self._book.owners(number)

    async def audit(self, call: Call) -> Data:
        self._allow(call)
        first = whole(call, "first", 1, "the number of a row")
        last = whole(call, "last", 0, "how many of the newest rows")
        for row in self._refusals.due(call.wall):
            self._service.writer.add(audit=row)
        await self._service.settled()
        store = self._service.store
        rows: Any = await self._service.writer.run(
            lambda: (
                store.audit(first, min(last, MOST_ROWS), newest=True)
                if last
                else store.audit(first)
            )
        )
        return {"rows": [{"number": number, **loads_row(row)} for number, row in rows]}

    async def config(self, call: Call) -> Data:
        self._allow(call)
        return self._settings.describe()

    async def reload(self, call: Call) -> Data:
        self._allow(call)
        if self._settings.reload is None:
            raise RefusedError("reload", "this service was started without a file")
        told = await self._settings.reload()
        self._service.writer.add(audit=self._row(call, "configuration"))
        return told


def _written(call: Call, kept: _Kept) -> bytes:
    """A round for who asks, as JSON: made once, and not read and made again for the answer."""
    record, before, owners = kept
    return dumps(anonymised(record, call.identity, owners, before)).encode()
