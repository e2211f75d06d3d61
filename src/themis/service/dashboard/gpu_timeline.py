"""Who held which GPU when, for the pages: what came since for streams, all of it as JSON.

    lanes.since(viewer, cursor)     # a few segments, for a stream
    await lanes.told(viewer)        # up to a hundred thousand, written in a thread

What is over is written once for all who see the same, and kept until something more is over. One
is written at a time: it takes longer than a turn of the event loop should, and others wait for the
same interpreter.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from themis.core.model import OwnerId
from themis.dashboard.model import Columns, Timeline
from themis.dashboard.segment_columns import SOURCES, Gathering, HeldSegment
from themis.recording.codec import dumps
from themis.service.dashboard.page_history import OwnedSegment
from themis.service.service import Service
from themis.service.viewer import Viewer

MOST_KEPT = 8
"""Written pasts, of those who looked last; each may be some megabytes."""
_SLICE = 5000
"""Numbers written at once: the encoder lets nobody else run until it is through."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What is over, as one viewer sees it."""

    stamp: tuple[int, OwnedSegment | None]
    names: tuple[str, ...]
    closed: bytes
    present: tuple[OwnedSegment, ...]
    """What was held when it was taken: the two belong together."""


class Lanes:
    """The segments of a service. All but the writing belongs to one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: tuple[OwnedSegment, ...] = ()
        self._open_of = -1
        self._kept: OrderedDict[Viewer, _Written] = OrderedDict()
        self._under_way: dict[Viewer, asyncio.Task[_Written]] = {}
        self._turn = asyncio.Lock()

    def open(self) -> tuple[OwnedSegment, ...]:
        """What is held now; the same object for as long as it is the same."""
        changed = self._service.past.changed
        if changed != self._open_of:
            self._open_of = changed
            found = self._held()
            if found != self._open:
                self._open = found
        return self._open

    def _held(self) -> tuple[OwnedSegment, ...]:
        ledger, service = self._service.steward.arbiter.ledger, self._service
        owners: dict[str, OwnerId | None] = {}
        found = []
        for gpu in range(len(ledger)):
            lease = ledger.lease(gpu)  # type: ignore[arg-type]  # GPU ids are dense
            if lease is None:
                continue
            if lease.app not in owners:
                owners[lease.app] = service.owner_of(lease.app)
            held = HeldSegment(gpu, lease.app, lease.start, lease.end, str(lease.source))
            found.append(OwnedSegment(held, owners[lease.app]))
        return tuple(found)

    def since(self, viewer: Viewer, since: int) -> Timeline:
        """What is held, and what was closed after so many."""
        past, gathering = self._service.past, Gathering()
        closed = gathering.columns(viewer.segments(past.segments(since)))
        present = gathering.columns(viewer.segments(self.open()))
        return gathering.timeline(closed, present, past.closed)

    async def told(self, viewer: Viewer) -> bytes:
        """All of it, as the JSON of a `Timeline`."""
        written = self._kept.get(viewer)
        if written is None or written.stamp != self._stamp():
            written = await self._written(viewer)
        present = self.open() if written.stamp == self._stamp() else written.present
        gathering = Gathering(written.names)
        columns = gathering.columns(viewer.segments(present))
        line = gathering.timeline(Columns(), columns, written.stamp[0])
        return b'{"names":%b,"sources":%b,"closed":%b,"open":%b,"cursor":%d}' % (
            dumps(line.names).encode(),
            dumps(SOURCES).encode(),
            written.closed,
            dumps(line.open).encode(),
            line.cursor,
        )

    def _stamp(self) -> tuple[int, OwnedSegment | None]:
        """Changes with what is over: at its end, or at its front where more was remembered."""
        return self._service.past.closed, self._service.past.oldest

    async def _written(self, viewer: Viewer) -> _Written:
        """Written once for all who ask meanwhile, also when the first of them goes away."""
        task = self._under_way.get(viewer)
        if task is None:
            task = self._under_way[viewer] = asyncio.create_task(self._write(viewer))
            task.add_done_callback(lambda _: self._under_way.pop(viewer))
        return await asyncio.shield(task)

    async def _write(self, viewer: Viewer) -> _Written:
        async with self._turn:
            stamp, present = self._stamp(), self.open()
            segments = tuple(self._service.past.segments())
            names, closed = await asyncio.to_thread(_columns, viewer, segments)
        written = _Written(stamp, names, closed, present)
        self._kept[viewer] = written
        self._kept.move_to_end(viewer)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return written


def _columns(viewer: Viewer, segments: Sequence[OwnedSegment]) -> tuple[tuple[str, ...], bytes]:
    """Names, and columns as JSON."""
    gathering = Gathering()
    columns = gathering.columns(viewer.segments(segments))
    fields = ("gpu", "app", "start", "end", "source")
    told = b",".join(b'"%b":[%b]' % (name.encode(), _list(getattr(columns, name)))
                     for name in fields)  # fmt: skip
    return gathering.timeline(columns, Columns(), 0).names, b"{%b}" % told


def _list(numbers: Sequence[float]) -> bytes:
    """The inside of a list."""
    return b",".join(
        dumps(numbers[at : at + _SLICE])[1:-1].encode() for at in range(0, len(numbers), _SLICE)
    )
