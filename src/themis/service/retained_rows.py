"""What is kept of apps beside their state: how those that are over ended, and keys of submissions.

    departed.note(record)           # rows to store with the end of an app
    departed.find(app)              # whose it was and how it ended, for a week
    submissions.find(owner, key)    # the app that this key was used for

Rows of the service's own, so that they outlast it. Both go by age, and beyond a number the oldest
go first: nobody can fill the store with them. A key stays as long as its app is under way, and so
do those before it: whoever numbers their submissions would begin with the first again.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from themis.core.arbiter.records import AppRecord
from themis.core.fairness.ideal_time import Convention, ideal_time
from themis.core.model import AppId, OwnerId
from themis.errors import RefusedError
from themis.recording.codec import decode, dumps, loads

KEPT_FOR = 7 * 86400.0
"""Seconds after which the end of an app and the key of a submission are forgotten."""
MOST_ENDED = 10_000
"""Apps that are over, of all owners."""
MOST_KEYS = 10_000
"""Keys of one owner: whoever submits more loses their own."""

_ENDED = "ended/"
_SUBMIT = "submit/"

Rows = dict[str, str | None]
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class EndedApp:
    """An app that is over. Times are the cluster's."""

    owner: OwnerId
    outcome: str
    submitted: float
    at: float
    elapsed: float = 0.0
    """Seconds in which it wanted to run."""
    ideal_time: float = 0.0
    """On a private share; 0 if it did no work."""


class EndedApps:
    """Apps that are over."""

    def __init__(self, kept: Mapping[str, str], convention: Convention) -> None:
        self._kept = kept
        self._convention = convention
        self._known: dict[str, tuple[str, EndedApp | None]] = {}
        """Rows that were read, as text and as what it says."""

    def note(self, record: AppRecord) -> Rows:
        """The row that says how an app ended."""
        ended = EndedApp(
            record.owner,
            record.outcome,
            record.arrival,
            record.end,
            record.elapsed,
            _ideal_time(record, self._convention),
        )
        return {_ENDED + record.app: dumps(ended)}

    def forget(self, app: AppId) -> Rows:
        """Its name is used anew."""
        key = _ENDED + app
        return {key: None} if key in self._kept else {}

    def find(self, app: AppId) -> EndedApp | None:
        """How an app ended; None if nobody knows."""
        text = self._kept.get(_ENDED + app)
        return None if text is None else _read(EndedApp, text)

    def all(self) -> list[tuple[AppId, EndedApp]]:
        """All apps that are over and not forgotten, the last to end first."""
        known = [(AppId(key.removeprefix(_ENDED)), ended) for key, ended in self._rows()]
        return sorted(known, key=lambda item: (-item[1].at, item[0]))

    @staticmethod
    def named(rows: Rows) -> list[AppId]:
        """The apps that rows are of."""
        return [AppId(key.removeprefix(_ENDED)) for key in rows]

    def old(self, now: float) -> Rows:
        """Rows that may go."""
        ends = sorted((ended.at, key) for key, ended in self._rows())
        return _outlived(ends, now, MOST_ENDED)

    def _rows(self) -> list[tuple[str, EndedApp]]:
        """All of them. Each is read once: for ten thousand nobody else is served half a second."""
        before, self._known = self._known, {}
        for key, text in self._kept.items():
            if key.startswith(_ENDED):
                known = before.get(key)
                if known is None or known[0] != text:
                    known = text, _read(EndedApp, text)
                self._known[key] = known
        return [(key, ended) for key, (_, ended) in self._known.items() if ended is not None]


def _ideal_time(record: AppRecord, convention: Convention) -> float:
    ideal = ideal_time(
        convention,
        record.phases,
        contention=max(1.0, record.mean_contention),
        capacity=record.mean_capacity,
        budget=record.budget or None,
    )
    return ideal if math.isfinite(ideal) else 0.0


@dataclass(frozen=True, slots=True)
class _Submitted:
    app: AppId
    at: float


class SubmissionKeys:
    """Keys that were used: the same submission, sent again, is the same app."""

    def __init__(self, kept: Mapping[str, str]) -> None:
        self._kept = kept

    def note(self, owner: OwnerId, key: str, app: AppId, now: float) -> Rows:
        """The row that says that a key was used."""
        return {f"{_SUBMIT}{owner}/{key}": dumps(_Submitted(app, now))}

    def find(self, owner: OwnerId, key: str) -> AppId | None:
        """The app that a key of an owner was used for."""
        text = self._kept.get(f"{_SUBMIT}{owner}/{key}")
        if text is None:
            return None
        found = _read(_Submitted, text)
        return found.app if found is not None else AppId(text)

    def old(self, now: float, active: Collection[AppId] = ()) -> Rows:
        """Rows that may go; those without a time are dated from now.

        Args:
            now: The time.
            active: Apps that are not over.
        """
        uses: dict[str, list[tuple[float, str]]] = {}
        needed: dict[str, float] = {}
        """By owner: when the last app was submitted that is still under way."""
        rows: Rows = {}
        for key, used in _all(_Submitted, self._kept, _SUBMIT):
            if used is None:
                rows[key] = dumps(_Submitted(AppId(self._kept[key]), now))
            else:
                owner = key.split("/")[1]
                uses.setdefault(owner, []).append((used.at, key))
                if used.app in active:
                    needed[owner] = max(used.at, needed.get(owner, used.at))
        for owner, mine in uses.items():
            rows |= _outlived(sorted(mine), now, MOST_KEYS, needed.get(owner, -math.inf))
        return rows


def _outlived(
    dated: list[tuple[float, str]], now: float, most: int, needed: float = -math.inf
) -> Rows:
    """Of rows by age, the oldest first, those that are too old or too many.

    Args:
        dated: When they were written, and their keys.
        now: The time.
        most: How many may stay.
        needed: Those up to then do not grow too old.
    """
    many = len(dated) - most
    return {
        key: None
        for index, (at, key) in enumerate(dated)
        if index < many or (now - at > KEPT_FOR and at > needed)
    }


def _all(
    kind: type[_Kind], kept: Mapping[str, str], prefix: str
) -> Iterator[tuple[str, _Kind | None]]:
    for key, text in kept.items():
        if key.startswith(prefix):
            yield key, _read(kind, text)


def _read(kind: type[_Kind], text: str) -> _Kind | None:
    """The row, unless it is one from before rows had this form."""
    try:
        return decode(kind, loads(text))
    except RefusedError:
        return None
