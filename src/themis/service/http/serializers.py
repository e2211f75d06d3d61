"""The state of the service as the JSON of the HTTP API.

app_in_full(steward, app, now)  # what an app holds, wants and waits for
"""

import json
import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

from themis.apps import AppFile, SweepPlan, parse_app, plan_app
from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.offer import Fairness, fairness_of
from themis.core.explain import Facts, explain
from themis.core.fairness.ideal_time import Convention, ideal_time
from themis.core.fairness.loads import declared_phases
from themis.core.model import AppId, JobId, Machine
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.rows import ActiveRun
from themis.core.steward.shared_storage import birth_of, checkpoints_of
from themis.core.steward.steward import Steward
from themis.dashboard.arbiter_rows import gpu_row
from themis.dashboard.model import ANONYMOUS
from themis.protocol.agent_messages import Reached, SubmittedApp
from themis.protocol.node_messages import finite
from themis.service.retained_rows import EndedApp
from themis.service.run_diagnostics import Crashes, crashes_of, reason_of, trouble_of


def app_in_full(steward: Steward, app: AppId, now: float) -> dict[str, Any]:
    """One active app in full."""
    state = steward.arbiter.world.apps[app]
    held = steward.arbiter.ledger.holdings(app)
    runs = [run for run in steward.runs.values() if run.app == app]
    standings = fairness_of(steward.arbiter.world, now)
    lines = job_rows(steward, state)
    troubles = {run.job: trouble_of(steward, run, now) for run in runs}
    return {
        **app_row(steward, state, standings.get(app), runs, now),
        "weight": state.weight,
        "phase": state.phase,
        "phases": len(state.spec.phases),
        "work_left_seconds": state.work_left,
        "suspended": sorted(state.suspended),
        "leases": [
            {"gpu": gpu, "machine": machine_of(steward, gpu), "token": lease.token,
             "end": lease.end}
            for gpu, lease in sorted(held.items())
        ],
        "jobs": [
            {
                **lines[job.id],
                "trouble": troubles.get(job.id) or steward.waits_for_machine(app, job.id),
            }
            for job in state.spec.jobs
        ],
        "runs": [
            {"run": run.run, "job": run.job, "state": run.state, "gpus": list(run.gpus)}
            for run in sorted(runs, key=lambda run: run.run)
        ],
    }  # fmt: skip


def explanation(facts: Facts) -> dict[str, Any]:
    """The state of an app in words: a reason, and three lines."""
    found = explain(facts)
    return {
        "app": facts.app,
        "reason": found.reason,
        "what": found.what,
        "why": found.why,
        "then": found.then,
    }


def ended_app(app: AppId, ended: EndedApp) -> dict[str, Any]:
    """One ended app."""
    return {
        "app": app,
        "owner": ended.owner,
        "submitted": ended.submitted,
        "ended": ended.at,
        "outcome": ended.outcome,
        "state": state_of(ended.outcome),
        "elapsed": ended.elapsed,
        "ideal_seconds": ended.ideal_time or None,
        "rho": ended.elapsed / ended.ideal_time if ended.ideal_time else None,
    }


def state_of(outcome: str) -> str:
    """How an app ended, in one word: finished, cancelled or failed."""
    return outcome.partition(":")[0]


def job_rows(steward: Steward, state: AppState) -> dict[JobId, dict[str, Any]]:
    """The jobs of an active app. All at once: there may be a thousand."""
    app = state.id
    said = {reached.job: reached for reached in steward.trials.reached(app)}
    runs = {run.job: run for run in steward.runs.values() if run.app == app}
    crashes = crashes_of(steward, app)
    limits = {row.job: row.limit for row in steward.ended_runs(app)}
    limits |= {run.job: run.limit for run in runs.values()}
    return {
        job.id: _job_row(
            state,
            job.id,
            said.get(job.id),
            runs.get(job.id),
            steward.trials.curve(app, job.id),
            crashes.get(job.id, Crashes()),
            counted=limits.get(job.id) != 0.0,
        )
        for job in state.spec.jobs
    }


def _job_row(
    state: AppState,
    job: JobId,
    said: Reached | None,
    run: ActiveRun | None,
    curve: Sequence[tuple[float, float]],
    crashes: Crashes,
    *,
    counted: bool,
) -> dict[str, Any]:
    progress = state.jobs.get(job)
    # The arbiter learns how far a job is when a round needs it; what it reports is newer.
    seen = curve[-1][0] if curve and (run is not None or not counted) else 0.0
    if said is not None and said.failed:
        now = "failed"
    elif run is not None:
        now = str(run.state)
    elif progress is not None and progress.done < progress.target:
        now = "waiting"
    else:
        now = "finished" if progress is not None else "stopped" if said is not None else "waiting"
    return {
        "job": job,
        "state": now,
        "gpus": list(run.gpus) if run is not None else [],
        "iterations": max(progress.done, seen) if progress is not None else _done(said, curve),
        "failures": crashes.times,
        "target": progress.target if progress is not None and counted else None,
        "metric": finite(curve[-1][1]) if curve else None,
        "message": (said.failed if said is not None else "") or crashes.message,
    }


