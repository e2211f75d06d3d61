"""Errors and lies, for some apps or all: what they bid and declare, apart from what is true.

    with_errors(workload, 0.2, seed=1)              # every app errs by up to a fifth
    with_liar(workload, "w2-0007", (("spread", 1.34),))     # one overstates what being spread costs
    without_priors(workload)                        # nobody knows what being spread costs

What really runs never changes: nodes go by the truth, up to the limit that was declared. A liar may
also be submitted early, leave its GPUs empty, or split itself.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from themis.core.model import (
    CLUSTER,
    MACHINE,
    NO_SLOWDOWN,
    RACK,
    SLOT,
    AppId,
    AppSpec,
    JobSpec,
    Phase,
    RhoClaim,
    Slowdown,
)
from themis.core.model.ids import check_number
from themis.errors import ConfigError, unknown_name
from themis.sim.workloads import SimApp, Workload


def with_errors(workload: Workload, error: float, seed: int, *, learning: bool = False) -> Workload:
    """Let every app misjudge its iterations left and its slowdown, in bids only.

    One who learns has the slowdown wrong from the start and not only in bids, until it knows
    better: what it has measured is right.

    Each app draws two factors, 1 + U[-error, error], once for its life. They scale with `error`
    and do not depend on the other apps, so that runs with more and less of it can be compared.
    """
    check_number("error", error, high=0.99)
    if error == 0.0:
        return workload
    apps = []
    for app in workload.apps:
        rng = random.Random(f"{seed}/error/{app.spec.id}")
        work, slowdown = (1.0 + error * rng.uniform(-1.0, 1.0) for _ in range(2))
        if learning:
            apps.append(_bidding(_with_priors(app, partial(_off, factor=slowdown)), work=work))
        else:
            apps.append(_bidding(app, work=work, slowdown=slowdown))
    return replace(workload, apps=tuple(apps))


def without_priors(workload: Workload) -> Workload:
    """Let every app take its jobs for insensitive to placement, as who knows nothing does."""
    apps = tuple(_with_priors(app, lambda _: NO_SLOWDOWN) for app in workload.apps)
    return replace(workload, apps=apps)


def with_lie(app: SimApp, kind: str, factor: float) -> SimApp:
    """The same app, lying in one way; see `LIES` for the ways there are.

    Raises:
        ConfigError: There is no such lie, it is not for such an app, or the factor is not a number
            above 0.
    """
    make = LIES.get(kind)
    if make is None:
        raise unknown_name("lie", kind, LIES)
    return make(app, check_number("lie_factor", factor, above=True, high=1e6))


def with_liar(workload: Workload, name: str, lies: Sequence[tuple[str, float]]) -> Workload:
    """The same workload with one app that lies, in one way or in several at once.

    `split` makes several apps of it, of the same owner, which lie alike.

    Raises:
        ConfigError: There is no such app or lie, or the factor is not a number above 0.
    """
    names = [app.spec.id for app in workload.apps]
    if name not in names:
        raise unknown_name("liar", name, names)
    known = [*LIES, SPLIT]
    parts = 1
    liar = workload.apps[names.index(AppId(name))]
    for kind, factor in lies:
        if kind == SPLIT:
            parts = round(check_number("lie_factor", factor, low=1.0, high=1e6))
        elif kind in LIES:
            liar = with_lie(liar, kind, factor)
        else:
            raise unknown_name("lie", kind, known)
    others = (app for app in workload.apps if app.spec.id != name)
    apps = sorted((*others, *split(liar, parts)), key=lambda app: app.arrival)
    return replace(workload, apps=tuple(apps))


def split(app: SimApp, parts: int) -> tuple[SimApp, ...]:
    """The jobs of an app dealt out to several apps of its owner, `name-p1` and so on.

    Raises:
        ConfigError: It has several phases, whose survivors could not be told without the others.
    """
    parts = min(parts, len(app.spec.jobs))
    if parts == 1:
        return (app,)
    _check_one_phase(app, SPLIT)
    return tuple(_part(app, number, parts) for number in range(parts))


def _part(app: SimApp, number: int, parts: int) -> SimApp:
    name = AppId(f"{app.spec.id}-p{number + 1}")

    def mine(spec: AppSpec) -> AppSpec:
        phase, jobs = spec.phases[0], spec.jobs[number::parts]
        share = replace(phase, jobs=len(jobs), targets=phase.targets[number::parts])
        budget = spec.budget * len(jobs) / len(spec.jobs)
        return replace(spec, id=name, jobs=jobs, phases=(share,), budget=budget)

    return replace(
        app,
        spec=mine(app.spec),
        declared=None if app.declared is None else mine(app.declared),
        qualities=app.qualities[number::parts],
        priors=app.priors[number::parts],
    )


def _check_one_phase(app: SimApp, lie: str) -> None:
    spec = app.spec
    if len(spec.phases) > 1 or spec.phases[0].jobs != len(spec.jobs):
        raise ConfigError("lie", lie, f"a lie for apps with several phases, as {spec.id} is")


def _with_priors(app: SimApp, change: Callable[[Slowdown], Slowdown]) -> SimApp:
    """The same app with something else in place of what its agent takes for its slowdowns."""
    believed = app.priors or tuple(job.slowdown for job in app.spec.jobs)
    # The jobs of an app share one profile as a rule, and should go on sharing it.
    changed = {slowdown: change(slowdown) for slowdown in believed}
    return replace(app, priors=tuple(changed[slowdown] for slowdown in believed))


def _off(truth: Slowdown, factor: float) -> Slowdown:
    """A profile misjudged by a factor; no estimate promises a speed-up."""
    slot, machine, rack, cluster = (max(1.0, value * factor) for value in truth.levels)
    measured = tuple(replace(item, value=item.value * factor) for item in truth.measured)
    return Slowdown((slot, machine, rack, cluster), measured)


def _bidding(app: SimApp, **factors: float) -> SimApp:
    """The same app with these factors on top of those that its bids have already."""
    before = app.distortion
    product = {name: getattr(before, name) * factor for name, factor in factors.items()}
    return replace(app, distortion=replace(before, **product))


def _spread(app: SimApp, factor: float) -> SimApp:
    return _bidding(app, spread_slowdown=factor)


def _dense(app: SimApp, factor: float) -> SimApp:
    return _bidding(app, dense_slowdown=1.0 / factor)


def _left(app: SimApp, factor: float) -> SimApp:
    return _bidding(app, work=factor)


def _total(app: SimApp, factor: float) -> SimApp:
    phases = tuple(_scaled(phase, factor) for phase in app.spec.phases)
    declared = replace(app.spec, phases=phases, budget=app.spec.budget * factor)
    # One who declares too little must plan with that little, as its jobs are stopped there. One
    # who declares too much plans with the truth, and says in its bids what it has declared.
    return replace(_bidding(app, work=max(1.0, factor)), declared=declared)


def _later(app: SimApp, factor: float) -> SimApp:
    _check_one_phase(app, "later")
    declared = _total(app, factor).declared
    return replace(app, declared=declared, adds_work=True) if factor < 1.0 else _total(app, factor)


def _level(app: SimApp, factor: float, level: int) -> SimApp:
    factors = list(app.distortion.levels)
    factors[level] *= factor
    slot, machine, rack, cluster = factors
    levels = (slot, machine, rack, cluster)
    return replace(app, distortion=replace(app.distortion, levels=levels))


def _ideal(app: SimApp, factor: float) -> SimApp:
    claim = app.claim or RhoClaim()
    return replace(app, claim=replace(claim, ideal_time=claim.ideal_time * factor))


def _elapsed(app: SimApp, factor: float) -> SimApp:
    claim = app.claim or RhoClaim()
    return replace(app, claim=replace(claim, elapsed=claim.elapsed * factor))


def _early(app: SimApp, seconds: float) -> SimApp:
    return replace(app, arrival=max(0.0, app.arrival - seconds), ready=app.arrival)


def _idle(app: SimApp, seconds: float) -> SimApp:
    return replace(app, dawdle=seconds)


def _serial(app: SimApp, factor: float) -> SimApp:
    def slower(job: JobSpec) -> JobSpec:
        return replace(job, serial_iteration_time=job.serial_iteration_time * factor)

    return replace(_bidding(app, work=factor), declared=_with_jobs(app.spec, slower))


def _demand(app: SimApp, factor: float) -> SimApp:
    def wider(job: JobSpec) -> JobSpec:
        return replace(job, max_gpus=max(job.min_gpus, round(job.max_gpus * factor)))

    return replace(_bidding(app, demand=factor), declared=_with_jobs(app.spec, wider))


def _with_jobs(spec: AppSpec, change: Callable[[JobSpec], JobSpec]) -> AppSpec:
    return replace(spec, jobs=tuple(map(change, spec.jobs)))


def _scaled(phase: Phase, factor: float) -> Phase:
    return replace(
        phase,
        iterations=max(1, round(phase.iterations * factor)),
        targets=tuple(max(1, round(target * factor)) for target in phase.targets),
    )


LIES: Mapping[str, Callable[[SimApp, float], SimApp]] = {
    "spread": _spread,
    "dense": _dense,
    "left": _left,
    "total": _total,
    "later": _later,
    "serial": _serial,
    "demand": _demand,
    "slot": partial(_level, level=SLOT),
    "machine": partial(_level, level=MACHINE),
    "rack": partial(_level, level=RACK),
    "cluster": partial(_level, level=CLUSTER),
    "ideal": _ideal,
    "elapsed": _elapsed,
    "early": _early,
    "idle": _idle,
}
"""Ways to lie by a factor: slowdown of spread gangs in bids, that of dense ones (divided by it),
iterations left in bids, iterations declared, those declared at first with the rest added later,
iteration time declared, GPUs a job can use, slowdown at one level in bids, ideal and elapsed time
claimed (for arbiters that believe them). The last two are by seconds: submitted so early, and GPUs
left empty for so long at every start."""

SPLIT = "split"
"""A lie of several apps: into this many."""
