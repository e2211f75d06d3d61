"""What `themis auction solve` says: one auction in full, several in a line each, all as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from themis.cli.common.output import console, counted, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from themis.core.auction import Interval, Problem, Solution
    from themis.core.auction.solvers.comparison import AnswerComparison
    from themis.recording.auction_files import AuctionFile, AuctionOrigin


@dataclass(slots=True)
class Try:
    """One solver's answer to one auction, or why there is none."""

    solver: str
    solution: Solution | None = None
    seconds: float = 0.0
    error: str = ""
    compared: AnswerComparison | None = None
    """Compared with the recorded answer, if there is one."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that could not be read, and why."""

    path: Path
    error: str


@dataclass(slots=True)
class SolvedFile:
    """One file and the answers to it."""

    path: Path
    auction: AuctionFile
    tries: list[Try] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    """Answers of this call that cannot both be right."""


# For people


def show(results: Sequence[SolvedFile]) -> None:
    """One answer in full, several in a table."""
    if not results:
        return
    out = console()
    first = results[0]
    if len(results) == 1:
        _show_question(out, first)
    if len(results) == len(first.tries) == 1:
        _show_answer(out, first.auction, first.tries[0])
    else:
        _show_lines(out, results)
    for item in results:
        for clash in item.contradictions:
            _say(out, f"{item.path.name}: {clash}")


def _say(out: Console, text: str) -> None:
    # Names of files and apps are no markup, and a line is easier to search than a paragraph.
    out.print(text, markup=False, soft_wrap=True)


def _show_question(out: Console, item: SolvedFile) -> None:
    auction = item.auction
    problem = auction.problem
    rows = sum(len(bidder.rows) for bidder in problem.bidders)
    _say(
        out,
        f"{item.path}: {counted(len(problem.bidders), 'bidder')} with {counted(rows, 'row')} for "
        f"{counted(_gpus(problem), 'GPU')} on {counted(len(problem.machines), 'machine')}",
    )
    if auction.origin is not None:
        _say(out, _origin(auction.origin))
    if auction.failure:
        _say(out, f"no answer was recorded: {auction.failure}")


def _origin(origin: AuctionOrigin) -> str:
    hours, seconds = divmod(origin.at, 3600.0)
    return (
        f"round {origin.round} of {origin.policy} on {origin.cluster or 'some cluster'}, seed "
        f"{origin.seed}, {hours:.0f} h {seconds / 60:.0f} min into the run"
    )


def _show_answer(out: Console, auction: AuctionFile, tried: Try) -> None:
    solution = tried.solution
    if solution is None:
        _say(out, f"{tried.solver}: {tried.error}")
        return
    rows = table(
        "", "app", "row", "GPUs", "rho nothing", "rho won", "kept fraction", "machines"
    )  # fmt: skip
    bidders = {bidder.app: bidder for bidder in auction.problem.bidders}
    for app, win in sorted(solution.winners.items()):
        row = bidders[app].rows[win.row]
        machines = sorted({place[0] for chunk in win.chunks for place in chunk})
        rows.add_row(
            app,
            f"{win.row}",
            f"{row.gpus}",
            f"{bidders[app].rho_nothing:.3f}",
            f"{row.rho:.3f}",
            _interval(solution.kept[app]),
            ", ".join(map(str, machines)),
        )
    out.print(rows)
    _say(
        out,
        f"{tried.solver}: value {solution.value:.6f}, bound {solution.bound:.6f}, "
        f"{_proof(solution)}, {len(solution.winners)} of "
        f"{len(bidders)} win, work {solution.work}, {1000 * tried.seconds:.1f} CPU ms",
    )
    if auction.answer is not None and tried.compared is not None:
        _say(out, f"recorded answer ({auction.answer.solver}): {tried.compared.text}")


def _proof(solution: Solution) -> str:
    """The part of an answer that is proven."""
    from themis.core.auction.solution import TOLERANCE  # noqa: PLC0415 - late, so that --help is quick

    if solution.exact:
        return "exact"
    if solution.bound - solution.value <= TOLERANCE:
        return "the best allocation, but its kept fractions are not proven"
    return "not proven to be the best allocation"


def _interval(kept: Interval) -> str:
    low, high = f"{kept.low:.4f}", f"{kept.high:.4f}"
    return low if kept.high - kept.low < 1e-6 else f"{low} to {high}"


