"""Limits on an auction problem from a file, checked before a solver gets it.

In a run, bids are checked where they enter; a file is not trusted.
"""

from collections.abc import Collection

from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem, Quota
from themis.core.auction.problem import MAX_CHUNKS
from themis.core.model import CLUSTER
from themis.core.model.ids import check_name, check_number
from themis.recording.cluster_files import MAX_GPUS, MAX_SLOTS
from themis.recording.yaml_documents import FilePosition

MAX_BIDDERS, MAX_ROWS = 100_000, 4096
MIN_NUMBER, MAX_NUMBER = 1e-15, 1e15
"""Bounds of weights and rho: beyond them, rounding swallows the differences that payments are."""


def check_numbers(problem: object, place: FilePosition) -> None:
    """Check weights and rho in plain data, where a wrong one can still be named.

    The codec refuses data of another shape.

    Raises:
        ConfigError: One of them is out of range.
    """
    for number, bidder in enumerate(_list_in(problem, "bidders")):
        for key in ("weight", "rho_nothing"):
            _check_number(bidder, key, place, "bidders", number)
        for index, row in enumerate(_list_in(bidder, "rows")):
            _check_number(row, "rho", place, "bidders", number, "rows", index)


def _check_number(data: object, key: str, place: FilePosition, *steps: str | int) -> None:
    value = data.get(key) if isinstance(data, dict) else None
    if isinstance(value, int | float) and not MIN_NUMBER <= value <= MAX_NUMBER:
        with place.at(*steps, key).blamed():
            check_number(key, value, low=MIN_NUMBER, high=MAX_NUMBER)


def _list_in(data: object, key: str) -> list[object]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, list) else []


def check_problem(problem: Problem, not_offered: Collection[int], top: FilePosition) -> None:
    """Check sizes, levels and names of a problem.

    Raises:
        ConfigError: Names the field, what it has and what is allowed.
    """
    place = top.at("problem")
    known = set(not_offered)
    for index, machine in enumerate(not_offered):
        _check_range(machine, 0, MAX_GPUS, top, "not_offered", index)
    for index, offered in enumerate(problem.machines):
        _check_machine(offered, place.at("machines", index))
        if offered.machine in known:
            raise top.at("not_offered").error(offered.machine, "machines without an offered GPU")
    gpus = sum(offered.gpus for offered in problem.machines)
    if gpus > MAX_GPUS:
        raise place.at("machines").error(f"{gpus} GPUs", f"at most {MAX_GPUS} GPUs")
    known.update(offered.machine for offered in problem.machines)
    _check_length(problem.bidders, 0, MAX_BIDDERS, place, "bidders")
    for index, bidder in enumerate(problem.bidders):
        _check_bidder(bidder, known, place.at("bidders", index))
    apps = {bidder.app for bidder in problem.bidders}
    for index, quota in enumerate(problem.quotas):
        _check_quota(quota, apps, place.at("quotas", index))


def _check_machine(offered: OfferedMachine, place: FilePosition) -> None:
    _check_range(offered.machine, 0, MAX_GPUS, place, "machine")
    _check_range(offered.rack, 0, MAX_GPUS, place, "rack")
    _check_length(offered.slots, 1, MAX_SLOTS, place, "slots")
    for index, slot in enumerate(offered.slots):
        _check_range(slot, 0, MAX_SLOTS, place, "slots", index)


def _check_bidder(bidder: Bidder, known: Collection[int], place: FilePosition) -> None:
    with place.at("app").blamed():
        check_name("app", bidder.app)
    for machine in sorted(bidder.machines or ()):
        _check_known(machine, known, place, "machines")
    _check_length(bidder.rows, 0, MAX_ROWS, place, "rows")
    for index, row in enumerate(bidder.rows):
        _check_row(row, known, place, index)


def _check_row(row: Candidate, known: Collection[int], place: FilePosition, number: int) -> None:
    # Places are made for errors only: a file may have a million chunks.
    _check_length(row.chunks, 1, MAX_CHUNKS, place, "rows", number, "chunks")
    for index, chunk in enumerate(row.chunks):
        steps = ("rows", number, "chunks", index)
        _check_range(chunk.level, 0, CLUSTER, place, *steps, "level")
        _check_range(chunk.count, 1, MAX_GPUS, place, *steps, "count")
        if chunk.machine is not None:
            _check_known(chunk.machine, known, place, *steps, "machine")


def _check_quota(quota: Quota, apps: Collection[str], place: FilePosition) -> None:
    _check_range(quota.gpus, 0, 10**9, place, "gpus")
    for index, app in enumerate(quota.apps):
        if app not in apps:
            raise place.at("apps", index).error(app, "an app that bids")


def _check_range(value: int, low: int, high: int, place: FilePosition, *steps: str | int) -> None:
    if not low <= value <= high:
        raise place.at(*steps).error(value, f"a whole number from {low} to {high}")


def _check_length(
    items: Collection[object], low: int, high: int, place: FilePosition, *steps: str | int
) -> None:
    if not low <= len(items) <= high:
        raise place.at(*steps).error(f"a list of {len(items)}", f"{low} to {high} entries")


def _check_known(
    machine: int, known: Collection[int], place: FilePosition, *steps: str | int
) -> None:
    if machine not in known:
        allowed = "a machine in problem.machines or in not_offered"
        raise place.at(*steps).error(machine, allowed)
