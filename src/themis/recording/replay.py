"""Replay: the events of a log, fed to a fresh arbiter, must lead to the commands in the log.

    result = replay("run/events.jsonl")
    if result.first_difference is not None:
        print(result.first_difference.text)

Solver answers are events, so a replay runs no solver; `resolve=True` solves every auction again
and compares the values of the solutions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from themis.core.arbiter import Arbiter
from themis.core.arbiter.commands import Command, Solve
from themis.core.arbiter.events import Event, Solved
from themis.core.auction.solution import TOLERANCE, check_solution
from themis.core.auction.solvers.registry import solver
from themis.core.policies.base import Policy
from themis.core.policies.registry import POLICIES
from themis.core.policies.registry import policy as policy_by_name
from themis.errors import ConfigError, InvariantError, RefusedError
from themis.recording.codec import command_from, dumps, loads
from themis.recording.event_log import EventLogReader, LogHeader
from themis.recording.tags import TAG_OF
from themis.recording.yaml_documents import shown, told


@dataclass(frozen=True, slots=True)
class Difference:
    """The first entry whose commands differ; they are None where the arbiter failed."""

    line: int
    event: Event
    expected: tuple[Command, ...] | None
    """As logged."""
    got: tuple[Command, ...] | None
    text: str
    """The first command and field that differ."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay, which stops at the first difference."""

    events: int
    """The events replayed, with the one that differs."""
    first_difference: Difference | None
    finished: bool
    """Whether the log ends with a finished run; False after a difference."""
    resolved: int = 0
    """Auctions that were solved again."""
    failure: str = ""
    """The failure of the arbiter, if it failed in the log and failed again."""

    @property
    def same(self) -> bool:
        """Whether the commands were those of the log."""
        return self.first_difference is None


def replay(
    path: Path | str, *, policy: Policy | None = None, resolve: bool = False
) -> ReplayResult:
    """Feed a log to a fresh arbiter and compare its commands.

    Args:
        path: The log.
        policy: Replaces the one that the header names. Needed for policies from outside Themis: a
            log is data, and reading it imports no code.
        resolve: Also solve every auction again, with the solver that the log names.

    Raises:
        ConfigError: The file cannot be read, or its policy or solver is missing.
        CorruptLogError: It is not a log, or damaged; names the line.
    """
    with EventLogReader(path) as log:
        chosen = policy or _policy_of(log.header, f"{log.path}:1")
        header = log.header
        arbiter = Arbiter(header.topology, chosen, header.settings, seed=header.seed)
        run = Stepper(arbiter, log.path, resolve=resolve)
        for entry in log:
            difference = run.step(entry.line, (entry.event,), entry.commands)
            if difference is not None:
                return ReplayResult(run.events, difference, False, run.resolved, run.failure)
        return ReplayResult(run.events, None, log.finished, run.resolved, run.failure)


def _policy_of(header: LogHeader, where: str) -> Policy:
    if ":" in header.policy:
        allowed = f"one of Themis' own ({', '.join(sorted(POLICIES))}), or one given to the replay"
        raise ConfigError("policy", shown(header.policy), allowed, where)
    try:
        return policy_by_name(header.policy, **header.options)
    except ConfigError as error:
        raise ConfigError(error.key, error.given, error.allowed, where) from None
    except (TypeError, ValueError) as error:
        given = shown(dumps(header.options))
        raise ConfigError(
            "options", given, f"options of {header.policy} ({error})", where
        ) from None


