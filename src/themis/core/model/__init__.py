"""The things the scheduler speaks about: topology, apps, jobs, leases, questions and answers.

from themis.core.model import AppSpec, JobSpec, Machine, Phase, Topology
"""

from themis.core.model.apps import AppSpec, Constraint, JobSpec, Phase
from themis.core.model.bids import Bid, Chunk, Claim, Offer, Row, TableRow
from themis.core.model.ids import AppId, GpuId, JobId, OwnerId
from themis.core.model.leases import Lease, Source
from themis.core.model.slowdown import NO_SLOWDOWN, Measured, Slowdown
from themis.core.model.tables import Table, TableShape
from themis.core.model.topology import (
    CLUSTER,
    LEVELS,
    MACHINE,
    RACK,
    SLOT,
    Machine,
    Seat,
    Topology,
    level_of,
)

__all__ = [
    "CLUSTER",
    "LEVELS",
    "MACHINE",
    "NO_SLOWDOWN",
    "RACK",
    "SLOT",
    "AppId",
    "AppSpec",
    "Bid",
    "Chunk",
    "Claim",
    "Constraint",
    "GpuId",
    "JobId",
    "JobSpec",
    "Lease",
    "Machine",
    "Measured",
    "Offer",
    "OwnerId",
    "Phase",
    "Row",
    "Seat",
    "Slowdown",
    "Source",
    "Table",
    "TableRow",
    "TableShape",
    "Topology",
    "level_of",
]
