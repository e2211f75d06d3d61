"""What happened, and what holds: rounds, the audit log, the configuration."""

from typing import Any

from themis.errors import MissingError, RefusedError
from themis.live.routes.base import Call, Data, Handlers, loads_row, whole
from themis.live.sealing import anonymised
from themis.records.codec import dumps, loads


class History(Handlers):
    """What operators look into."""

    async def rounds(self, call: Call) -> Data:
        self._allow(call)
        return {"rounds": [self._sheet(call, number) for number in self._book.numbers()]}

    async def round(self, call: Call) -> Data:
        self._allow(call)
        number = call.path("round")
        if not number.isdecimal() or len(number) > 15 or int(number) not in self._book.numbers():
            kept = self._book.numbers()
            span = f"{kept[0]} to {kept[-1]} are kept" if kept else "there was none yet"
            raise MissingError(f"round {number[:20]}", span)
        return self._sheet(call, int(number))

    def _sheet(self, call: Call, number: int) -> Data:
        record, before = self._book.round(number)
        owners = self._book.owners(number)
        sheet: Any = loads(dumps(anonymised(record, call.identity, owners, before)))
        return dict(sheet)

    async def audit(self, call: Call) -> Data:
        self._allow(call)
        first = whole(call, "first", 1, "the number of a row")
        last = whole(call, "last", 0, "how many of the newest rows")
        await self._service.settled()
        store = self._service.store
        rows: Any = await self._service.writer.run(
            lambda: store.audit(first, min(last, 1000), newest=True) if last else store.audit(first)
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