class Stepper:
    """A replay in progress, which gets one entry of a log after another."""

    def __init__(self, arbiter: Arbiter, file: str, *, resolve: bool) -> None:
        self.arbiter = arbiter
        """May be replaced between entries."""
        self._file = file
        self._resolve = resolve
        self._asked: Solve | None = None
        self.events = 0
        self.resolved = 0
        self.failure = ""

    def step(
        self,
        line: int,
        events: Sequence[Event],
        expected: tuple[Command, ...] | None,
        view: Callable[[tuple[Command, ...]], tuple[Command, ...]] = tuple,
    ) -> Difference | None:
        """Replay one entry; returns the difference, if any.

        Args:
            line: The line of the entry, for messages.
            events: The events of the entry.
            expected: The logged commands; None where the arbiter failed.
            view: Selects the commands that the log has, where it does not have all.
        """
        self.events += len(events)
        if self._resolve:
            for event in events:
                text = self._solve_again(line, event)
                if text:
                    return Difference(line, event, expected, expected, text)
        failure = ""
        got: tuple[Command, ...] | None = None
        try:
            got = tuple(command for event in events for command in self.arbiter.handle(event))
        except Exception as error:  # any failure is a difference
            failure = f"{type(error).__name__}: {error}"
        for command in got or ():
            if isinstance(command, Solve):
                self._asked = command
        got = None if got is None else view(got)
        text = _compare(expected, got, failure)
        if text:
            return Difference(line, events[0], expected, got, text)
        self.failure = self.failure or failure
        return None

    def _solve_again(self, line: int, event: Event) -> str:
        asked = self._asked
        if not isinstance(event, Solved) or asked is None or asked.round != event.round:
            return ""
        self._asked = None
        logged = event.solution
        try:
            named = solver(logged.solver)
        except ConfigError as error:
            where = f"{self._file}:{line}"
            raise ConfigError(error.key, error.given, error.allowed, where) from None
        try:
            check_solution(asked.problem, logged)
        except InvariantError as error:
            return f"the logged solution of round {event.round} cannot be: {error.what}"
        value = named.solve(asked.problem, asked.work).value
        self.resolved += 1
        if abs(value - logged.value) <= max(TOLERANCE, 1e-9 * abs(logged.value)):
            return ""
        return (
            f"solution of round {event.round} by {logged.solver}: value "
            f"was {logged.value!r}, is {value!r}"
        )


# Comparing


def _compare(
    expected: tuple[Command, ...] | None, got: tuple[Command, ...] | None, failure: str
) -> str:
    """The first difference, or an empty text."""
    if got is None:
        return "" if expected is None else f"the arbiter fails: {failure}"
    if expected is None:
        return "the arbiter failed when the log was written, and does not now"
    if got == expected:
        return ""
    try:
        # As they would be read from a new log: a policy may give [0] where (0,) is meant.
        seen = tuple(command_from(loads(dumps(command))) for command in got)
    except (InvariantError, RefusedError) as error:
        return f"a command cannot be logged: {error}"
    return "" if seen == expected else _first_difference(expected, seen)


def _first_difference(expected: Sequence[Command], got: Sequence[Command]) -> str:
    for number, (old, new) in enumerate(zip(expected, got, strict=False), start=1):
        if type(old) is not type(new):
            return f"command {number} was {TAG_OF[type(old)]}, is {TAG_OF[type(new)]}"
        if old != new:
            found = _differing(loads(dumps(old)), loads(dumps(new)), "")
            return f"command {number} ({TAG_OF[type(old)]}): {found}"
    number = min(len(expected), len(got))
    if len(expected) > number:
        return f"command {number + 1} was {TAG_OF[type(expected[number])]}, is missing"
    return f"command {number + 1} is {TAG_OF[type(got[number])]}, there was none"


def _differing(old: object, new: object, path: str) -> str:
    """The first place where plain data differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*old, *(key for key in new if key not in old)):
            below = f"{path}.{key}" if path else str(key)
            if key not in new:
                return f"{below} is missing"
            if key not in old:
                return f"{below} is new"
            if old[key] != new[key]:
                return _differing(old[key], new[key], below)
    if isinstance(old, list) and isinstance(new, list):
        for index, (left, right) in enumerate(zip(old, new, strict=False)):
            if left != right:
                return _differing(left, right, f"{path}[{index}]")
        return f"{path} had {len(old)} entries, has {len(new)}"
    return f"{path} was {told(old)}, is {told(new)}"