def _show_lines(out: Console, results: Sequence[SolvedFile]) -> None:
    rows = table(
        "", "auction", "bidders", "rows", "solver", "value", "gap", "kept ±", "exact", "won", "ms",
        "recorded",
    )  # fmt: skip
    rows.padding = (0, 0, 0, 1)  # all on one line of a narrow terminal
    for column in rows.columns:
        column.no_wrap = True
    for number in (3, -1):
        rows.columns[number].justify = "left"
    for item in results:
        problem = item.auction.problem
        size = (
            item.path.name.removesuffix(".json"),
            f"{len(problem.bidders)}",
            f"{sum(len(bidder.rows) for bidder in problem.bidders)}",
        )
        for tried in item.tries:
            rows.add_row(*size, *_cells(tried))
    out.print(rows)
    _show_notes(out, results)


def _show_notes(out: Console, results: Sequence[SolvedFile]) -> None:
    """Errors that do not fit into the table, each once."""
    errors = {(tried.solver, tried.error): item for item in results for tried in item.tries}
    for (name, error), item in errors.items():
        if error:
            _say(out, f"{item.path.name}: {name}: {error}")
    for item in results:
        for tried in item.tries:
            if tried.compared is not None and tried.compared.contradiction:
                _say(out, f"{item.path.name}: {tried.solver}: {tried.compared.text}")


def _cells(tried: Try) -> tuple[str, ...]:
    solution = tried.solution
    if solution is None:
        return (tried.solver, *["-"] * 6, "no answer")
    widths = [kept.high - kept.low for kept in solution.kept.values()]
    return (
        tried.solver,
        f"{solution.value:.4f}",
        _short(solution.bound - solution.value),
        _short(max(widths, default=0.0) / 2),
        "yes" if solution.exact else "no",
        f"{len(solution.winners)}",
        f"{1000 * tried.seconds:.1f}",
        tried.compared.verdict if tried.compared is not None else "-",
    )


def _short(number: float) -> str:
    return f"{number:.1e}" if number else "0"


def _gpus(problem: Problem) -> int:
    return sum(offered.gpus for offered in problem.machines)


# For programs


def as_plain_data(results: Sequence[SolvedFile | Unread]) -> dict[str, Any]:
    """Everything as plain data."""
    return {"files": [_plain_file(item) for item in results]}


def _plain_file(item: SolvedFile | Unread) -> dict[str, Any]:
    if isinstance(item, Unread):
        return {"file": str(item.path), "error": item.error}
    auction = item.auction
    problem, origin = auction.problem, auction.origin
    recorded = auction.answer
    return {
        "file": str(item.path),
        "error": None,
        "machines": len(problem.machines),
        "gpus": _gpus(problem),
        "bidders": len(problem.bidders),
        "rows": sum(len(bidder.rows) for bidder in problem.bidders),
        "origin": origin
        and {
            "policy": origin.policy,
            "cluster": origin.cluster,
            "seed": origin.seed,
            "round": origin.round,
            "at_s": origin.at,
        },
        "recorded": None if recorded is None else _plain_solution(problem, recorded),
        "failure": auction.failure or None,
        "answers": [_plain_try(problem, tried) for tried in item.tries],
        "contradictions": item.contradictions,
    }


def _plain_try(problem: Problem, tried: Try) -> dict[str, Any]:
    if tried.solution is None:
        return {"solver": tried.solver, "error": tried.error}
    compared = tried.compared
    return {
        **_plain_solution(problem, tried.solution),
        "error": None,
        "ms": round(1000 * tried.seconds, 3),
        "compared": compared
        and {
            "same": compared.same,
            "text": compared.text,
            "value_change": compared.value,
            "contradiction": compared.contradiction or None,
        },
    }


def _plain_solution(problem: Problem, solution: Solution) -> dict[str, Any]:
    bidders = {bidder.app: bidder for bidder in problem.bidders}
    winners = []
    for app, win in sorted(solution.winners.items()):
        bidder, kept = bidders.get(app), solution.kept.get(app)
        # A recorded answer may be wrong; show it anyway.
        known = bidder is not None and 0 <= win.row < len(bidder.rows)
        row = bidder.rows[win.row] if bidder is not None and known else None
        winners.append(
            {
                "app": app,
                "row": win.row,
                "gpus": row and row.gpus,
                "rho": row and row.rho,
                "rho_nothing": bidder and bidder.rho_nothing,
                "kept": kept and [kept.low, kept.high],
                "places": [[list(part) for part in chunk] for chunk in win.chunks],
            }
        )
    return {
        "solver": solution.solver,
        "value": solution.value,
        "bound": solution.bound,
        "exact": solution.exact,
        "work": solution.work,
        "winners": winners,
    }
