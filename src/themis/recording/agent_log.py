"""The log of agents: their events and commands, in simulator and service alike, and its replay.

    log = AgentLog()
    Simulation(..., make_agent=log.make_agent)       # or a rehearsal of the service
    replay_agents(log.entries).first_difference

The log of an arbiter has the bids that came and the jobs that started. This one says why: a fresh
agent that gets the same events makes the same bids, starts and stops.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from themis.core.agent import commands as cmd
from themis.core.agent import events as ev
from themis.core.agent.agent import Agent
from themis.core.agent.bidder import BidContext
from themis.core.agent.profiler import Profiler
from themis.core.model import AppId, AppSpec
from themis.core.tuners import Tuner, tuner_for
from themis.errors import ConfigError
from themis.recording.codec import dumps


@dataclass(frozen=True, slots=True)
class AgentTerms:
    """Everything that a fresh agent is made from."""

    spec: AppSpec
    tuner: str = ""
    sticky: bool = True
    restart_in_bids: bool = True
    learns: bool = False

    def make(self) -> Agent:
        """An agent before its first event."""
        return Agent(
            self.spec,
            tuner_for(self.spec, self.tuner),
            sticky=self.sticky,
            restart_in_bids=self.restart_in_bids,
            profiler=Profiler(self.spec.jobs, estimated=self.spec.estimated)
            if self.learns
            else None,
        )


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """One event and the commands it led to."""

    number: int
    terms: AgentTerms
    event: ev.AgentEvent
    commands: tuple[cmd.AgentCommand, ...]

    @property
    def app(self) -> AppId:
        """The app of the agent."""
        return self.terms.spec.id


class _LoggedAgent(Agent):
    """An agent that logs its events and commands."""

    def __init__(self, log: "AgentLog", terms: AgentTerms, tuner: Tuner, **options: Any) -> None:
        super().__init__(terms.spec, tuner, **options)
        self._log = log
        self._terms = terms

    def handle(self, event: ev.AgentEvent) -> list[cmd.AgentCommand]:
        """As any agent, and log it."""
        commands = super().handle(event)
        self._log.add(self._terms, event, commands)
        return commands


@dataclass
class AgentLog:
    """The log of all agents of a run, in the order of their events."""

    entries: list[AgentEntry] = field(default_factory=list)

    def make_agent(
        self,
        spec: AppSpec,
        tuner: Tuner,
        *,
        sticky: bool = True,
        restart_in_bids: bool = True,
        in_bids: Callable[[BidContext], BidContext] | None = None,
        profiler: Profiler | None = None,
    ) -> Agent:
        """An honest agent that is logged; its phases say how it tunes.

        Raises:
            ConfigError: It is to lie: a replay could not repeat that.
        """
        if in_bids is not None:
            raise ConfigError("agents", spec.id, "honest ones, if they are to be replayed")
        terms = AgentTerms(spec, "", sticky, restart_in_bids, profiler is not None)
        return _LoggedAgent(
            self, terms, tuner, sticky=sticky, restart_in_bids=restart_in_bids, profiler=profiler
        )

    def add(
        self, terms: AgentTerms, event: ev.AgentEvent, commands: Sequence[cmd.AgentCommand]
    ) -> None:
        """Log one call of an agent."""
        number = len(self.entries) + 1
        self.entries.append(AgentEntry(number, terms, event, tuple(commands)))


@dataclass(frozen=True, slots=True)
class AgentDifference:
    """The first entry at which an agent answered otherwise."""

    number: int
    """The entry's."""
    app: AppId
    text: str


@dataclass(frozen=True, slots=True)
class AgentReplay:
    """The result of a replay, which stops at the first difference."""

    entries: int
    bids: int
    starts: int
    stops: int
    first_difference: AgentDifference | None


def replay_agents(entries: Iterable[AgentEntry]) -> AgentReplay:
    """Give fresh agents the same events, and compare their commands."""
    agents: dict[AppId, Agent] = {}
    seen: Counter[type] = Counter()
    count = 0

    def result(difference: AgentDifference | None) -> AgentReplay:
        bids, starts, stops = (seen[kind] for kind in (cmd.SendBid, cmd.StartJob, cmd.StopJob))
        return AgentReplay(count, bids, starts, stops, difference)

    for entry in entries:
        count += 1
        agent = agents.get(entry.app)
        if agent is None:
            agent = agents[entry.app] = entry.terms.make()
        try:
            got = tuple(agent.handle(entry.event))
        except Exception as error:  # any failure is a difference
            text = f"the agent fails at {type(entry.event).__name__}: {error}"
            return result(AgentDifference(entry.number, entry.app, text))
        if got != entry.commands:
            text = f"at {type(entry.event).__name__}: {_differing(entry.commands, got)}"
            return result(AgentDifference(entry.number, entry.app, text))
        seen.update(map(type, got))
    return result(None)


def _differing(old: Sequence[cmd.AgentCommand], new: Sequence[cmd.AgentCommand]) -> str:
    for place, (left, right) in enumerate(zip(old, new, strict=False), start=1):
        if left != right:
            return f"command {place} was {_shown(left)}, is {_shown(right)}"
    return f"there were {len(old)} commands, now {len(new)}"


def _shown(value: object) -> str:
    return f"{type(value).__name__} {dumps(value)[:200]}"
