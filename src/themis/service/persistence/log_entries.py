"""Entries of the event log: the events that the arbiter took, and its commands.

    entry.body == body_of(events, commands)
    events_in(loads(entry.body)), commands_in(loads(entry.body))

A round asks hundreds of apps about the same GPUs. Asks in a row about the same offer are written as
one, or the log would hold little else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from themis.core.arbiter.commands import Ask, Command, Solve
from themis.core.arbiter.events import Event
from themis.core.model import AppId, GpuId, Offer
from themis.core.steward.commands import StewardCommand
from themis.recording.codec import command_from, decode, dumps, event_from
from themis.recording.packed_auctions import PackedProblem, pack, unpack
from themis.recording.tags import TAG

ASKS = "asks"
"""The tag of many questions in one."""
AUCTION = "packed-solve"
"""The tag of an auction in few words."""


@dataclass(frozen=True, slots=True)
class _Asks:
    round: int
    gpus: tuple[GpuId, ...]
    deadline: float
    apps: tuple[tuple[AppId, tuple[GpuId, ...], tuple[GpuId, ...]], ...]
    """Each with the GPUs that it keeps, and those of the offer that it holds."""


@dataclass(frozen=True, slots=True)
class _AuctionEntry:
    round: int
    problem: PackedProblem
    work: int
    deadline: float


def body_of(events: Sequence[Event], commands: Sequence[StewardCommand]) -> str:
    """The text of an entry."""
    return dumps({"events": events, "commands": list(_gathered(commands))})


def events_in(body: Any) -> list[Event]:
    """The events of an entry.

    Raises:
        RefusedError: One of them is none.
        KeyError, TypeError: It is not the body of an entry.
    """
    return [event_from(item) for item in body["events"]]


def commands_in(body: Any) -> tuple[Command, ...]:
    """The arbiter's commands in an entry; the steward's own have no tag.

    Raises:
        RefusedError: One of them is none.
        KeyError, TypeError: It is not the body of an entry.
    """
    return tuple(
        command for item in body["commands"] if TAG in item for command in _commands_from(item)
    )


def _gathered(commands: Sequence[StewardCommand]) -> Iterator[object]:
    """Asks in a row about the same offer become one; the order stays."""
    together: list[Ask] = []
    for command in commands:
        if isinstance(command, Ask) and (not together or _same(together[0], command)):
            together.append(command)
            continue
        yield from _written(together)
        together = [command] if isinstance(command, Ask) else []
        if isinstance(command, Solve):
            packed = pack(command.problem)
            auction = _AuctionEntry(command.round, packed, command.work, command.deadline)
            yield {TAG: AUCTION, "of": auction}
        elif not together:
            yield command
    yield from _written(together)


def _same(one: Ask, other: Ask) -> bool:
    return (one.offer.round, one.deadline, one.offer.gpus) == (
        other.offer.round,
        other.deadline,
        other.offer.gpus,
    )


def _written(asks: list[Ask]) -> Iterator[object]:
    if len(asks) < 2:
        yield from asks
        return
    first = asks[0]
    yield {
        TAG: ASKS,
        "round": first.offer.round,
        "gpus": first.offer.gpus,
        "deadline": first.deadline,
        "apps": [(ask.app, ask.offer.kept, ask.offer.expiring) for ask in asks],
    }


def _commands_from(item: Any) -> Iterator[Command]:
    if item[TAG] == AUCTION:
        held = decode(_AuctionEntry, item["of"])
        yield Solve(held.round, unpack(held.problem), held.work, held.deadline)
        return
    if item[TAG] != ASKS:
        yield command_from(item)
        return
    asks = decode(_Asks, {key: value for key, value in item.items() if key != TAG})
    for app, kept, expiring in asks.apps:
        yield Ask(app, Offer(asks.round, asks.gpus, kept, expiring), asks.deadline)
