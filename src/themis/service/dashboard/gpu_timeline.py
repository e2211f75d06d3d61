"""Which app held which GPU when, for the pages: news for streams, and all of it as JSON.

    timeline.since(viewer, cursor)     # a few segments, for a stream
    await timeline.as_json(viewer)     # up to a hundred thousand, written in a thread

The closed segments are written once for all viewers who see the same, and kept until another one
closes. Only one thread writes at a time: all threads share the interpreter with the event loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from themis.core.model import OwnerId
from themis.dashboard.model import Columns, Timeline
from themis.dashboard.timeline_columns import SOURCES, TimelineBuilder, held_segment
from themis.recording.codec import dumps
from themis.service.dashboard.page_history import OwnedSegment
from themis.service.service import Service
from themis.service.viewer import Viewer

MOST_KEPT = 8
"""Written timelines, of the viewers who looked last; each may take some megabytes."""
_SLICE = 5000
"""Numbers written at once: the encoder holds the interpreter until it is done."""


@dataclass(frozen=True, slots=True)
class _ClosedPart:
    """The closed segments as one viewer sees them."""

    stamp: tuple[int, OwnedSegment | None]
    names: tuple[str, ...]
    closed: bytes
    present: tuple[OwnedSegment, ...]
    """The segments that were open when the closed ones were taken: the two belong together."""


class GpuTimeline:
    """The segments of a service. All but the writing happens in one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: tuple[OwnedSegment, ...] = ()
        self._open_of = -1
        self._kept: OrderedDict[Viewer, _ClosedPart] = OrderedDict()
        self._under_way: dict[Viewer, asyncio.Task[_ClosedPart]] = {}
        self._turn = asyncio.Lock()

    def open(self) -> tuple[OwnedSegment, ...]:
        """The open segments; the same object until one of them changes."""
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
            found.append(OwnedSegment(held_segment(lease, lease.end), owners[lease.app]))
        return tuple(found)

    def since(self, viewer: Viewer, since: int) -> Timeline:
        """The open segments, and those that closed after the first `since`."""
        past, builder = self._service.past, TimelineBuilder()
        closed = builder.columns(viewer.segments(past.segments(since)))
        present = builder.columns(viewer.segments(self.open()))
        return builder.timeline(closed, present, past.closed)

    async def as_json(self, viewer: Viewer) -> bytes:
        """The whole `Timeline` as JSON."""
        written = self._kept.get(viewer)
        if written is None or written.stamp != self._stamp():
            written = await self._written(viewer)
        present = self.open() if written.stamp == self._stamp() else written.present
        builder = TimelineBuilder(written.names)
        columns = builder.columns(viewer.segments(present))
        line = builder.timeline(Columns(), columns, written.stamp[0])
        return b'{"names":%b,"sources":%b,"closed":%b,"open":%b,"cursor":%d}' % (
            dumps(line.names).encode(),
            dumps(SOURCES).encode(),
            written.closed,
            dumps(line.open).encode(),
            line.cursor,
        )

    def _stamp(self) -> tuple[int, OwnedSegment | None]:
        """Changes with the closed segments: at their end, or at their front after a start."""
        return self._service.past.closed, self._service.past.oldest

    async def _written(self, viewer: Viewer) -> _ClosedPart:
        """Written once for all who ask meanwhile, even if the first of them disconnects."""
        task = self._under_way.get(viewer)
        if task is None:
            task = self._under_way[viewer] = asyncio.create_task(self._write(viewer))
            task.add_done_callback(lambda _: self._under_way.pop(viewer))
        return await asyncio.shield(task)

    async def _write(self, viewer: Viewer) -> _ClosedPart:
        async with self._turn:
            stamp, present = self._stamp(), self.open()
            segments = tuple(self._service.past.segments())
            names, closed = await asyncio.to_thread(_columns, viewer, segments)
        written = _ClosedPart(stamp, names, closed, present)
        self._kept[viewer] = written
        self._kept.move_to_end(viewer)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return written


def _columns(viewer: Viewer, segments: Sequence[OwnedSegment]) -> tuple[tuple[str, ...], bytes]:
    """The names, and the columns as JSON."""
    builder = TimelineBuilder()
    columns = builder.columns(viewer.segments(segments))
    fields = ("gpu", "app", "start", "end", "source")
    text = b",".join(b'"%b":[%b]' % (name.encode(), _list(getattr(columns, name)))
                     for name in fields)  # fmt: skip
    return builder.timeline(columns, Columns(), 0).names, b"{%b}" % text


def _list(numbers: Sequence[float]) -> bytes:
    """The numbers of a JSON list, without its brackets."""
    return b",".join(
        dumps(numbers[at : at + _SLICE])[1:-1].encode() for at in range(0, len(numbers), _SLICE)
    )
