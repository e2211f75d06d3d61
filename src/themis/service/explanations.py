"""The facts that explain why an app waits.

explain(facts_of(steward, rounds, app, now, agent_seen)).lines
"""

import math

from themis.core.arbiter.records import RoundRecord
from themis.core.explain import Bidding, Facts, Ranking
from themis.core.model import AppId
from themis.core.model.apps import Constraint
from themis.core.model.reasons import Reason
from themis.core.steward.rows import ActiveRun
from themis.core.steward.steward import Steward
from themis.protocol.node_messages import RunState
from themis.service.admission_warnings import kind_of
from themis.service.persistence.round_history import RoundHistory
from themis.service.retained_rows import EndedApp
from themis.service.run_diagnostics import crashes_of, quiet_for, reason_of, trouble_in_reports


def facts_of(
    steward: Steward, rounds: RoundHistory, app: AppId, now: float, agent_seen: float | None
) -> Facts:
    """The facts about an app that goes on; `agent_seen` is when its agent last called."""
    world, ledger = steward.arbiter.world, steward.arbiter.ledger
    state = world.apps[app]
    runs = [run for run in steward.runs.values() if run.app == app]
    mine = ledger.holdings(app)
    record = _last_round(rounds, app)
    quiet = [each for run in runs if (each := quiet_for(steward, run, now)) is not None]
    reason = reason_of(steward, state, runs, now)
    crashing = reason in {Reason.CRASH_LOOP, Reason.INVALID_SPEC}
    return Facts(
        app=app,
        reason=reason,
        now=now,
        held=len(mine),
        demand=state.demand,
        least=state.min_gang,
        waiting_since=state.waiting_since if math.isfinite(state.waiting_since) else None,
        cluster=world.present_gpus(Constraint()),
        usable=world.present_gpus(state.spec.constraint),
        closed=world.present_gpus(state.spec.constraint) - world.usable_gpus(state.spec.constraint),
        wanted=kind_of(state.spec),
        quota=world.quotas.get(state.spec.owner),
        owner_held=sum(
            len(ledger.holdings(other))
            for other, each in world.apps.items()
            if each.spec.owner == state.spec.owner
        ),
        ranking=_ranking(record, app),
        bidding=_bidding(record, app),
        next_round=steward.arbiter.next_round,
        next_expiry=_next_expiry(steward, app, now),
        lease_ends=min((lease.end for lease in mine.values()), default=None),
        agent_seen=agent_seen,
        quiet=max(quiet, default=None),
        idle_after=steward.arbiter.settings.idle_after or None,
        phase=state.phase,
        phases=len(state.spec.phases),
        running=sum(run.state is RunState.RUNNING for run in runs),
        trouble=_crash(steward, app) if crashing else _trouble(steward, runs, now),
    )


def facts_of_ended(app: AppId, ended: EndedApp, now: float) -> Facts:
    """The facts about an app that is over."""
    failed = ended.outcome.startswith("failed")
    reason = Reason.FAILED if failed else Reason.ENDED
    return Facts(app=app, reason=reason, now=now, outcome=ended.outcome, ended=ended.at)


def _last_round(rounds: RoundHistory, app: AppId) -> RoundRecord | None:
    """The newest round that an app was in."""
    for number in reversed(rounds.numbers()):
        record, _ = rounds.round(number)
        if any(line.app == app for line in record.apps):
            return record
    return None


def _ranking(record: RoundRecord | None, app: AppId) -> Ranking | None:
    if record is None:
        return None
    line = next(line for line in record.apps if line.app == app)
    invited = sum(standing.invited for standing in record.notes.standings)
    ranked = len(record.notes.standings) or len(record.apps)
    return Ranking(
        record.round,
        record.settled,
        ranked,
        invited,
        record.offered,
        line.rank,
        line.rho,
        record.failed,
    )


def _bidding(record: RoundRecord | None, app: AppId) -> Bidding | None:
    if record is None:
        return None
    notes = record.notes
    bid = next((bid for bid in notes.bids if bid.app == app), None)
    if bid is None and app not in notes.paid and app not in record.refused:
        return None
    others = {name: gpus for name, gpus in notes.won.items() if name != app and gpus}
    return Bidding(
        max((row.gpus for row in bid.rows), default=0) if bid is not None else 0,
        len(notes.won.get(app, ())),
        len(notes.paid.get(app, ())),
        sum(map(len, others.values())),
        len(others),
        record.refused.get(app, ""),
    )


def _next_expiry(steward: Steward, app: AppId, now: float) -> float | None:
    ledger = steward.arbiter.ledger
    ends = [
        lease.end
        for other in steward.arbiter.world.apps
        if other != app
        for lease in ledger.holdings(other).values()
        if lease.end > now
    ]
    return min(ends, default=None)


def _crash(steward: Steward, app: AppId) -> str:
    """The last error of an app's jobs; of several jobs, the one that failed most."""
    last = {job: crashes for job, crashes in crashes_of(steward, app).items() if crashes.last}
    if not last:
        return ""
    worst = max(sorted(last), key=lambda job: last[job].times)
    times = last[worst].times
    often = "once" if times == 1 else f"{times} times"
    return f"job {worst} failed {often}: {last[worst].message}"


def _trouble(steward: Steward, runs: list[ActiveRun], now: float) -> str:
    return next((said for run in runs if (said := trouble_in_reports(steward, run, now))), "")
