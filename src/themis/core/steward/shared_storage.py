"""Whether machines see the same storage, where jobs that move find their checkpoints.

Every node leaves a mark in its `shared_dir` and reports the oldest one that it finds there. Nodes
that report the same mark have the same folder before them: a mark has a text that was never used
before. What has not been looked at yet is not held against a node; what was seen to differ is.
"""

import hashlib
from collections.abc import Iterable
from enum import StrEnum

from themis.core.model import AppId, OwnerId
from themis.core.steward.node_table import NodeEntry


class NodeStorage(StrEnum):
    """How a node is with shared storage."""

    NONE = "none"
    """It has no `shared_dir`."""
    UNSEEN = "unseen"
    """It has not said yet what it finds there."""
    SHARED = "shared"
    """It sees what others see, or nobody else has any."""
    APART = "apart"
    """It sees something else than most others do."""
    TROUBLE = "trouble"
    """It cannot use it."""


def birth_of(app: AppId, owner: OwnerId, submitted: float) -> str:
    """What tells an app from all others of its name, those of other clusters too.

    It is in the way to its checkpoints: a later app must not go on from those of a namesake, which
    trained something else. An app that is paused, or whose jobs fail and are started again, is the
    same one all the time.
    """
    return hashlib.sha256(f"{owner}/{app}/{submitted!r}".encode()).hexdigest()[:8]


def checkpoints_of(app: AppId, owner: OwnerId, job: str, born: str) -> str:
    """Where the checkpoints of a job are, below the folder that nodes keep them in."""
    return "/".join(filter(None, (owner, app, born, job)))


def mark_of(node: NodeEntry, nonce: str) -> str:
    """The mark that a node sees; empty if it has not looked since this service began."""
    last = node.last
    return last.mark if last is not None and last.mark.startswith(f"{nonce}.") else ""


def sharing_of(node: NodeEntry, nodes: Iterable[NodeEntry], nonce: str) -> NodeStorage:
    """How a node is with shared storage, among the others."""
    if node.last is None or not node.last.shared_dir:
        return NodeStorage.NONE
    if node.last.storage_trouble:
        return NodeStorage.TROUBLE
    own = mark_of(node, nonce)
    if not own:
        return NodeStorage.UNSEEN
    marks = [mark for other in nodes if other.present and (mark := mark_of(other, nonce))]
    if len(marks) < 2:
        return NodeStorage.SHARED
    most = max(sorted(set(marks)), key=marks.count)
    return NodeStorage.SHARED if own == most and marks.count(own) > 1 else NodeStorage.APART


def binds(home: NodeEntry, first: NodeEntry) -> bool:
    """Whether a job that saved at home would find nothing where its first part is to run.

    So it is where no machine has a `shared_dir`. Where some have one, `storage_objection` tells.
    """
    if first is home or home.last is None or first.last is None:
        return False
    return not home.last.shared_dir and not first.last.shared_dir


def storage_objection(machines: Iterable[NodeEntry], home: NodeEntry | None, nonce: str) -> str:
    """Why a run on these machines would not find its checkpoints; empty if it would.

    Args:
        machines: Where it is to run.
        home: Where its job ran last, if that left checkpoints and the machine is still there.
        nonce: What marks of this service's time begin with.
    """
    involved = {node.name: node for node in (*machines, *([home] if home else []))}
    having = [node for node in involved.values() if node.last is not None and node.last.shared_dir]
    if len(involved) < 2 or not having:
        return ""  # Nobody said that there is any: whoever has none lives without.
    where = f"; it can go on on {home.name}" if home is not None else ""
    for node in involved.values():
        if node.last is not None and not node.last.shared_dir:
            return f"{node.name} has no shared_dir, where others have one{where}"
        if node.last is not None and node.last.storage_trouble:
            return f"{node.name} cannot use its shared_dir: {node.last.storage_trouble}{where}"
    seen = {name: mark for name, node in involved.items() if (mark := mark_of(node, nonce))}
    first = next(iter(seen), "")
    for name, mark in seen.items():
        if mark != seen[first]:
            return f"{first} and {name} do not see the same storage in their shared_dir{where}"
    return ""