def _done(said: Reached | None, curve: Sequence[tuple[float, float]]) -> float:
    """The iterations of a job that has ended: as its agent said, or as the job reported."""
    if said is not None:
        return said.iterations
    return curve[-1][0] if curve else 0.0


def app_row(
    steward: Steward,
    state: AppState,
    fairness: Fairness | None,
    runs: Sequence[ActiveRun],
    now: float,
) -> dict[str, Any]:
    """One active app in a list."""
    held = steward.arbiter.ledger.holdings(state.id)
    return {
        **_fairness(fairness),
        "state": "suspended" if state.suspended else "running" if held else "waiting",
        "app": state.id,
        "owner": state.spec.owner,
        "submitted": state.submitted,
        "demand": state.demand,
        "held": len(held),
        "estimated": state.audit.estimated,
        "reason": reason_of(steward, state, runs, now),
    }


def nameless_app_row(
    steward: Steward, state: AppState, fairness: Fairness | None
) -> dict[str, Any]:
    """One app of another owner in a list: GPUs and rho without names."""
    held = len(steward.arbiter.ledger.holdings(state.id))
    rho = _fairness(fairness)["rho"]
    return {"app": ANONYMOUS, "owner": ANONYMOUS, "demand": state.demand, "held": held, "rho": rho}


def _fairness(fairness: Fairness | None) -> dict[str, Any]:
    if fairness is None:
        return {"rho": None, "elapsed": None, "ideal_seconds": None}
    values = {
        "rho": fairness.rho,
        "elapsed": fairness.elapsed,
        "ideal_seconds": fairness.ideal_time,
    }
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def plan(plan: SweepPlan, gpus: int, owners: int) -> dict[str, Any]:
    """What an app would take, on a cluster of `gpus` that `owners` share."""
    spec, share = plan.spec, max(1.0, gpus / max(1, owners))
    loads = declared_phases(spec)
    ideal = ideal_time(Convention.FAIR_SHARE, loads, contention=max(1, owners), capacity=gpus)
    return {
        "phases": [{"jobs": phase.jobs, "iterations": phase.iterations} for phase in spec.phases],
        "jobs": len(spec.jobs),
        "gpu_seconds": plan.gpu_seconds,
        "estimated": plan.spec.estimated,
        "ideal_seconds": ideal if math.isfinite(ideal) else None,
        "cluster_gpus": gpus,
        "share_gpus": share,
        "tuner": plan.tuner,
    }


def parameters(steward: Steward, app: AppId, plan: SweepPlan) -> dict[JobId, Any]:
    """The parameters of each job of an app; None where they are not chosen yet."""
    chosen = {job: json.loads(text) for job, text in steward.trials.params(app).items()}
    return {trial.job: chosen.get(trial.job, trial.params) for trial in plan.trials}


def plan_of(app: AppId, sheet: SubmittedApp) -> SweepPlan:
    """The plan of an app that was submitted as a file."""
    return plan_app(parse_app(json.loads(sheet.body)), app, sheet.owner, sheet.seed)


def results(
    app: AppId, steward: Steward, sheet: SubmittedApp, ended: EndedApp | None
) -> dict[str, Any]:
    """The outcome of each trial, and which is the best."""
    written = parse_app(json.loads(sheet.body))
    plan = plan_app(written, app, sheet.owner, sheet.seed)
    trials, state = steward.trials, steward.arbiter.world.apps.get(app)
    params = parameters(steward, app, plan)
    last = {reached.job: reached for reached in trials.reached(app)}
    known = state or ended
    born = birth_of(app, sheet.owner, known.submitted) if known is not None else ""
    jobs = []
    lines = job_rows(steward, state) if state is not None else {}
    ran_on = _machines_of_jobs(steward, app, (trial.job for trial in plan.trials))
    for trial in plan.trials:
        reached, curve = last.get(trial.job), trials.curve(app, trial.job)
        live = lines.get(trial.job)
        metric = reached.metric if reached is not None else None
        jobs.append(
            {
                "job": trial.job,
                "params": params[trial.job],
                "iterations": live["iterations"] if live else _done(reached, curve),
                "metric": metric if metric is not None or not curve else finite(curve[-1][1]),
                "state": live["state"] if live else _ended_state(reached, written),
                "failed": reached.failed if reached is not None else "",
                "checkpoint": None
                if written.saves_elsewhere
                else checkpoints_of(app, sheet.owner, trial.job, born),
                **_place_of_checkpoints(steward, ran_on.get(trial.job)),
            }
        )
    return {
        "app": app,
        "outcome": ended.outcome if ended is not None else None,
        "best": trials.best(app),
        "metric": {"name": written.metric.name, "goal": str(written.metric.goal)},
        "jobs": jobs,
    }


