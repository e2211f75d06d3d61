"""Auctions of a run kept as files: of a simulation while it goes on, or out of an event log.

    with new_folder(Path("auctions")) as folder:
        kept = record_run(prepare(config), Recorder(folder, Slowest(10)), time.process_time)
        [item.name for item in kept]        # auction-000017.json, ...

What a file says follows from the run alone; what the solver took on this machine is only told.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.auction import Problem, Solution, Solver, solver
from themis.core.policies import policy_options
from themis.recording.atomic_files import write_whole
from themis.recording.auction_files import (
    AuctionFile,
    AuctionOrigin,
    auction_text,
    machines_not_offered,
)
from themis.recording.event_log import EventLogReader
from themis.sim.auction_selection import Everything, Selection
from themis.sim.config import PreparedRun
from themis.sim.driver import Simulation


@dataclass(frozen=True, slots=True)
class Kept:
    """One auction that was kept, in a few numbers."""

    name: str
    round: int
    at: float
    machines: int
    gpus: int
    bidders: int
    rows: int
    solver: str
    work: int
    exact: bool
    value: float | None
    """None if the solver failed."""
    seconds: float | None
    """CPU time of the solver; None out of a log, which does not say."""


class Recorder:
    """Writes auctions into a folder as they come, and takes out again what is not wanted."""

    def __init__(
        self,
        folder: Path,
        selection: Selection | None = None,
        *,
        every: int = 1,
        min_bidders: int = 0,
    ) -> None:
        self._folder = folder
        self._selection = selection or Everything()
        self._every = every
        self._min_bidders = min_bidders
        self._kept: dict[int, Kept] = {}
        self._names: set[str] = set()
        self.seen = 0
        """Auctions that came by, kept or not."""
        self._fitting = 0

    def take(self, auction: AuctionFile, seconds: float | None) -> None:
        """One more auction; without a time its cost is the work that the solver counted."""
        self.seen += 1
        if len(auction.problem.bidders) < self._min_bidders:
            return
        self._fitting += 1
        if (self._fitting - 1) % self._every:
            return
        number = self._fitting
        work = 0 if auction.answer is None else auction.answer.work
        thrown = self._selection.offer(number, work if seconds is None else seconds)
        if number not in thrown:
            kept = _kept(self._name(auction), auction, seconds)
            write_whole(self._folder / kept.name, auction_text(auction).encode("ascii"))
            self._kept[number] = kept
        self._throw_away(thrown)

    def finish(self) -> tuple[Kept, ...]:
        """No more will come; what is in the folder now, in order."""
        self._throw_away(self._selection.settle())
        return tuple(self._kept.values())

    def _name(self, auction: AuctionFile) -> str:
        number = 0 if auction.origin is None else auction.origin.round
        name, count = f"auction-{number:06d}", 1
        while name in self._names:  # a policy may solve more than once in a round
            count += 1
            name = f"auction-{number:06d}-{count}"
        self._names.add(name)
        return f"{name}.json"

    def _throw_away(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            gone = self._kept.pop(number, None)
            if gone is not None:
                (self._folder / gone.name).unlink()


def _kept(name: str, auction: AuctionFile, seconds: float | None) -> Kept:
    problem, answer, origin = auction.problem, auction.answer, auction.origin
    return Kept(
        name=name,
        round=origin.round if origin else 0,
        at=origin.at if origin else 0.0,
        machines=len(problem.machines),
        gpus=sum(offered.gpus for offered in problem.machines),
        bidders=len(problem.bidders),
        rows=sum(len(bidder.rows) for bidder in problem.bidders),
        solver=answer.solver if answer else "",
        work=answer.work if answer else 0,
        exact=answer.exact if answer else False,
        value=answer.value if answer else None,
        seconds=seconds,
    )


class _Pairing:
    """Brings questions to the solver and its answers together."""

    def __init__(self, recorder: Recorder, about: dict[str, Any]) -> None:
        self._recorder = recorder
        self._about = about
        self._asked: tuple[float, cmd.Solve] | None = None
        self.seconds: float | None = None
        """What the last answer took, where somebody looks at a clock."""

    def handled(self, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        """One call of the arbiter."""
        # First: the answer to one question may lead to the next.
        match event:
            case ev.Solved(round=number, solution=solution):
                self._answered(number, solution)
            case ev.SolveFailed(round=number, reason=reason):
                self._answered(number, None, reason)
            case _:
                pass
        for command in commands:
            if isinstance(command, cmd.Solve):
                self.finish()
                self._asked = (event.at, command)

    def finish(self) -> None:
        """No answer will come to a question that is still open."""
        if self._asked is not None:
            self._answered(self._asked[1].round, None, "no answer in time")

    def _answered(self, number: int, answer: Solution | None, failure: str = "") -> None:
        if self._asked is None or self._asked[1].round != number:
            return
        at, asked = self._asked
        self._asked = None
        auction = AuctionFile(
            problem=asked.problem,
            not_offered=machines_not_offered(asked.problem),
            budget=asked.work,
            origin=AuctionOrigin(asked.round, at, **self._about),
            answer=answer,
            failure=failure,
        )
        self._recorder.take(auction, self.seconds)


class _Timed:
    """A solver under a stop-watch."""

    def __init__(self, inner: Solver, clock: Callable[[], float], told: _Pairing) -> None:
        self._inner = inner
        self._clock = clock
        self._told = told

    @property
    def name(self) -> str:
        """The solver's own."""
        return self._inner.name

    def solve(self, problem: Problem, budget: int | None = None) -> Solution:
        """Let it solve, and note what it took, also when it fails."""
        started = self._clock()
        try:
            return self._inner.solve(problem, budget)
        finally:
            self._told.seconds = self._clock() - started


