"""An auction in few words: rows that ask for the same are written once, whoever has them.

    packed = pack(problem)
    unpack(packed) == problem

A thousand bidders with ten rows each are a megabyte of JSON, and of ten thousand small objects; of
their rows perhaps twenty differ in what they ask for.
"""

from dataclasses import dataclass

from themis.core.auction import Bidder, Candidate, Objective, OfferedMachine, Problem, Quota
from themis.core.model import AppId, Chunk
from themis.errors import RefusedError

Shape = tuple[Chunk, ...]
PackedBidder = tuple[
    AppId, float, float, tuple[int, ...] | None, tuple[int, ...], tuple[float, ...]
]
"""App, weight, rho with nothing, its machines, and of its rows the numbers of shapes, and rho."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A problem."""

    machines: tuple[OfferedMachine, ...]
    shapes: tuple[Shape, ...]
    bidders: tuple[PackedBidder, ...]
    quotas: tuple[Quota, ...]
    objective: Objective


def pack(problem: Problem) -> Packed:
    """The same in few words."""
    numbers: dict[Shape, int] = {}
    known: dict[int, int] = {}
    """By identity: many rows share their chunks, which are slow to compare."""

    def number(shape: Shape) -> int:
        found = known.get(id(shape))
        if found is None:
            found = known[id(shape)] = numbers.setdefault(shape, len(numbers))
        return found

    bidders = tuple(
        [
            (
                bidder.app,
                bidder.weight,
                bidder.rho_nothing,
                None if bidder.machines is None else tuple(sorted(bidder.machines)),
                tuple([number(row.chunks) for row in bidder.rows]),
                tuple([row.rho for row in bidder.rows]),
            )
            for bidder in problem.bidders
        ]
    )
    return Packed(problem.machines, tuple(numbers), bidders, problem.quotas, problem.objective)


def unpack(packed: Packed) -> Problem:
    """The problem again.

    Raises:
        RefusedError: A row has no such shape, or no rho.
        InvariantError: It is no problem.
    """
    bidders = []
    for app, weight, nothing, machines, shapes, rhos in packed.bidders:
        if len(shapes) != len(rhos) or any(not 0 <= at < len(packed.shapes) for at in shapes):
            raise RefusedError(app, "its rows are not whole")
        rows = [Candidate(packed.shapes[at], rho) for at, rho in zip(shapes, rhos, strict=True)]
        allowed = None if machines is None else frozenset(machines)
        bidders.append(Bidder(app, weight, nothing, tuple(rows), allowed))
    return Problem(packed.machines, tuple(bidders), packed.quotas, packed.objective)
