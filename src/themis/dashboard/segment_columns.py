"""Segments as columns: gathered one by one, written without a detour."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from themis.core.model import LeaseSource
from themis.dashboard.model import Columns, Timeline

SOURCES = (*(str(source) for source in LeaseSource), "")
"""The last one is for what the viewer may not know."""
_PLACES = {name: place for place, name in enumerate(SOURCES)}
_DIGITS = 1
"""Tenths of a second: nobody sees less, and a hundred thousand numbers get shorter."""


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """One GPU held by one app for a while."""

    gpu: int
    app: str
    start: float
    end: float
    source: str


class Gathering:
    """Names and segments on their way to a timeline."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, int] = {}
        for name in names:
            self._place(name)

    def _place(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def columns(
        self, held: Iterable[HeldSegment], called: Mapping[str, str] | None = None
    ) -> Columns:
        """Segments as columns.

        Args:
            held: The segments.
            called: What apps are called instead of their names.
        """
        gpus, apps, starts, ends, sources = [], [], [], [], []
        for item in held:
            name = item.app if called is None else called.get(item.app, item.app)
            gpus.append(item.gpu)
            apps.append(self._place(name))
            starts.append(round(item.start, _DIGITS))
            ends.append(round(item.end, _DIGITS))
            sources.append(_PLACES.get(item.source, len(SOURCES) - 1))
        return Columns(gpus, apps, starts, ends, sources)

    def timeline(self, closed: Columns, present: Columns, cursor: int) -> Timeline:
        """All of it."""
        return Timeline(tuple(self._names), SOURCES, closed, present, cursor)