def record_run(
    prepared: PreparedRun,
    recorder: Recorder,
    clock: Callable[[], float],
    progress: Callable[[int], None] | None = None,
) -> tuple[Kept, ...]:
    """Simulate a run and keep its auctions.

    Args:
        prepared: The run.
        recorder: What is kept, and where.
        clock: Gives CPU seconds.
        progress: Called now and then with the apps that have finished.
    """
    config = prepared.config
    pairing = _Pairing(
        recorder,
        {
            "policy": config.policy,
            "seed": config.seed,
            "cluster": prepared.topology.name,
            "options": {**policy_options(type(prepared.policy)), **prepared.policy_options},
            "settings": prepared.settings,
            "run": asdict(config),
        },
    )
    Simulation(
        prepared.topology,
        prepared.workload,
        prepared.policy,
        prepared.settings,
        seed=config.seed,
        costs=prepared.costs,
        faults=prepared.faults,
        solve_with=_Timed(solver(prepared.solver), clock, pairing),
        observers=[pairing],
        on_progress=None if progress is None else lambda _, done: progress(done),
    ).run()
    pairing.finish()
    return recorder.finish()


def record_log(
    path: Path,
    recorder: Recorder,
    progress: Callable[[int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> tuple[Kept, ...]:
    """Keep the auctions in an event log; it holds them whole, so nothing is computed again.

    Args:
        path: The log. A last line that is cut off, as a crash leaves it, is passed over.
        recorder: What is kept, and where.
        progress: Called now and then with the bytes that were read.
        warn: Called with a word on a line that was passed over.

    Raises:
        ConfigError: The file cannot be read.
        CorruptLogError: It is not a log, or damaged; names the line.
    """
    with EventLogReader(path, forgive_cut=True) as log:
        header = log.header
        about = {
            "policy": header.policy,
            "seed": header.seed,
            "cluster": header.topology.name,
            "options": dict(header.options),
            "settings": header.settings,
        }
        pairing = _Pairing(recorder, about)
        for entry in log:
            pairing.handled(entry.event, entry.commands or ())
            if progress is not None:
                progress(log.bytes_read)
        if log.cut is not None and warn is not None:
            warn(f"{path}:{log.cut}: the last line is cut off; all lines before it are taken")
    pairing.finish()
    return recorder.finish()
