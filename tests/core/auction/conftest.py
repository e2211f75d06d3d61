"""Small random auctions of all kinds, the same ones on every run."""

import random
from collections.abc import Callable

import pytest

from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem, Quota
from themis.core.model import AppId, Chunk

SHAPES: list[list[tuple[int, ...]]] = [
    [(2,), (4,)],
    [(2, 2)],
    [(1, 3), (0, 2), (4,)],
    [(1,), (2,), (1, 1)],
]
MakeProblem = Callable[[int], Problem]


def _machines(rng: random.Random) -> tuple[OfferedMachine, ...]:
    shapes = rng.choice(SHAPES)
    return tuple(
        OfferedMachine(number * 3, number % rng.choice([1, 2, 3]), rng.choice(shapes))
        for number in range(rng.randint(1, 4))
    )


def _chunk(rng: random.Random, machines: tuple[OfferedMachine, ...], pins: bool) -> Chunk:
    count = rng.choice([1, 1, 2, 2, 3, 4, 5])
    if pins and rng.random() < 0.4:
        return Chunk(rng.randint(0, 3), count, rng.choice(machines).machine)
    return Chunk(rng.randint(0, 3), count)


def _bidder(
    rng: random.Random, app: AppId, machines: tuple[OfferedMachine, ...], pins: bool
) -> Bidder:
    ties = rng.random() < 0.3
    nothing = float(rng.choice([2, 4, 8])) if ties else rng.uniform(1.0, 20.0)
    rows = []
    for _ in range(rng.randint(0, 5)):
        chunks = tuple(_chunk(rng, machines, pins) for _ in range(rng.choice([1, 1, 1, 2, 3])))
        rho = float(rng.choice([1, 2, 4])) if ties else nothing * rng.uniform(0.05, 1.2)
        rows.append(Candidate(chunks, rho))
    allowed = None
    if rng.random() < 0.3:
        numbers = [offered.machine for offered in machines]
        allowed = frozenset(rng.sample(numbers, rng.randint(1, len(numbers))))
    weight = rng.choice([1.0, 1.0, 0.5, 3.0])
    return Bidder(app, weight, nothing, tuple(rows), allowed)


def _make(seed: int) -> Problem:
    rng = random.Random(seed)
    machines = _machines(rng)
    pins = rng.random() < 0.5
    apps = [AppId(f"app-{number}") for number in range(rng.randint(1, 4))]
    bidders = tuple(_bidder(rng, app, machines, pins) for app in apps)
    quotas: tuple[Quota, ...] = ()
    if rng.random() < 0.25:
        members = tuple(rng.sample(apps, rng.randint(1, len(apps))))
        quotas = (Quota(members, rng.randint(0, 6)),)
    return Problem(machines, bidders, quotas)


@pytest.fixture(scope="session")
def make_problem() -> MakeProblem:
    """A small random auction for each seed: levels, several chunks, pins, weights, quotas, ties."""
    return _make
