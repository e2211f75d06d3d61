"""What apps are like: of generated workloads, and of the real trace where it is at hand.

sample("w1", [workload("w1", seed=1)]).jobs      # jobs of each app
demand(workload("trace-study", seed=1)).mean     # GPUs wanted on average
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from themis.evaluation.experiment import FEWER_REPORT_SEEDS, Scope
from themis.evaluation.figures.charts import Steps
from themis.sim.traces import ImportOptions, plan_workload, read_trace
from themis.sim.workloads import Workload, true_phases, workload

PROBE = "11cb48"
"""An owner of the Philly trace that submits a job every ten minutes, as a probe does."""

TRACE_STUDY, W1, W2 = "trace-study", "w1", "w2"
PHILLY, PHILLY_85 = "Philly", "Philly, 85 apps"


@dataclass(frozen=True, slots=True)
class AppSample:
    """What apps of one kind are like. A job's work and an app's are seconds on one GPU."""

    name: str
    jobs: tuple[int, ...]
    app_works: tuple[float, ...]
    job_works: tuple[float, ...]
    app_gpus: tuple[int, ...]
    """GPUs that a job of each app may use."""
    demands: tuple[Steps, ...]


def sample(name: str, made: Sequence[Workload]) -> AppSample:
    """A sample of apps from workloads of one kind."""
    apps = [app for one in made for app in one.apps]
    phases = [true_phases(app) for app in apps]
    return AppSample(
        name,
        jobs=tuple(len(app.spec.jobs) for app in apps),
        app_works=tuple(sum(job.work for part in parts for job in part) for parts in phases),
        job_works=tuple(job.work for parts in phases for part in parts for job in part),
        app_gpus=tuple(app.spec.jobs[0].max_gpus for app in apps),
        demands=tuple(demand(one) for one in made),
    )


def demand(made: Workload) -> Steps:
    """The GPUs that would be in use if every app got all it can use, at once.

    Phases follow each other; the mean is over the horizon, beyond which nobody arrives.
    """
    changes: dict[float, int] = {}
    for app in made.apps:
        start = app.arrival
        for phase in true_phases(app):
            for job in phase:
                end = start + job.work / job.max_gpus
                changes[start] = changes.get(start, 0) + job.max_gpus
                changes[end] = changes.get(end, 0) - job.max_gpus
            start += max(job.work / job.max_gpus for job in phase)
    times, values, now, area = [0.0], [0.0], 0, 0.0
    for at in sorted(changes):
        until = min(at, made.horizon)
        area += now * max(0.0, until - min(times[-1], made.horizon))
        now += changes[at]
        if at >= made.horizon:
            break
        times.append(at)
        values.append(float(now))
    return Steps(times, values, area / made.horizon, made.horizon)


def generated(scope: Scope) -> dict[str, AppSample]:
    """The trace study, W1 and W2 over all seeds."""
    seeds = scope.seeds_of(FEWER_REPORT_SEEDS, quick=3)
    count = scope.apps or 85
    return {
        name: sample(name, [workload(name, seed=seed, apps=count) for seed in seeds])
        for name in (TRACE_STUDY, W1, W2)
    }


def measured(folder: Path) -> tuple[dict[str, AppSample], list[str]]:
    """The Philly trace: all of it, and the 85 apps that stand for the paper's two weeks.

    Also returns notes on rows that are in neither.
    """
    found, notes = {}, []
    whole, apps85 = folder / "philly_jobs.csv", folder / "philly_85apps_2weeks.csv"
    if apps85.is_file():
        plan = plan_workload(read_trace(apps85), "philly-85")
        found[PHILLY_85] = sample(PHILLY_85, [plan.workload()])
    if whole.is_file():
        plan = plan_workload(read_trace(whole), "philly", ImportOptions(drop_owners=(PROBE,)))
        groups = plan.groups
        found[PHILLY] = AppSample(
            PHILLY,
            jobs=tuple(len(group.jobs) for group in groups),
            app_works=tuple(sum(job.duration * job.gpus for job in g.jobs) for g in groups),
            job_works=tuple(job.duration * job.gpus for g in groups for job in g.jobs),
            app_gpus=tuple(group.jobs[0].gpus for group in groups),
            demands=(),
        )
        lost = {**plan.trace.dropped, **plan.trace.problem_counts}
        reasons = ", ".join(f"{count} {reason}" for reason, count in lost.items()) or "none"
        notes.append(f"Of {plan.trace.rows} rows of the whole Philly trace left out: {reasons}.")
    return found, notes
