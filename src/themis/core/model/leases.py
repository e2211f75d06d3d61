"""A lease: who may use a GPU, until when, under which fencing token."""

from enum import StrEnum

from themis.core.model.ids import AppId, GpuId
from themis.core.model.values import value


class LeaseSource(StrEnum):
    """What gave a GPU to an app; GPU-time is reported by it."""

    AUCTION = "auction"
    LEFTOVER = "leftover"
    ARRIVAL = "arrival"
    """A round between beats, whatever settled it."""
    GUARD = "guard"
    """The starvation guard."""
    DIRECT = "direct"
    """A policy without an auction."""
    RENEWED = "renewed"
    """A failed round kept the holder."""


@value
class Lease:
    """One GPU for one app until `end`. A renewal keeps the token; a new owner gets a higher one."""

    gpu: GpuId
    app: AppId
    token: int
    start: float
    end: float
    source: LeaseSource
