"""Rows that the service keeps: how apps ended, keys of submissions, machines that are retired.

    ended.find(app)                 # the owner of an app and how it ended
    keys.find(owner, key)           # the app that was submitted with this key
    "gpu-07" in retired

Ends and keys are kept for a week, and beyond a number the oldest go first: no owner can fill the
store with them. A key stays as long as its app is under way, and so do the keys before it: an owner
who numbers submissions would begin with the first again.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import AppRecord
from themis.core.fairness.ideal_time import Convention, ideal_time
from themis.core.model import AppId, OwnerId
from themis.core.steward.commands import Outcome
from themis.core.steward.events import StewardEvent
from themis.core.steward.steward import Steward
from themis.recording.codec import decode, dumps, loads
from themis.service.persistence.commit_queue import DurableRows, Rows
from themis.service.persistence.round_history import arrivals

KEPT_FOR = 7 * 86400.0
"""Seconds after which the end of an app and the key of a submission are forgotten."""
MOST_ENDED = 10_000
"""Ended apps of all owners."""
MOST_KEYS = 10_000
"""Keys of one owner: an owner who submits more loses the oldest."""

_ENDED = "ended/"
_SUBMIT = "submit/"
_RETIRED = "retired/"

_Key = TypeVar("_Key", bound=str)


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
    """Apps that are over, the first to end first."""

    def __init__(self, rows: DurableRows, convention: Convention) -> None:
        self._rows = rows
        self._convention = convention
        found = [
            (AppId(key.removeprefix(_ENDED)), decode(EndedApp, loads(text)))
            for key, text in rows.items()
            if key.startswith(_ENDED)
        ]
        self._apps = dict(sorted(found, key=lambda item: (item[1].at, item[0])))

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Keep how apps ended; forget those whose names are used anew."""
        self.forget(item.app for item in arrivals(outcome.changes.events, outcome.commands))
        for command in outcome.commands:
            if isinstance(command, cmd.RecordApp):
                self._note(command.record)

    def _note(self, record: AppRecord) -> None:
        ended = EndedApp(
            record.owner,
            record.outcome,
            record.arrival,
            record.end,
            record.elapsed,
            _ideal_time(record, self._convention),
        )
        self._apps.pop(record.app, None)
        self._apps[record.app] = ended
        self._rows.keep({_ENDED + record.app: dumps(ended)})

    def forget(self, apps: Iterable[AppId]) -> None:
        """Drop apps and their rows."""
        known = [app for app in apps if self._apps.pop(app, None) is not None]
        self._rows.keep({_ENDED + app: None for app in known})

    def find(self, app: AppId) -> EndedApp | None:
        """How an app ended; None if that is not known."""
        return self._apps.get(app)

    def all(self) -> list[tuple[AppId, EndedApp]]:
        """All of them, the last to end first."""
        return list(reversed(self._apps.items()))

    def old(self, now: float) -> list[AppId]:
        """Apps to forget: too long ago, or too many."""
        dated = [(ended.at, app) for app, ended in self._apps.items()]
        return _outlived(dated, now, MOST_ENDED)


def owner_of(steward: Steward, ended: EndedApps, app: AppId) -> OwnerId | None:
    """The owner of an app that goes on or has ended; None if neither is known."""
    state = steward.arbiter.world.apps.get(app)
    if state is not None:
        return state.spec.owner
    over = ended.find(app)
    return over.owner if over is not None else None


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
    """Keys of submissions: the same submission, sent again, is the same app."""

    def __init__(self, rows: DurableRows) -> None:
        self._rows = rows

    def row(self, owner: OwnerId, key: str, app: AppId, now: float) -> Rows:
        """The row that says that a key was used."""
        return {f"{_SUBMIT}{owner}/{key}": dumps(_Submitted(app, now))}

    def find(self, owner: OwnerId, key: str) -> AppId | None:
        """The app that an owner submitted with a key."""
        text = self._rows.get(f"{_SUBMIT}{owner}/{key}")
        return None if text is None else decode(_Submitted, loads(text)).app

    def forget_old(self, now: float, active: Collection[AppId]) -> None:
        """Drop keys that are too old or too many; `active` apps are not over."""
        uses: dict[str, list[tuple[float, str]]] = {}
        needed: dict[str, float] = {}
        """By owner: when the last app was submitted that is still under way."""
        for key, text in self._rows.items():
            if key.startswith(_SUBMIT):
                used, owner = decode(_Submitted, loads(text)), key.split("/")[1]
                uses.setdefault(owner, []).append((used.at, key))
                if used.app in active:
                    needed[owner] = max(used.at, needed.get(owner, used.at))
        for owner, mine in uses.items():
            old = _outlived(sorted(mine), now, MOST_KEYS, needed.get(owner, -math.inf))
            self._rows.keep(dict.fromkeys(old))


def _outlived(
    dated: Sequence[tuple[float, _Key]], now: float, most: int, needed: float = -math.inf
) -> list[_Key]:
    """What is too old or too much.

    Args:
        dated: Times and keys, the oldest first.
        now: The time.
        most: How many may stay.
        needed: Keys up to this time do not grow too old.
    """
    many = len(dated) - most
    return [
        key
        for index, (at, key) in enumerate(dated)
        if index < many or (now - at > KEPT_FOR and at > needed)
    ]


class RetiredMachines:
    """Machines that an operator has retired: not shown and not counted any more.

    GPUs have numbers that never change, so the cluster goes on knowing such a machine. A machine
    that comes back all the same is shown again, and used.
    """

    def __init__(self, rows: DurableRows) -> None:
        self._rows = rows

    def __contains__(self, name: object) -> bool:
        return f"{_RETIRED}{name}" in self._rows

    def retire(self, name: str) -> None:
        """Retire a machine."""
        self._rows.keep({_RETIRED + name: ""})

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Forget machines that are back."""
        joined = [each for each in outcome.changes.events if isinstance(each, ev.MachineJoined)]
        back = {each.machine.name for each in joined if each.machine.name in self}
        self._rows.keep({_RETIRED + name: None for name in sorted(back)})
