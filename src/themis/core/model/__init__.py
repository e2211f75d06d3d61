"""The things the scheduler speaks about: topology, apps, jobs, leases, questions and answers.

from themis.core.model import AppSpec, JobSpec, Machine, Phase, Topology
"""

from themis.core.model.apps import AppSpec, Constraint, JobSpec, Phase
from themis.core.model.bids import Bid, Chunk, Offer, RhoClaim, Row, TableRow
from themis.core.model.ids import AppId, GpuId, JobId, OwnerId
from themis.core.model.leases import Lease, LeaseSource
from themis.core.model.slowdown import NO_SLOWDOWN, MeasuredSlowdown, Slowdown
from themis.core.model.tables import RowTable, TableShape
from themis.core.model.topology import (
    CLUSTER,
    LEVELS,
    MACHINE,
    RACK,
    SLOT,
    GpuPosition,
    Machine,
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
    "Constraint",
    "GpuId",
    "GpuPosition",
    "JobId",
    "JobSpec",
    "Lease",
    "LeaseSource",
    "Machine",
    "MeasuredSlowdown",
    "Offer",
    "OwnerId",
    "Phase",
    "RhoClaim",
    "Row",
    "RowTable",
    "Slowdown",
    "TableRow",
    "TableShape",
    "Topology",
    "level_of",
]
