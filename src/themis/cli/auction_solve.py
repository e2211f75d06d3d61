"""`themis auction solve`: solve recorded auctions again, with one solver or with several."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.auction_tables import SolvedFile, Try, Unread, as_plain_data, show
from themis.cli.common import options
from themis.cli.common.output import (
    FAILED,
    NOT_FOUND,
    USAGE,
    escape_line,
    fail,
    note,
    print_json,
    progress_bar,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from themis.core.auction import Problem, Solver
    from themis.recording.auction_files import AuctionFile

ALL = "all"
MAX_BUDGET = 10**12
"""As in files; far more than a user waits for."""
MAX_COMBINATIONS = 20_000
"""Combinations of rows up to which brute force is one of `all`."""


def solve_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Auctions, or folders of them.")
    ],
    solver: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A solver by name, or all; may be repeated."),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_BUDGET,
            metavar="WORK",
            help="Work allowed; the file's own unless given.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Solve auctions again and compare with the answers that were recorded.

    Exit code 1 says that two answers contradict each other or that a solver failed.
    """
    names = solver or ["default"]
    solvers = _solvers(names)
    paths = _paths(files)
    warm_up(solvers)
    results: list[SolvedFile | Unread] = []
    with progress_bar("solving", len(paths) * len(solvers)) as bar:
        for number, path in enumerate(paths):

            def step(done: int, number: int = number) -> None:
                bar.update(number * len(solvers) + done)

            results.append(_solve_file(path, solvers, budget, all_=ALL in names, step=step))
            step(len(solvers))
    if json:
        print_json(as_plain_data(results))
    else:
        for item in results:
            if isinstance(item, Unread):
                sys.stderr.write(escape_line(f"error: {item.error}") + "\n")
        show(_solved(results))
    _exit(results, asked=[name for name in names if name != ALL])


def _exit(results: list[SolvedFile | Unread], asked: list[str]) -> None:
    if any(isinstance(item, Unread) for item in results):
        raise typer.Exit(USAGE)
    for item in _solved(results):
        clash = item.contradictions or any(
            each.compared is not None and each.compared.contradiction for each in item.tries
        )
        # Of all solvers, one whose licence does not take an auction has not failed it.
        lost = any(each.error and each.solver in asked for each in item.tries)
        if clash or lost:
            raise typer.Exit(FAILED)


def _solved(results: list[SolvedFile | Unread]) -> list[SolvedFile]:
    return [item for item in results if isinstance(item, SolvedFile)]


def _solvers(names: list[str]) -> list[Solver]:
    from themis.core.auction.solvers.registry import solver, solver_names  # noqa: PLC0415 - late: --help is quick
    from themis.errors import ConfigError, unknown_name  # noqa: PLC0415 - see above

    for name in names:
        if name not in {ALL, *solver_names()}:
            raise unknown_name("solver", name, [*solver_names(), ALL])
    found = {name: solver(name) for name in names if name != ALL}
    if ALL in names:
        missing = []
        for name in ("default", *solver_names()):
            try:
                found.setdefault(name, solver(name))
            except ConfigError:
                missing.append(name)
        if missing:
            note(f"not installed: {', '.join(missing)} (the `bench` extra)")
    return list(found.values())


def _paths(files: list[Path]) -> list[Path]:
    from themis.recording.auction_files import auction_files  # noqa: PLC0415 - late: --help is quick

    for file in files:
        if not file.exists():
            fail(f"{file}: there is no such file (themis auction record writes some)", NOT_FOUND)
    return [path for file in files for path in auction_files(file)]


def warm_up(solvers: list[Solver]) -> None:
    """Load what a solver loads on first use, so that its first auction is timed without it."""
    from themis.core.auction.solvers.registry import preload, solver  # noqa: PLC0415 - late: --help is quick
    from themis.errors import ThemisError  # noqa: PLC0415 - see above

    for each in solvers:
        try:
            preload(each.name)
            each.solve(_exercise())
            if each.name == "default":
                solver("ladder").solve(_exercise())  # this one is too small for it
        except ThemisError:
            pass  # it will say so of every auction


def _exercise() -> Problem:
    """A small auction in which demand exceeds the offer."""
    from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem  # noqa: PLC0415 - late
    from themis.core.model import CLUSTER, AppId, Chunk  # noqa: PLC0415 - see above

    rows = tuple(
        Candidate((Chunk(level, count),), (4.0 + 0.1 * level) / count**0.9)
        for level in range(CLUSTER + 1)
        for count in range(1, 5)
    )
    bidders = tuple(Bidder(AppId(name), 1.0, rho, rows) for name, rho in (("a", 8.0), ("b", 9.0)))
    return Problem((OfferedMachine(0, 0, (2, 1)), OfferedMachine(1, 0, (2,))), bidders)


def _solve_file(
    path: Path,
    solvers: list[Solver],
    budget: int | None,
    *,
    all_: bool,
    step: Callable[[int], None],
) -> SolvedFile | Unread:
    from themis.errors import ThemisError  # noqa: PLC0415 - late: --help is quick
    from themis.recording.auction_files import read_auction  # noqa: PLC0415 - see above

    try:
        auction = read_auction(path)
    except ThemisError as error:
        return Unread(path, str(error))
    result = SolvedFile(path, auction)
    work = auction.budget if budget is None else budget
    for done, each in enumerate(solvers):
        step(done)
        if all_ and each.name == "brute-force" and _too_many(auction.problem):
            result.tries.append(Try(each.name, error="left out: too many combinations"))
        else:
            result.tries.append(_try(auction, each, work))
    result.contradictions = _contradictions(auction.problem, result.tries)
    return result


def _try(auction: AuctionFile, with_: Solver, work: int | None) -> Try:
    from themis.core.auction.solvers.comparison import compare  # noqa: PLC0415 - late: --help is quick
    from themis.errors import ThemisError  # noqa: PLC0415 - see above

    started = time.process_time()
    try:
        solution = with_.solve(auction.problem, work)
    except ThemisError as error:
        return Try(with_.name, error=str(error))
    seconds = time.process_time() - started
    compared = None
    if auction.answer is not None:
        compared = compare(auction.problem, auction.answer, solution)
    return Try(with_.name, solution, seconds, compared=compared)


def _contradictions(problem: Problem, tries: list[Try]) -> list[str]:
    from themis.core.auction.solvers.comparison import compare  # noqa: PLC0415 - late: --help is quick

    answered = [(each.solver, each.solution) for each in tries if each.solution is not None]
    found = []
    for index, (name, one) in enumerate(answered):
        for other_name, other in answered[index + 1 :]:
            clash = compare(problem, one, other).contradiction
            if clash:
                found.append(f"{name} and {other_name}: {clash}")
    return found


def _too_many(problem: Problem) -> bool:
    from themis.core.auction.solvers.prepared import prepare  # noqa: PLC0415 - late: --help is quick

    combinations = 1
    for rows in prepare(problem).options:
        combinations *= 1 + len(rows)
        if combinations > MAX_COMBINATIONS:
            return True
    return False
