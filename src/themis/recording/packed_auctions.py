"""A short form of an auction problem: chunks that several rows ask for are written once.

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
class PackedProblem:
    """A problem in short form."""

    machines: tuple[OfferedMachine, ...]
    shapes: tuple[Shape, ...]
    bidders: tuple[PackedBidder, ...]
    quotas: tuple[Quota, ...]
    objective: Objective


def pack(problem: Problem) -> PackedProblem:
    """The short form of a problem."""
    numbers: dict[Shape, int] = {}
    known: dict[int, int] = {}
    """By identity: many rows share their chunks, and comparing them is slow."""

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
    return PackedProblem(
        problem.machines, tuple(numbers), bidders, problem.quotas, problem.objective
    )


def unpack(packed: PackedProblem) -> Problem:
    """The problem of a short form.

    Raises:
        RefusedError: A row names a shape that is missing, or has no rho.
        InvariantError: Its class refuses the problem.
    """
    bidders = []
    for app, weight, nothing, machines, shapes, rhos in packed.bidders:
        if len(shapes) != len(rhos) or any(not 0 <= at < len(packed.shapes) for at in shapes):
            raise RefusedError(app, "its rows have no shape or no rho")
        rows = [Candidate(packed.shapes[at], rho) for at, rho in zip(shapes, rhos, strict=True)]
        allowed = None if machines is None else frozenset(machines)
        bidders.append(Bidder(app, weight, nothing, tuple(rows), allowed))
    return Problem(packed.machines, tuple(bidders), packed.quotas, packed.objective)
