"""What the arbiter wants done. Imperative; a driver carries them out in order."""

from themis.core.arbiter.records import AppRecord, RoundRecord
from themis.core.auction.problem import Problem
from themis.core.model import AppId, Lease, Offer
from themis.core.model.values import value


@value
class Ask:
    """Show an agent an offer; its answer counts until the deadline."""

    app: AppId
    offer: Offer
    deadline: float


@value
class Solve:
    """Solve an auction; the answer comes back as `Solved`."""

    round: int
    problem: Problem
    work: int
    deadline: float


@value
class Assign:
    """What an app holds changes; one command, so that its agent moves each job once.

    `granted`: new leases; a slot may still be in use, then the process starts when it is empty.
    `renewed`: same token, later end; the process is not touched.
    `revoked`: checkpoint, and be gone by each lease's end.
    """

    app: AppId
    granted: tuple[Lease, ...] = ()
    renewed: tuple[Lease, ...] = ()
    revoked: tuple[Lease, ...] = ()
    reason: str = ""


@value
class End:
    """Leases ended at `at`, with the slot reported empty or presumed so."""

    app: AppId
    leases: tuple[Lease, ...]
    at: float


@value
class WakeMe:
    """Send `Woken` at this time or later, never earlier: it is asked for once."""

    at: float


@value
class Refuse:
    """A message was refused, and why. Nothing else changed."""

    who: str
    reason: str


@value
class RecordRound:
    """Keep the record of a round."""

    record: RoundRecord


@value
class RecordApp:
    """Keep the record of an app that ended."""

    record: AppRecord


Command = Ask | Solve | Assign | End | WakeMe | Refuse | RecordRound | RecordApp
