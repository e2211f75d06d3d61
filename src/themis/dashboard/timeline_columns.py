"""The timeline as columns of numbers: quick to write and short, for a hundred thousand segments."""

from collections.abc import Iterable
from dataclasses import dataclass

from themis.core.model import Lease, LeaseSource
from themis.dashboard.model import Columns, Timeline

SOURCES = (*(str(source) for source in LeaseSource), "")
"""The last one is for sources that the viewer may not see."""
_PLACES = {name: place for place, name in enumerate(SOURCES)}
_DIGITS = 1
"""Tenths of a second: a pixel is more than that, and the numbers get shorter."""


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """One GPU held by one app for a while."""

    gpu: int
    app: str
    start: float
    end: float
    source: str


def held_segment(lease: Lease, end: float) -> HeldSegment:
    """The segment of a lease until a time."""
    return HeldSegment(lease.gpu, lease.app, lease.start, end, str(lease.source))


class TimelineBuilder:
    """Collects names and segments for a timeline."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, int] = {}
        for name in names:
            self._place(name)

    def _place(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def columns(self, held: Iterable[HeldSegment]) -> Columns:
        """Segments as columns."""
        gpus, apps, starts, ends, sources = [], [], [], [], []
        for item in held:
            gpus.append(item.gpu)
            apps.append(self._place(item.app))
            starts.append(round(item.start, _DIGITS))
            ends.append(round(item.end, _DIGITS))
            sources.append(_PLACES.get(item.source, len(SOURCES) - 1))
        return Columns(gpus, apps, starts, ends, sources)

    def timeline(self, closed: Columns, present: Columns, cursor: int) -> Timeline:
        """The timeline of closed and present segments, with all names so far."""
        return Timeline(tuple(self._names), SOURCES, closed, present, cursor)
