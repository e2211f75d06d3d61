"""Whether machines see the same storage, where jobs that move find their checkpoints.

Every node leaves a mark in its `shared_dir` and reports the oldest one that it finds there. Nodes
that report the same mark have the same folder before them: no mark is ever used twice. A node that
has not looked yet gets the benefit of the doubt; one that is seen to differ does not.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from themis.core.model import AppId, JobId, OwnerId
from themis.core.steward.node_table import NodeEntry


class NodeStorage(StrEnum):
    """The shared storage of a node."""

    NONE = "none"
    """It has no `shared_dir`."""
    UNSEEN = "unseen"
    """It has not reported yet what it finds there."""
    SHARED = "shared"
    """It sees what the others see, or no other node has any."""
    APART = "apart"
    """It sees something else than most others do."""
    TROUBLE = "trouble"
    """It cannot use it."""


def birth_of(app: AppId, owner: OwnerId, submitted: float) -> str:
    """Tells an app from all others of its name, also from those of other clusters.

    It is part of the path to its checkpoints: a later app must not resume from those of a namesake,
    which trained something else. It stays the same while an app is paused or its jobs are retried.
    """
    return hashlib.sha256(f"{owner}/{app}/{submitted!r}".encode()).hexdigest()[:8]


def checkpoints_of(app: AppId, owner: OwnerId, job: str, born: str) -> str:
    """The folder of a job's checkpoints, below the one that a node keeps them in."""
    return "/".join(filter(None, (owner, app, born, job)))


def binds(home: NodeEntry, leader: NodeEntry) -> bool:
    """Whether a job that saved at home would find no checkpoint if this node leads its next run.

    True where neither machine has a `shared_dir`. Where one has, `SharedStorage.check` tells.
    """
    if leader is home or home.last is None or leader.last is None:
        return False
    return not home.last.shared_dir and not leader.last.shared_dir


@dataclass(frozen=True, slots=True)
class PlacementRefusal:
    """Why a job cannot run on some machines, and the only machine that it can run on, if any."""

    reason: str
    home: str = ""


class SharedStorage:
    """What nodes see in their `shared_dir`, and which jobs wait for the machine they saved on.

    The latter is not stored: after a restart such a job asks again, and is refused again.
    """

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._waiting: dict[tuple[AppId, JobId], PlacementRefusal] = {}

    @property
    def nonce(self) -> str:
        """The beginning of the marks of this epoch."""
        return self._nonce

    def _mark_of(self, node: NodeEntry) -> str:
        """The mark that a node sees; empty if it has not looked since this service began."""
        last = node.last
        return last.mark if last is not None and last.mark.startswith(f"{self._nonce}.") else ""

    def of_node(self, node: NodeEntry, nodes: Iterable[NodeEntry]) -> NodeStorage:
        """The storage of one of these nodes."""
        if node.last is None or not node.last.shared_dir:
            return NodeStorage.NONE
        if node.last.storage_trouble:
            return NodeStorage.TROUBLE
        own = self._mark_of(node)
        if not own:
            return NodeStorage.UNSEEN
        marks = [mark for other in nodes if other.present and (mark := self._mark_of(other))]
        if len(marks) < 2:
            return NodeStorage.SHARED
        most = max(sorted(set(marks)), key=marks.count)
        return NodeStorage.SHARED if own == most and marks.count(own) > 1 else NodeStorage.APART

    # Placement

    def check(
        self, app: AppId, job: JobId, machines: Sequence[NodeEntry], saved_on: NodeEntry | None
    ) -> PlacementRefusal | None:
        """See whether a job finds its checkpoints on some machines; a job that does not may wait.

        Args:
            app: Its app.
            job: Which job.
            machines: Those of its run, that of rank 0 first.
            saved_on: The machine on which it saved last, if any.
        """
        home = saved_on if saved_on is not None and saved_on.present else None
        refusal = self._refusal(machines, home)
        if refusal is None:
            self._waiting.pop((app, job), None)
        elif refusal.home:
            self._waiting[app, job] = refusal
        return refusal

    def _refusal(
        self, machines: Sequence[NodeEntry], home: NodeEntry | None
    ) -> PlacementRefusal | None:
        leader = machines[0]
        if home is not None and home is not leader:
            for node in (home, leader):
                if node.last is None:  # Within heartbeats it reports, or is given up.
                    return PlacementRefusal(
                        f"it is not known yet what {node.name} sees: the service has just begun"
                    )
            if binds(home, leader):
                reason = f"its checkpoints are on {home.name} alone, without shared_dir"
                return PlacementRefusal(f"{reason}: it waits there", home.name)
        reason = self._difference(machines, home)
        return PlacementRefusal(reason) if reason else None

    def _difference(self, machines: Iterable[NodeEntry], home: NodeEntry | None) -> str:
        """Why these machines and the home do not see the same storage; empty if they may."""
        involved = {node.name: node for node in (*machines, *([home] if home else []))}
        having = [n for n in involved.values() if n.last is not None and n.last.shared_dir]
        if len(involved) < 2 or not having:
            return ""  # Without any `shared_dir` jobs go without.
        where = f"; it can go on on {home.name}" if home is not None else ""
        for node in involved.values():
            if node.last is not None and not node.last.shared_dir:
                return f"{node.name} has no shared_dir, where others have one{where}"
            if node.last is not None and node.last.storage_trouble:
                return f"{node.name} cannot use its shared_dir: {node.last.storage_trouble}{where}"
        seen = {name: mark for name, node in involved.items() if (mark := self._mark_of(node))}
        first = next(iter(seen), "")
        for name, mark in seen.items():
            if mark != seen[first]:
                return f"{first} and {name} do not see the same storage in their shared_dir{where}"
        return ""

    def waits_for(self, app: AppId, job: JobId) -> PlacementRefusal | None:
        """The refusal of a job that waits for the machine with its checkpoints."""
        return self._waiting.get((app, job))

    def close(self, app: AppId) -> None:
        """The app is gone."""
        self._waiting = {key: why for key, why in self._waiting.items() if key[0] != app}
