"""What a simulation leaves behind."""

from dataclasses import dataclass, field

from themis.core.arbiter import AppRecord
from themis.core.model import AppId
from themis.sim.counters import Contended, Shares
from themis.sim.modelled_jobs import Ledgered


@dataclass(slots=True)
class SimulationOutcome:
    """What a run left behind."""

    apps: dict[AppId, AppRecord] = field(default_factory=dict)
    rounds: int = 0
    auctions: int = 0
    moves: int = 0
    events: int = 0
    end: float = 0.0
    spent: dict[AppId, Ledgered] = field(default_factory=dict)
    scores: tuple[tuple[float, float], ...] = ()
    """Placement scores in rising order, with the GPU-seconds that had them."""
    kept_fractions: Shares = field(default_factory=Shares)
    refused: list[str] = field(default_factory=list)
    failed_rounds: int = 0
    first_failure: str = ""
    """Why the first of them failed."""
    failures: int = 0
    """Processes that died, alone or with a machine."""
    outages: int = 0
    """Machines that failed."""
    contended: Contended = field(default_factory=Contended)
    """Whose GPUs those were while apps wanted more than there are."""

    def failed_of(self, rounds: int) -> str:
        """What to add to a message if some of this many rounds failed."""
        if not self.failed_rounds:
            return ""
        return (
            f"; {self.failed_rounds} of {rounds} rounds failed, the first with {self.first_failure}"
        )
