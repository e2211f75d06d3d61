"""The arbiter's whole state as parts: what a store keeps, and what it is restored from.

    kept = parts(arbiter)                           # once
    for event in events:
        commands = arbiter.handle(event)
        kept = fold(kept, take_changed(arbiter))    # what this event changed, and no more
    arbiter = arbiter_from(kept, policy("themis"), seed=1)
    arbiter.handle(ServiceRestarted(at=now))

Between rounds the restored arbiter answers every later event as the saved one would. Of an open
round only that it is due is kept: offers are not binding, so it is forgotten and opens anew. A
policy must keep nothing between rounds, for it is not saved.
"""

from collections.abc import Mapping

from themis.core.arbiter.arbiter import Arbiter
from themis.core.arbiter.ledger_check import check_ledger
from themis.core.arbiter.state_parts import Part, Shelf, place_of
from themis.core.policies.base import Policy


def parts(arbiter: Arbiter) -> dict[str, Part]:
    """Everything that decides later commands, by key, in a stable order."""
    return fold({}, dict(arbiter.parts()))


def take_changed(arbiter: Arbiter) -> dict[str, Part | None]:
    """Parts that may have changed since they were last taken; None for one that is gone.

    An arbiter that was restored has changed nothing yet; of a new one take all `parts` first.
    """
    return dict(arbiter.parts(changed=True))


def fold(before: Mapping[str, Part], changed: Mapping[str, Part | None]) -> dict[str, Part]:
    """The parts after a change, in their order."""
    merged: dict[str, Part | None] = {**before, **changed}
    left = {key: part for key, part in merged.items() if part is not None}
    return {key: left[key] for key in sorted(left, key=place_of)}


def arbiter_from(
    kept: Mapping[str, Part], policy: Policy, *, seed: int, token_floor: int = 0
) -> Arbiter:
    """The arbiter that was written down in these parts.

    Args:
        kept: All its parts, in any order.
        policy: The same policy that it had.
        seed: The same seed that it had.
        token_floor: Every token to come is above this one.

    Raises:
        RefusedError: A part is missing or is not one; names its key.
        InvariantError: The leases contradict each other.
    """
    arbiter = Arbiter.restored(Shelf(kept), policy, seed=seed)
    arbiter.ledger.raise_tokens(token_floor)
    take_changed(arbiter)
    # One that was saved before shares were kept up begins with them now.
    arbiter.world.keep_shares(max(0.0, arbiter.now))
    check_ledger(arbiter.ledger)
    return arbiter