def _machines_of_jobs(steward: Steward, app: AppId, jobs: Iterable[JobId]) -> dict[JobId, str]:
    """The machine on which each job of an app last ran. All at once: there may be a thousand."""
    if app in steward.arbiter.world.apps:
        runs = steward.last_runs(app)
        return {run.job: machine_of(steward, run.gpus[0]) for run in runs if run.gpus}
    logs = {job: steward.log_of(app, job) for job in jobs}
    return {job: row.runs[-1].node for job, row in logs.items() if row is not None and row.runs}


def _place_of_checkpoints(steward: Steward, machine: str | None) -> dict[str, Any]:
    """A machine, and its folder of checkpoints.

    The folder is None where checkpoints are in a folder of the node that no other machine sees.
    """
    node = steward.nodes.get(machine or "")
    last = node.last if node is not None else None
    return {"machine": machine, "checkpoint_root": (last.shared_dir if last else "") or None}


def _ended_state(reached: Reached | None, app: AppFile) -> str:
    """Whether a trial that has ended failed, trained to its end, or was stopped before."""
    if reached is None:
        return "stopped"
    if reached.failed:
        return "failed"
    return "finished" if reached.iterations >= app.stop.max_iterations else "stopped"


def machine_of(steward: Steward, gpu: int) -> str:
    """The name of the machine that a GPU is in."""
    topology = steward.arbiter.world.topology
    return topology.machines[topology.seats[gpu].machine].name


def node_row(steward: Steward, node: NodeEntry, *, sealed: bool) -> dict[str, Any]:
    """One machine with its GPUs."""
    world = steward.arbiter.world
    number = world.topology.number_of.get(node.name)
    gpus = []
    for index, gpu in enumerate(node.gpus):
        row = gpu_row(steward.arbiter, gpu, index)
        line: dict[str, Any] = {"index": index, "gpu": gpu, "state": row.state}
        if row.app is not None:
            line["app"] = ANONYMOUS if sealed else row.app
        if row.reason:
            # The text may name an app.
            line["reason"] = "out of use" if sealed else row.reason
        gpus.append(line)
    last = node.last
    return {
        "node": node.name,
        "rack": node.machine.rack if node.machine else None,
        "present": node.present,
        "heard": node.heard,
        "cordoned": number is not None and world.is_cordoned(number),
        "draining": number is not None and world.is_draining(number),
        "trouble": shape_trouble(steward, node),
        "control": last.control if last else None,
        "version": last.version if last else None,
        "trust_tenants": last.trust_tenants if last else None,
        "storage": _storage(steward, node, sealed=sealed),
        "gpus": gpus,
    }


def shape_trouble(steward: Steward, node: NodeEntry) -> str:
    """Why a machine that is heard is not used; empty for others."""
    topology = steward.arbiter.world.topology
    number = topology.number_of.get(node.name)
    if number is None or node.machine is None or node.machine == topology.machines[number]:
        return ""
    was, now = _shape(topology.machines[number]), _shape(node.machine)
    return f"it is back as {now} and was {was}; give it another name, or what it was"


def _shape(machine: Machine) -> str:
    slots = ", ".join(map(str, machine.slots))
    return f"{machine.gpus} x {machine.gpu_model} in slots of {slots}, rack {machine.rack}"


def _storage(steward: Steward, node: NodeEntry, *, sealed: bool) -> dict[str, Any]:
    last = node.last
    line: dict[str, Any] = {"sharing": steward.storage_of(node)}
    if last is not None and not sealed:
        line |= {"dir": last.shared_dir, "trouble": last.storage_trouble}
    return line


def gpu_counts(steward: Steward, removed: Container[str] = ()) -> dict[str, int]:
    """How many GPUs are in each state, without those of removed machines."""
    counts = {"free": 0, "leased": 0, "fencing": 0, "absent": 0, "quarantined": 0}
    for node in steward.nodes.values():
        if node.name in removed:
            continue
        for index, gpu in enumerate(node.gpus):
            counts[gpu_row(steward.arbiter, gpu, index).state] += 1
    return counts
