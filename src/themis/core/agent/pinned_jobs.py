"""Jobs that can go on on one machine only, because their checkpoints are nowhere else.

    assign_at_home(needs, seats, running, {JobId("j0"): 3})     # j0 on GPUs of machine 3, or not
    bid_at_home(bid, {3: 2}, offer, topology)                   # up to two GPUs, of that machine

The rule is for clusters without storage that machines share. Bids of an app all of whose waiting
jobs have a home ask for GPUs there and nowhere else; where others wait too, any GPUs are of use.

The first process of a job saves. One that needs more GPUs than its home has is led from there: its
first GPU is at home, the others are anywhere. So the order of a gang counts, of its first at least.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from themis.core.agent.job_assignment import JobNeed, Placement, assign, longest_first
from themis.core.model import (
    CLUSTER,
    MACHINE,
    SLOT,
    Bid,
    Chunk,
    GpuId,
    GpuPosition,
    JobId,
    Offer,
    Row,
    Topology,
)

Homes = Mapping[JobId, int]
"""The number of the machine that each of some jobs is bound to."""


def assign_at_home(
    needs: Sequence[JobNeed],
    seats: Sequence[GpuPosition],
    running: Mapping[JobId, tuple[GpuId, ...]],
    homes: Homes,
    *,
    wide: Collection[JobId] = (),
    restart: float = 0.0,
    sticky: bool = True,
) -> Placement:
    """Place jobs as `assign` does, those that have a home only there.

    They come first on their machines, but for what others run on there. One that runs on several
    machines, its home the first of them, has what it needs and goes on.

    Args:
        needs: As for `assign`, like all that is not here.
        seats: All GPUs that the app may use.
        running: Where jobs run now, the GPU of their first process first.
        homes: Where jobs must run.
        wide: Jobs that need more GPUs than their home has: they are led from there.
        restart: Seconds that a moved job loses.
        sticky: Whether running jobs are left alone where that is no worse.
    """
    free = {need.spec.id for need in needs if need.spec.id not in homes}
    placement = _spread(needs, seats, running, homes)
    for need in longest_first(needs):
        if need.spec.id in wide and need.spec.id not in placement:
            placement |= _led(need, homes[need.spec.id], seats, {**running, **placement})
    staying = {*free, *placement}
    taken = {gpu for job in staying for gpu in placement.get(job, running.get(job, ()))}
    for machine in sorted(set(homes.values())):
        mine = [
            need
            for need in needs
            if homes.get(need.spec.id) == machine and need.spec.id not in {*placement, *wide}
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
    needs: Sequence[JobNeed],
    seats: Sequence[GpuPosition],
    running: Mapping[JobId, tuple[GpuId, ...]],
    homes: Homes,
) -> Placement:
    """Jobs that run at home and elsewhere; the first of their processes is the one that saves."""
    machine_of = {seat.gpu: seat.machine for seat in seats}
    found: Placement = {}
    for job, gang in _of(needs, running).items():
        machines = {machine_of.get(gpu) for gpu in gang}
        if job in homes and len(machines) > 1 and machine_of.get(gang[0]) == homes[job]:
            found[job] = gang
    return found


def _led(
    need: JobNeed,
    home: int,
    seats: Sequence[GpuPosition],
    placed: Mapping[JobId, tuple[GpuId, ...]],
) -> Placement:
    """A job on GPUs that no other app is on: as many as there are at home, the rest near to it."""
    job = need.spec
    taken = {gpu for name, gang in placed.items() if name != job.id for gpu in gang}
    free = [seat for seat in seats if seat.gpu not in taken]
    racks = {seat.rack for seat in free if seat.machine == home}
    if not racks or len(free) < job.min_gpus:
        return {}
    count = Counter(seat.machine for seat in free)
    free.sort(
        key=lambda seat: (seat.machine != home, seat.rack not in racks, -count[seat.machine], seat)
    )
    # In the order in which the service has the GPUs of a run.
    gang = sorted(free[: job.max_gpus], key=lambda seat: (seat.machine != home, seat.gpu))
    return {job.id: tuple(seat.gpu for seat in gang)}


def _of(
    needs: Sequence[JobNeed], running: Mapping[JobId, tuple[GpuId, ...]]
) -> dict[JobId, tuple[GpuId, ...]]:
    return {need.spec.id: running[need.spec.id] for need in needs if need.spec.id in running}


def bid_at_home(
    bid: Bid,
    wanted: Mapping[int, int],
    offer: Offer,
    topology: Topology,
    *,
    led: Mapping[int | None, int] | None = None,
) -> Bid:
    """A bid with its loose GPUs bound to machines; rows that do not fit there are left out.

    Args:
        bid: For GPUs anywhere.
        wanted: By machine: how many GPUs the jobs that wait can use there.
        offer: What may be had.
        topology: Where it is.
        led: By machine: how many GPUs anywhere else are of use to jobs that are led from there.
    """
    offered = Counter(topology.seats[gpu].machine for gpu in offer.gpus)
    best: dict[tuple[Chunk, ...], float] = {}
    for row in bid.rows:
        chunks = _bound(row, wanted, offered, led or {})
        if chunks:
            best[chunks] = min(row.seconds, best.get(chunks, row.seconds))
    return replace(bid, rows=tuple(Row(chunks, seconds) for chunks, seconds in best.items()))


def _bound(
    row: Row, wanted: Mapping[int, int], offered: Mapping[int, int], led: Mapping[int | None, int]
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
    if loose:
        # What is anywhere may be far from home, so that only rows will do which say the same.
        far = all(chunk.level == CLUSTER or chunk.count == 1 for chunk in _loose(row))
        elsewhere = sum(led.get(machine, 0) for machine in {chunk.machine for chunk in chunks})
        if not far or loose > elsewhere:
            return None
        chunks.append(Chunk(CLUSTER if loose > 1 else SLOT, loose))
    return tuple(chunks)


def _loose(row: Row) -> list[Chunk]:
    return [chunk for chunk in row.chunks if chunk.machine is None]
