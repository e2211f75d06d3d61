"""The arbiter: leases GPUs for minutes at a time, and offers them anew when leases end.

arbiter = Arbiter(topology, policy("themis"), Settings(), seed=1)
commands = arbiter.handle(events.AppArrived(at=0.0, app=app))
"""

from themis.arbiter import commands, events
from themis.arbiter.core import Arbiter
from themis.arbiter.ledger import GpuState, Ledger
from themis.arbiter.ledger_check import check_ledger
from themis.arbiter.record import AppLine, AppRecord, RoundRecord
from themis.arbiter.settings import (
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
    "AppLine",
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
