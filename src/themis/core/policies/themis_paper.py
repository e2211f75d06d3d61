"""The mechanism of `themis` with the paper's text taken literally, for comparison."""

from collections.abc import Mapping
from typing import ClassVar

from themis.core.policies.themis import Horizon, Leftovers, Rank, Themis


class ThemisPaper(Themis):
    """The paper's text taken literally, for comparison."""

    name: ClassVar[str] = "themis-paper"
    keeps_to_beats: ClassVar[bool] = False
    pools: ClassVar[bool] = False
    sticky_agents: ClassVar[bool] = False
    restart_in_bids: ClassVar[bool] = False
    settings: ClassVar[Mapping[str, object]] = {
        "bidder": "app",
        "convention": "paper",
        "idle_after": 0.0,
        "added_work": "extends",
        "audit_tolerance": 0.0,
    }

    def __init__(
        self,
        *,
        f: float = 0.8,
        payment: str = "gpus",
        rank: str = Rank.NOW,
        lookahead: float = 0.0,
        urgent: float = 0.0,
        hysteresis: float = 0.0,
        min_invited: int = 1,
        horizon: str = Horizon.END,
        leftovers: str = Leftovers.PAPER,
        guard_rounds: int = 0,
        guard_patience: int = 1,
        call_in_gain: float = 0.0,
        fresh_tables: bool = True,
    ) -> None:
        super().__init__(
            f=f,
            payment=payment,
            rank=rank,
            lookahead=lookahead,
            urgent=urgent,
            hysteresis=hysteresis,
            min_invited=min_invited,
            horizon=horizon,
            leftovers=leftovers,
            guard_rounds=guard_rounds,
            guard_patience=guard_patience,
            call_in_gain=call_in_gain,
            fresh_tables=fresh_tables,
        )
