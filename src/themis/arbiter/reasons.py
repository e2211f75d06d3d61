"""Why each app stands where it stands after a round: exactly one reason each."""

from themis.arbiter.conversation import OpenRound
from themis.arbiter.record import AppLine
from themis.arbiter.world import World
from themis.model.reasons import Reason
from themis.policies.base import AppView, Notes, Plan


def explain_round(current: OpenRound, plan: Plan, world: World) -> tuple[AppLine, ...]:
    """One line for every app that was active when the round opened and is not over."""
    lines = []
    for view in current.view.apps:
        state = world.apps.get(view.app)
        if state is None or state.outcome:
            continue
        held = len(world.ledger.holdings(view.app))
        granted = sum(len(item.gpus) for item in plan.allotments if item.app == view.app)
        reason = _reason(view, held, current, plan.notes)
        reason = state.suspension or reason
        lines.append(AppLine(view.app, held, view.demand, granted, reason))
    return tuple(lines)


def _reason(view: AppView, held: int, current: OpenRound, notes: Notes) -> Reason:
    if view.demand == 0:
        return Reason.WAITING_PHASE
    if held >= view.demand:
        return Reason.SERVED
    if held > 0:
        return Reason.PARTLY_SERVED
    if current.failed:
        return Reason.ROUND_FAILED
    quota = current.view.quotas.get(view.owner)
    if quota is not None and quota < view.min_gang:
        return Reason.QUOTA_REACHED
    if not _matching(view, current):
        return Reason.NO_FREE_GPUS
    if view.app in notes.paid:
        return Reason.HIDDEN_PAYMENT
    if view.app in notes.declined:
        return Reason.PLACEMENT_TOO_SLOW
    standing = {item.app: item for item in notes.standings}.get(view.app)
    if standing is not None:
        return Reason.OUTBID if standing.invited else Reason.NOT_IN_AUCTION
    return Reason.NO_FREE_GPUS


def _matching(view: AppView, current: OpenRound) -> bool:
    if view.machines is None:
        return True
    seats = current.view.topology.seats
    return any(seats[gpu].machine in view.machines for gpu in current.view.offer)
