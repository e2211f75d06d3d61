"""Why each app stands where it stands after a round: exactly one reason each."""

from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.cluster_state import World
from themis.core.arbiter.records import AppInRound
from themis.core.arbiter.round_session import OpenRound
from themis.core.model import AppId, OwnerId
from themis.core.model.apps import Constraint
from themis.core.model.reasons import Reason
from themis.core.policies.base import AppStanding, AppView, Notes, Plan


def explain_round(
    current: OpenRound, plan: Plan, world: World, *, with_rho: bool
) -> tuple[AppInRound, ...]:
    """One line for every app that is not over, in the order of names.

    Args:
        current: The round that is settled.
        plan: What it came to.
        world: The world after it.
        with_rho: Whether progress was measured, so that a rho means something.
    """
    granted: dict[AppId, int] = {}
    for item in plan.allotments:
        granted[item.app] = granted.get(item.app, 0) + len(item.gpus)
    ranked = {item.app: item for item in plan.notes.standings}
    standings = ranked or (_standings(current) if with_rho else {})
    lines = []
    seen = {view.app: view for view in current.view.apps}
    for app, state in sorted(world.apps.items()):
        view = seen.get(app)
        if state.outcome or (view is None and not state.suspended):
            continue
        held = len(world.ledger.holdings(app))
        demand = state.demand
        if state.suspended:
            reason = state.suspension
        elif 0 < demand <= held:
            reason = Reason.SERVED
        elif view is not None:
            reason = _reason(view, state, held, current, plan.notes, ranked.get(app), world)
        else:
            reason = None
        reason = reason or Reason.PENDING_EVALUATION
        standing = standings.get(app)
        line = AppInRound(
            app,
            held,
            demand,
            granted.get(app, 0),
            reason,
            standing.rho if standing else None,
            standing.rank if standing else None,
            standing is not None and standing.invited,
            state.audit.alarms > 0,
        )
        state.explain(reason)
        lines.append(line)
    return tuple(lines)


def _standings(current: OpenRound) -> dict[AppId, AppStanding]:
    ranked = sorted(current.view.apps, key=lambda view: (-view.rho_now, view.app))
    return {
        view.app: AppStanding(view.app, view.rho_now, rank, invited=False)
        for rank, view in enumerate(ranked, start=1)
    }


def _reason(
    view: AppView,
    state: AppState,
    held: int,
    current: OpenRound,
    notes: Notes,
    standing: AppStanding | None,
    world: World,
) -> Reason:
    if view.demand == 0:
        return Reason.WAITING_PHASE
    if held >= view.demand:
        return Reason.SERVED
    if held > 0:
        return Reason.PARTLY_SERVED
    never = never_served(world, view.owner, state.spec.constraint, view.min_gang)
    if never is not None:
        return never
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
    if not state.wanted:
        return Reason.IDLE_RECLAIMED  # Not asked, however late it is: it had no use for GPUs.
    if standing is not None:
        return Reason.OUTBID if standing.invited else Reason.NOT_IN_AUCTION
    return Reason.NO_FREE_GPUS


def never_served(world: World, owner: OwnerId, constraint: Constraint, least: int) -> Reason | None:
    """Why an app cannot run however long it waits, until its owner or an operator acts.

    Args:
        world: The cluster as it is.
        owner: Whose the app is.
        constraint: Which GPUs it may use.
        least: GPUs that a job of it needs.
    """
    if world.capacity.capacity_now(constraint) < least:
        # A cordoned machine will be used again; one that has left may never return.
        there = world.present_gpus(constraint)
        if there == 0 and not constraint.trivial:
            return Reason.NO_MATCHING_GPU
        if there < least:
            return Reason.DEMAND_EXCEEDS_CLUSTER
    if world.quotas.get(owner, least) < least:
        return Reason.DEMAND_EXCEEDS_QUOTA
    return None


def _matching(view: AppView, current: OpenRound) -> bool:
    if view.machines is None:
        return True
    seats = current.view.topology.seats
    return any(seats[gpu].machine in view.machines for gpu in current.view.offer)
