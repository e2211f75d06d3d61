"""The arbiter: leases GPUs for minutes at a time, and offers them anew when leases end.

arbiter = Arbiter(topology, policy("themis"), Settings(), seed=1)
commands = arbiter.handle(events.AppArrived(at=0.0, app=app))
"""

from themis.core.arbiter import commands, events
from themis.core.arbiter.arbiter import Arbiter
from themis.core.arbiter.ledger import GpuState, Ledger
from themis.core.arbiter.ledger_check import check_ledger
from themis.core.arbiter.records import AppInRound, AppRecord, RoundRecord
from themis.core.arbiter.settings import (
    SETTING_NAMES,
    AddedWork,
    BidderKind,
    ContentionOf,
    Inputs,
    Settings,
)

__all__ = [
    "SETTING_NAMES",
    "AddedWork",
    "AppInRound",
    "AppRecord",
    "Arbiter",
    "BidderKind",
    "ContentionOf",
    "GpuState",
    "Inputs",
    "Ledger",
    "RoundRecord",
    "Settings",
    "check_ledger",
    "commands",
    "events",
]
