"""The default policy without one of the things that are not options of it: for the ablation alone.

RunConfig(policy=without(OwnLeases))
"""

from typing import ClassVar

from themis.core.policies.themis import Themis
from themis.evaluation.metrics import OURS


class OwnLeases(Themis):
    """Every lease ends separately, and GPUs are dealt out one by one as they become free."""

    name: ClassVar[str] = "themis without beats"
    keeps_to_beats: ClassVar[bool] = False
    pools: ClassVar[bool] = False


class PlainBids(Themis):
    """Bids leave out what it costs to move jobs."""

    name: ClassVar[str] = "themis with bids that know no restarts"
    restart_in_bids: ClassVar[bool] = False


class Roaming(Themis):
    """Agents do not keep jobs where they run."""

    name: ClassVar[str] = "themis with agents that do not stick"
    sticky_agents: ClassVar[bool] = False


def family(policy: str) -> str:
    """The name of a run's policy for users: a lever counts as the default policy."""
    return OURS if policy.startswith(f"{__name__}:") else policy


def without(kind: type[Themis]) -> str:
    """The name of such a policy in a run's configuration."""
    return f"{kind.__module__}:{kind.__name__}"
