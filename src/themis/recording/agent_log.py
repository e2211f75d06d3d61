"""The log of agents: their events and commands, in simulator and service alike, and its replay.

    log = AgentLog()
    Simulation(..., make_agent=log.make_agent)       # or a rehearsal of the service
    replay_agents(log.entries).first_difference

The log of an arbiter has the bids that came and the jobs that started. This one says why: a fresh
agent that gets the same events makes the same bids, starts and stops. `contradiction` compares the
two logs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from themis.core.agent import commands as cmd
from themis.core.agent import events as ev
from themis.core.agent.agent import Agent
from themis.core.agent.bidder import BidContext
from themis.core.agent.profiler import Profiler
from themis.core.arbiter import commands as arbiter_cmd
from themis.core.arbiter import events as arbiter_ev
from themis.core.model import AppId, AppSpec, GpuId, JobId, Lease
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


# Against the arbiter's log


_Change = tuple[tuple[Lease, ...], tuple[Lease, ...]]
"""Leases granted and revoked."""


@dataclass
class _Exchange:
    """The messages between the arbiter and one app, as one of them logged them."""

    asked: list[object] = field(default_factory=list)
    bids: list[object] = field(default_factory=list)
    leases: list[_Change] = field(default_factory=list)
    starts: dict[JobId, list[tuple[GpuId, ...]]] = field(default_factory=lambda: defaultdict(list))


def contradiction(
    entries: Iterable[AgentEntry],
    events: Iterable[arbiter_ev.Event],
    commands: Iterable[arbiter_cmd.Command],
) -> str:
    """The first contradiction between the logs of agents and arbiter, or an empty text.

    The agent got every offer and every grant that the arbiter sent, in their order, and no other
    change of leases; it made every bid that the arbiter got, and asked for every process that
    started, each job's in their order. It need not hear of the leases of an app that ended, or of
    GPUs that it gave back.
    """
    theirs = _of_agents(entries)
    ours = _of_arbiter(events, commands)
    for app in sorted({*theirs, *ours}):
        mine, its = ours.get(app, _Exchange()), theirs.get(app, _Exchange())
        text = (
            _unequal("offers", mine.asked, its.asked)
            or _unequal("bids", mine.bids, its.bids)
            or _unequal("grants", _granting(mine.leases), _granting(its.leases))
        )
        if not text and not _within(its.leases, mine.leases):
            text = "leases changed that the arbiter did not change, or in another order"
        for job, began in mine.starts.items():
            if not text and not _within(began, its.starts.get(job, ())):
                text = f"a start of {job} was not wanted, or in another order"
        if text:
            return f"{app}: {text}"
    return ""


def _unequal(what: str, told: Sequence[object], heard: Sequence[object]) -> str:
    if told == heard:
        return ""
    pairs = enumerate(zip(told, heard, strict=False), start=1)
    shorter = min(len(told), len(heard)) + 1
    place = next((place for place, pair in pairs if pair[0] != pair[1]), shorter)
    return f"{what}, number {place} of {len(told)} differs"


def _granting(leases: Sequence[_Change]) -> list[_Change]:
    return [change for change in leases if change[0]]


def _within(some: Iterable[object], every: Iterable[object]) -> bool:
    """Whether these come among the others, in their order."""
    rest = iter(every)
    return all(any(item == other for other in rest) for item in some)


def _of_agents(entries: Iterable[AgentEntry]) -> Mapping[AppId, _Exchange]:
    found: dict[AppId, _Exchange] = defaultdict(_Exchange)
    for entry in entries:
        threads = found[entry.app]
        match entry.event:
            case ev.Asked(offer=offer):
                threads.asked.append(offer)
            case ev.LeasesChanged(granted=granted, revoked=revoked):
                threads.leases.append((granted, revoked))
            case _:
                pass
        for command in entry.commands:
            if isinstance(command, cmd.SendBid):
                threads.bids.append((command.round, command.bid))
            elif isinstance(command, cmd.StartJob):
                threads.starts[command.job].append(command.gpus)
    return found


def _of_arbiter(
    events: Iterable[arbiter_ev.Event], commands: Iterable[arbiter_cmd.Command]
) -> Mapping[AppId, _Exchange]:
    found: dict[AppId, _Exchange] = defaultdict(_Exchange)
    for command in commands:
        match command:
            case arbiter_cmd.Ask(app=app, offer=offer):
                found[app].asked.append(offer)
            case arbiter_cmd.Assign(app=app, granted=granted, revoked=revoked):
                if granted or revoked:
                    found[app].leases.append((granted, revoked))
            case arbiter_cmd.End(app=app, leases=leases):
                found[app].leases.append(((), leases))
            case _:
                pass
    for event in events:
        if isinstance(event, arbiter_ev.BidReceived):
            found[event.app].bids.append((event.round, event.bid))
        elif isinstance(event, arbiter_ev.JobStarted):
            found[event.app].starts[event.job].append(event.gpus)
    return found
