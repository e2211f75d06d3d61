"""What a run is judged by: rho under both conventions, against the run itself and the reference.

report = summarise(outcome, workload, topology, policy="themis", seed=1)
report["max_rho_ref"]["fair_share"]
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from themis.core.fairness.checkers import jain_index
from themis.core.fairness.fluid import FluidApp, FluidResult, fluid_run, reference_ideal_time
from themis.core.fairness.ideal_time import Convention, ideal_time
from themis.core.fairness.loads import JobLoad, PhaseLoad, phase_work
from themis.core.fairness.max_rho_floor import FloorApp, rho_floor, seconds_alone
from themis.core.model import AppId, JobSpec, LeaseSource, Topology
from themis.sim.modelled_jobs import JobCosts, first_start
from themis.sim.outcome import SimulationOutcome
from themis.sim.workloads import Workload, true_phases

FAIR = 1.05
"""The sharing incentive holds up to here: starting costs time."""

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class AppResult:
    """One app of a run."""

    app: AppId
    arrival: float
    end: float
    completion: float
    gpu_seconds: float
    rho: Mapping[Convention, float]
    rho_ref: Mapping[Convention, float]


def reference(workload: Workload, topology: Topology) -> Mapping[AppId, FluidResult]:
    """The fluid equal-share run of a workload, the same for all policies."""
    apps = [
        FluidApp(app.spec.id, app.arrival, app.spec.weight, true_phases(app, app.planned))
        for app in workload.apps
    ]
    return fluid_run(apps, float(topology.gpus))


def within_share(
    workload: Workload, topology: Topology, fluid: Mapping[AppId, FluidResult]
) -> frozenset[AppId]:
    """Apps whose demand is never above their share of the reference: they lose nothing by sharing.

    What they wait for, and where they are put, is all that can make them late.
    """
    return frozenset(
        app.spec.id
        for app in workload.apps
        if max(sum(job.max_gpus for job in phase) for phase in true_phases(app, app.planned))
        <= topology.gpus / fluid[app.spec.id].mean_contention
    )


@dataclass(frozen=True, slots=True)
class ReferenceBars:
    """What to hold the results of a workload against: by rho_ref under fair_share, if by rho.

    The first three no policy can beat. The others are no bounds: see each.
    """

    floor: float
    """Of the largest rho_ref, if no place slowed a job."""
    placed_floor: float
    """The same with jobs as fast as in the best place that the cluster has for them."""
    share_fair: float
    """At most this many apps can be fair: others are not even alone on the cluster, well placed."""
    alone: Mapping[AppId, float]
    """The seconds that each app needs at least, alone on the cluster and well placed."""
    fluid: float
    """Mean completion time of the fluid reference if every job were slowed as on all its GPUs, in
    its best place. On fewer GPUs it would be slowed less."""
    over_work: float
    """GPU time over bare work if every job had all its GPUs in its best place all the time, without
    start-ups. On fewer GPUs it would be less."""

    def rho_alone(self, apps: Iterable[AppResult], convention: Convention) -> float | None:
        """The largest rho that one of these apps would have had alone, with its T_id of the run.

        T_id grows with the contention that a policy keeps up, so this differs between policies. It
        is too small for an app that was suspended for some time.
        """
        return max((app.rho[convention] * self.alone[app.app] / app.completion
                    for app in apps if app.completion > 0.0), default=None)  # fmt: skip


def limits(
    workload: Workload,
    topology: Topology,
    fluid: Mapping[AppId, FluidResult],
    costs: JobCosts,
    seed: int,
) -> ReferenceBars:
    """The best that can be hoped for, with these costs of starting."""
    gpus = float(topology.gpus)
    room = _room(topology)
    apps = []
    for app in workload.apps:
        phases = true_phases(app, app.planned)
        ideal = reference_ideal_time(Convention.FAIR_SHARE, phases, fluid[app.spec.id], gpus)
        starters = app.spec.jobs[: app.spec.phases[0].jobs]
        startup = min(first_start(costs, seed, app.spec.id, job.id) for job in starters)
        apps.append(FloorApp(app.spec.id, app.arrival, startup, phases, ideal))
    placed = [
        replace(each, pace=_pace(app.spec.jobs, room))
        for each, app in zip(apps, workload.apps, strict=True)
    ]
    alone = {app.id: seconds_alone(app, gpus) for app in placed}
    fair = sum(alone[app.id] <= FAIR * app.ideal_time for app in placed)
    slowed = [
        FluidApp(each.id, each.arrival, app.spec.weight, _slowed(each, topology.gpus))
        for each, app in zip(placed, workload.apps, strict=True)
    ]
    completions = [result.completion for result in fluid_run(slowed, gpus).values()]
    bare, spent = (
        math.fsum(phase_work(phase) for app in each for phase in app.phases)
        for each in (apps, slowed)
    )
    return ReferenceBars(
        floor=rho_floor(apps, gpus),
        placed_floor=rho_floor(placed, gpus),
        share_fair=fair / len(placed) if placed else 1.0,
        alone=alone,
        fluid=_mean(completions),
        over_work=spent / bare if bare else 1.0,
    )


def _slowed(app: FloorApp, gpus: int) -> tuple[PhaseLoad, ...]:
    """Its phases with as much work as its jobs have on all their GPUs, in the best place."""

    def slowed(job: JobLoad) -> JobLoad:
        count = min(job.max_gpus, gpus)
        return replace(job, work=job.work * count / app.pace(count))

    return tuple(tuple(map(slowed, phase)) for phase in app.phases)


def _room(topology: Topology) -> tuple[int, ...]:
    """The GPUs of the largest slot, machine and rack, and of all."""
    seats = topology.seats
    units = ((seat.slot for seat in seats), (seat.machine for seat in seats),
             (seat.rack for seat in seats))  # fmt: skip
    return (*(max(Counter(unit).values()) for unit in units), topology.gpus)


def _pace(jobs: Sequence[JobSpec], room: Sequence[int]) -> Callable[[int], float]:
    """The best speed of these jobs by the GPUs that they may hold."""
    profiles = {job.slowdown for job in jobs}

    @cache
    def pace(most: int) -> float:
        return max(
            profile.rate(level, count)
            for profile in profiles
            for count in range(1, min(most, room[-1]) + 1)
            for level in range(len(room))
            if count <= room[level]
        )

    return pace


def app_results(
    outcome: SimulationOutcome,
    workload: Workload,
    topology: Topology,
    fluid: Mapping[AppId, FluidResult],
) -> tuple[AppResult, ...]:
    """Every finished app, in order of arrival."""
    results = []
    for app in workload.apps:
        record = outcome.apps.get(app.spec.id)
        if record is None:
            continue
        budget = record.budget or None
        own = {
            convention: record.elapsed
            / ideal_time(
                convention,
                record.phases,
                contention=record.mean_contention,
                capacity=record.mean_capacity,
                budget=budget,
            )
            for convention in Convention
        }
        phases = true_phases(app, app.planned)
        ref = {
            convention: record.elapsed
            / reference_ideal_time(
                convention,
                phases,
                fluid[app.spec.id],
                float(topology.gpus),
                app.spec.budget or None,
            )
            for convention in Convention
        }
        results.append(
            AppResult(
                app=app.spec.id,
                arrival=record.arrival,
                end=record.end,
                completion=record.end - record.arrival,
                gpu_seconds=sum(record.attained.values()),
                rho=own,
                rho_ref=ref,
            )
        )
    return tuple(results)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies, interpolated."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(
    outcome: SimulationOutcome,
    workload: Workload,
    topology: Topology,
    results: Sequence[AppResult],
    fluid: Mapping[AppId, FluidResult],
    *,
    policy: str,
    seed: int,
) -> dict[str, Any]:
    """One flat object of results, without anything that depends on the machine."""
    completions = [result.completion for result in results]
    summary: dict[str, Any] = {
        "policy": policy,
        "seed": seed,
        "cluster": topology.name,
        "gpus": topology.gpus,
        "workload": workload.name,
        "load": workload.load,
        "apps": len(results),
        "jobs": sum(len(app.spec.jobs) for app in workload.apps),
    }
    for suffix in ("", "_ref"):
        for name, measure in _MEASURES.items():
            summary[name + suffix] = {
                str(convention): measure([_rho(result, suffix)[convention] for result in results])
                for convention in Convention
            }
    sources = dict.fromkeys(LeaseSource, 0.0)
    for record in outcome.apps.values():
        for source, seconds in record.attained.items():
            sources[source] += seconds
    summary |= {
        "jain": jain_index([result.rho_ref[Convention.FAIR_SHARE] for result in results]),
        "gpu_hours": sum(result.gpu_seconds for result in results) / HOUR,
        "gpu_hours_by_source": {str(k): v / HOUR for k, v in sources.items()},
        "contended_gpu_hours_by_source": {
            str(k): v / HOUR for k, v in outcome.contended.seconds.items()
        },
        "auction_share_contended": outcome.contended.share(LeaseSource.AUCTION),
        "gpu_hours_spent": {
            key: sum(getattr(account, key) for account in outcome.spent.values()) / HOUR
            for key in ("useful", "slowed", "restart", "checkpoint", "lost")
        },
        "mean_completion_h": _mean(completions) / HOUR,
        "fluid_completion_h": _mean([result.completion for result in fluid.values()]) / HOUR,
        "p95_completion_h": quantile(completions, 0.95) / HOUR,
        "makespan_h": (outcome.end - min(app.arrival for app in workload.apps)) / HOUR,
        "placement_score": _weighted_mean(outcome.scores),
        "rounds": outcome.rounds,
        "auctions": outcome.auctions,
        "failed_rounds": outcome.failed_rounds,
        "first_failure": outcome.first_failure,
        "refused": len(outcome.refused),
        "contradicted": sum(record.contradicted for record in outcome.apps.values()),
        "mean_kept_fraction": outcome.kept_fractions.mean,
        "kept_fraction_bins": list(outcome.kept_fractions.bins),
        "moves": outcome.moves,
        "job_failures": outcome.failures,
        "machine_failures": outcome.outages,
        "events": outcome.events,
    }
    return summary


def _rho(result: AppResult, suffix: str) -> Mapping[Convention, float]:
    return result.rho_ref if suffix else result.rho


def _share_fair(values: Sequence[float]) -> float:
    return sum(1 for value in values if value <= FAIR) / len(values) if values else math.nan


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _weighted_mean(pairs: Sequence[tuple[float, float]]) -> float:
    weight = math.fsum(weight for _, weight in pairs)
    return math.fsum(value * weight for value, weight in pairs) / weight if weight else math.nan


_MEASURES = {
    "max_rho": lambda values: max(values, default=math.nan),
    "p95_rho": lambda values: quantile(values, 0.95),
    "median_rho": lambda values: quantile(values, 0.5),
    "share_fair": _share_fair,
}
