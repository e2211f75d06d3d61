"""What agents were told and what they wanted, from simulator and service alike, and its replay.

    book = AgentBook()
    Simulation(..., make_agent=book.open)       # or a rehearsal of the service
    replay_agents(book.entries).first_difference

The log of an arbiter has the bids that came and the jobs that started. This one has why: fed to a
fresh agent, what one was told leads to the same bids, starts and stops. `check_talk` holds the two
against each other.
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
    """What a fresh agent is made from."""

    spec: AppSpec
    tuner: str = ""
    sticky: bool = True
    restart_in_bids: bool = True
    learns: bool = False

    def make(self) -> Agent:
        """An agent that knows nothing yet."""
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
    """One event and what came of it."""

    number: int
    terms: AgentTerms
    event: ev.AgentEvent
    commands: tuple[cmd.AgentCommand, ...]

    @property
    def app(self) -> AppId:
        """Whose agent it was."""
        return self.terms.spec.id


class _Noted(Agent):
    """An agent that writes down what it is told and wants."""

    def __init__(self, book: "AgentBook", terms: AgentTerms, tuner: Tuner, **options: Any) -> None:
        super().__init__(terms.spec, tuner, **options)
        self._book = book
        self._terms = terms

    def handle(self, event: ev.AgentEvent) -> list[cmd.AgentCommand]:
        """As any agent, and note it."""
        commands = super().handle(event)
        self._book.note(self._terms, event, commands)
        return commands


@dataclass
class AgentBook:
    """The log of all agents of a run, in the order in which they were told."""

    entries: list[AgentEntry] = field(default_factory=list)

    def open(
        self,
        spec: AppSpec,
        tuner: Tuner,
        *,
        sticky: bool = True,
        restart_in_bids: bool = True,
        in_bids: Callable[[BidContext], BidContext] | None = None,
        profiler: Profiler | None = None,
    ) -> Agent:
        """An agent whose words are noted; it is honest and tunes as its phases tell.

        Raises:
            ConfigError: It has to lie, which nobody could repeat.
        """
        if in_bids is not None:
            raise ConfigError("agents", spec.id, "honest ones, if they are to be replayed")
        terms = AgentTerms(spec, "", sticky, restart_in_bids, profiler is not None)
        return _Noted(
            self, terms, tuner, sticky=sticky, restart_in_bids=restart_in_bids, profiler=profiler
        )

    def note(
        self, terms: AgentTerms, event: ev.AgentEvent, commands: Sequence[cmd.AgentCommand]
    ) -> None:
        """One call of an agent."""
        number = len(self.entries) + 1
        self.entries.append(AgentEntry(number, terms, event, tuple(commands)))


@dataclass(frozen=True, slots=True)
class AgentDifference:
    """Where something first went another way."""

    number: int
    """Of the entry."""
    app: AppId
    text: str


@dataclass(frozen=True, slots=True)
class AgentReplay:
    """How a replay went. It stops at the first difference."""

    entries: int
    bids: int
    starts: int
    stops: int
    first_difference: AgentDifference | None


def replay_agents(entries: Iterable[AgentEntry]) -> AgentReplay:
    """Tell fresh agents the same, and compare what they want."""
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
        except Exception as error:  # whatever it is, the replay has found it
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
            return f"command {place} was {_told(left)}, is {_told(right)}"
    return f"there were {len(old)} commands, now {len(new)}"


def _told(value: object) -> str:
    return f"{type(value).__name__} {dumps(value)[:200]}"


# Against the arbiter's log


_Change = tuple[tuple[Lease, ...], tuple[Lease, ...]]
"""Leases granted and revoked."""


@dataclass
class _Threads:
    """What went on between the arbiter and one app, as one side has it."""

    asked: list[object] = field(default_factory=list)
    bids: list[object] = field(default_factory=list)
    leases: list[_Change] = field(default_factory=list)
    starts: dict[JobId, list[tuple[GpuId, ...]]] = field(default_factory=lambda: defaultdict(list))


def check_talk(
    entries: Iterable[AgentEntry],
    events: Iterable[arbiter_ev.Event],
    commands: Iterable[arbiter_cmd.Command],
) -> str:
    """What the logs of agents and arbiter contradict each other in; empty if in nothing.

    Every offer and every grant that the arbiter told was heard, in its order, and no change of
    leases that it did not tell; every bid that came was made; every process that started was
    wanted, each job's in their order. What becomes of the leases of an app that is over, or of GPUs
    that it gave back, its agent need not hear.
    """
    theirs = _of_agents(entries)
    ours = _of_arbiter(events, commands)
    for app in sorted({*theirs, *ours}):
        mine, its = ours.get(app, _Threads()), theirs.get(app, _Threads())
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


def _of_agents(entries: Iterable[AgentEntry]) -> Mapping[AppId, _Threads]:
    found: dict[AppId, _Threads] = defaultdict(_Threads)
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
) -> Mapping[AppId, _Threads]:
    found: dict[AppId, _Threads] = defaultdict(_Threads)
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
