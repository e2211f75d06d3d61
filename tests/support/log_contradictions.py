"""Compares the log of an arbiter with the log of its agents."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from themis.core.agent import commands as cmd
from themis.core.agent import events as ev
from themis.core.arbiter import commands as arbiter_cmd
from themis.core.arbiter import events as arbiter_ev
from themis.core.model import AppId, GpuId, JobId, Lease
from themis.recording.agent_log import AgentEntry

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
