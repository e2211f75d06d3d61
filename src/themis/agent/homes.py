"""Jobs that can go on on one machine only, because their checkpoints are nowhere else.

    assign_at_home(needs, seats, running, {JobId("j0"): 3})     # j0 on GPUs of machine 3, or not
    bid_at_home(bid, {3: 2}, offer, topology)                   # up to two GPUs, of that machine

The rule is for clusters without storage that machines share. Bids of an app all of whose waiting
jobs have a home ask for GPUs there and nowhere else; where others wait too, any GPUs are of use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from themis.agent.assignment import Need, Placement, assign
from themis.model import MACHINE, SLOT, Bid, Chunk, GpuId, JobId, Offer, Row, Seat, Topology

Homes = Mapping[JobId, int]
"""The number of the machine that each of some jobs is bound to."""


def assign_at_home(
    needs: Sequence[Need],
    seats: Sequence[Seat],
    running: Mapping[JobId, tuple[GpuId, ...]],
    homes: Homes,
    *,
    restart: float = 0.0,
    sticky: bool = True,
) -> Placement:
    """Place jobs as `assign` does, those that have a home only there.

    They come first on their machines, but for what others run on there. One that runs on several
    machines, its home the first of them, has what it needs and goes on.
    """
    free = {need.spec.id for need in needs if need.spec.id not in homes}
    placement = _spread(needs, seats, running, homes)
    staying = {*free, *placement}
    taken = {gpu for job in staying for gpu in running.get(job, ())}
    for machine in sorted(set(homes.values())):
        mine = [
            need
            for need in needs
            if homes.get(need.spec.id) == machine and need.spec.id not in placement
        ]
        here = [seat for seat in seats if seat.machine == machine and seat.gpu not in taken]
        if mine and here:
            placement |= assign(mine, here, _of(mine, running), restart=restart, sticky=sticky)
    used = {gpu for gang in placement.values() for gpu in gang}
    others = [need for need in needs if need.spec.id in free]
    rest = [seat for seat in seats if seat.gpu not in used]
    if others and rest:
        placement |= assign(others, rest, _of(others, running), restart=restart, sticky=sticky)
    return placement


def _spread(
    needs: Sequence[Need],
    seats: Sequence[Seat],
    running: Mapping[JobId, tuple[GpuId, ...]],
    homes: Homes,
) -> Placement:
    """Jobs that run at home and elsewhere; the first of their processes is the one that saves."""
    machine_of = {seat.gpu: seat.machine for seat in seats}
    found: Placement = {}
    for job, gang in _of(needs, running).items():
        machines = {machine_of.get(gpu) for gpu in gang}
        if job in homes and len(machines) > 1 and machine_of.get(min(gang)) == homes[job]:
            found[job] = gang
    return found


def _of(
    needs: Sequence[Need], running: Mapping[JobId, tuple[GpuId, ...]]
) -> dict[JobId, tuple[GpuId, ...]]:
    return {need.spec.id: running[need.spec.id] for need in needs if need.spec.id in running}


def bid_at_home(bid: Bid, wanted: Mapping[int, int], offer: Offer, topology: Topology) -> Bid:
    """A bid with its loose GPUs bound to machines; rows that do not fit there are left out.

    Args:
        bid: For GPUs anywhere.
        wanted: By machine: how many GPUs the jobs that wait can use there.
        offer: What may be had.
        topology: Where it is.
    """
    offered: dict[int, int] = {}
    for gpu in offer.gpus:
        machine = topology.seats[gpu].machine
        offered[machine] = offered.get(machine, 0) + 1
    best: dict[tuple[Chunk, ...], float] = {}
    for row in bid.rows:
        chunks = _bound(row, wanted, offered)
        if chunks:
            best[chunks] = min(row.seconds, best.get(chunks, row.seconds))
    return replace(bid, rows=tuple(Row(chunks, seconds) for chunks, seconds in best.items()))


def _bound(
    row: Row, wanted: Mapping[int, int], offered: Mapping[int, int]
) -> tuple[Chunk, ...] | None:
    fixed = [chunk for chunk in row.chunks if chunk.machine is not None]
    loose = row.gpus - sum(chunk.count for chunk in fixed)
    chunks = list(fixed)
    for machine in sorted(wanted, key=lambda machine: (-wanted[machine], machine)):
        pinned = sum(chunk.count for chunk in fixed if chunk.machine == machine)
        count = min(loose, wanted[machine], offered.get(machine, 0) - pinned)
        if count > 0:
            chunks.append(Chunk(MACHINE if count > 1 else SLOT, count, machine))
            loose -= count
    return tuple(chunks) if not loose else None
