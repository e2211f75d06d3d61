"""Saving and restoring an arbiter after every event: nobody must notice.

    saver = Saver(policy("themis"), seed=1)
    world = ScriptedWorld(topology, policy("themis"), seed=1, on_event=[saver])

The saver folds what each event changed, compares it with the whole state, and lets arbiters that
were restored from JSON answer the same events beside the saved one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from themis.core.arbiter import Arbiter, events
from themis.core.arbiter.commands import Command
from themis.core.arbiter.saved_state import arbiter_from, fold, parts, take_changed
from themis.core.arbiter.state_parts import Part
from themis.core.policies.base import Policy
from themis.errors import InvariantError
from themis.recording.codec import dumps, loads, part_from

Tamper = Callable[[dict[str, Part]], dict[str, Part]]
"""Changes what was saved, to see whether anybody notices."""


@dataclass(slots=True)
class _Twin:
    arbiter: Arbiter
    born: int
    """After how many events it was restored."""


def through_json(kept: Mapping[str, Part]) -> dict[str, Part]:
    """Parts as a store gives them back."""
    return {key: part_from(key, loads(dumps(part))) for key, part in kept.items()}


class Saver:
    """Follows an arbiter event by event.

    A twin is restored after every event between rounds and answers at least the next event; some
    stay, so that what shows late is seen too.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int,
        tamper: Tamper | None = None,
        stay: int = 3,
        distance: int = 16,
    ) -> None:
        """Begin to follow.

        Args:
            policy: That of the arbiter.
            seed: That of the arbiter.
            tamper: Done to the parts before a twin is restored from them.
            stay: How many twins stay besides the newest.
            distance: Of those that stay, in events.
        """
        self._policy = policy
        self._seed = seed
        self._tamper = tamper
        self._stay = stay
        self._distance = distance
        self._twins: list[_Twin] = []
        self.kept: dict[str, Part] | None = None
        """What a store would hold now."""
        self.events = 0
        self.restored = 0

    def __call__(self, arbiter: Arbiter, event: events.Event, commands: Sequence[Command]) -> None:
        """Take in one event and what came of it.

        Raises:
            InvariantError: A twin answers otherwise, or the changes do not add up.
        """
        self.events += 1
        for twin in self._twins:
            _compare(twin, event, commands)
        whole = parts(arbiter)
        changed = take_changed(arbiter)
        self.kept = whole if self.kept is None else fold(self.kept, changed)
        if list(self.kept.items()) != list(whole.items()):
            raise InvariantError(f"{type(event).__name__} changed {_unlike(self.kept, whole)}")
        self._twins = [twin for twin in self._twins if twin.born % self._distance == 0]
        if not arbiter.round_open:
            self._twins.append(_Twin(self.restore(), self.events))
            self._twins = self._twins[-self._stay - 1 :]

    def restore(self) -> Arbiter:
        """An arbiter from what a store would hold now."""
        saved = through_json(self.kept or {})
        if self._tamper is not None:
            saved = self._tamper(saved)
        self.restored += 1
        return arbiter_from(saved, self._policy, seed=self._seed)


def _compare(twin: _Twin, event: events.Event, commands: Sequence[Command]) -> None:
    answers = twin.arbiter.handle(event)
    if answers != commands:
        unlike = [pair for pair in zip(commands, answers, strict=False) if pair[0] != pair[1]]
        first = unlike[0] if unlike else (len(commands), len(answers))
        raise InvariantError(
            f"restored after {twin.born} events it answers {event} otherwise", first
        )


def _unlike(kept: Mapping[str, Part], whole: Mapping[str, Part]) -> str:
    keys = [key for key in {**whole, **kept} if kept.get(key) != whole.get(key)]
    if not keys:
        return "the order of parts"
    return f"{keys[0]} to {whole.get(keys[0])} and left {kept.get(keys[0])} in the store"
