"""Finish-time fairness: how long an app takes in the shared cluster, against a private share.

shared = elapsed + restart_time(changes, gpus) + phase_time(works, rates, best_rates) + ...
rho(shared, ideal_time(Convention.FAIR_SHARE, phases, contention=4, capacity=16))
"""

import math
from collections.abc import Iterable, Sequence

from themis.core.fairness.loads import PhaseLoad, PhaseSums
from themis.errors import InvariantError


def rho(shared_time: float, ideal_time: float) -> float:
    """Shared over ideal time: at most one when sharing the cluster cost the app nothing.

    An app that no private share could ever finish (no usable GPU) has an infinite ideal time and
    rho zero: nothing the scheduler does treats it unfairly.

    Raises:
        InvariantError: The ideal time is not positive; apps without work have no rho.
    """
    if not ideal_time > 0.0:
        raise InvariantError(f"an ideal time must be positive, got {ideal_time}")
    return 0.0 if math.isinf(ideal_time) else shared_time / ideal_time


def single_job_time(elapsed: float, work_left: float, rate: float, restart: float = 0.0) -> float:
    """T_sh of one job whose GPUs do `rate` serial seconds per second until it ends."""
    if work_left <= 0.0:
        return elapsed
    return elapsed + restart + phase_time([work_left], [rate], [rate])


def phase_time(
    works: Sequence[float], rates: Sequence[float], best_rates: Sequence[float]
) -> float:
    """The seconds a phase needs: all its work at all its rates, or its longest job alone.

    A malleable lower bound: GPUs of a job that ends early pass to the others without loss.
    `rates` come from the assignment that will place the jobs, `best_rates` are those of each job
    alone with the same GPUs. It is infinite when a job with work left cannot run at all.
    """
    jobs = [job for job in zip(works, rates, best_rates, strict=True) if job[0] > 0.0]
    if not jobs:
        return 0.0
    work = math.fsum(work for work, _, _ in jobs)
    speed = math.fsum(rate for _, rate, _ in jobs)
    return max(time_from_sums(work, speed, work_of_one, best) for work_of_one, _, best in jobs)


def time_from_sums(work: float, speed: float, longest: float, best: float) -> float:
    """The seconds of a phase whose jobs all have the same best rate, from sums over them.

    Args:
        work: Of all jobs, in serial seconds.
        speed: The sum of their rates.
        longest: The work of the longest one.
        best: The rate of one job alone with all the GPUs.
    """
    if speed <= 0.0 or best <= 0.0:
        return math.inf
    return max(work / speed, longest / best)


def restart_time(changes: Iterable[tuple[int, float]], total_gpus: int) -> float:
    """The delay of moving jobs, spread over all the GPUs of the app.

    Args:
        changes: GPUs and checkpoint-plus-restart seconds of each job whose GPUs change; a first
            start has no checkpoint.
        total_gpus: The GPUs of all jobs, moved or not.
    """
    lost = math.fsum([gpus * cost for gpus, cost in changes])
    return lost / total_gpus if total_gpus > 0 else 0.0


def serial_rest(phases: Sequence[PhaseLoad], gang: int) -> float:
    """The rest on the smallest feasible gang: one job after another on `gang` GPUs, S = 1.

    A job never uses more than its max_gpus, and one with a larger gang is taken to run on its own.
    """
    return math.fsum(serial_parts(phases, gang))


def serial_parts(phases: Sequence[PhaseLoad], gang: int) -> list[float]:
    """The same job by job."""
    return [
        job.work / min(max(gang, job.min_gpus), job.max_gpus) for phase in phases for job in phase
    ]


def best_case_rest(phases: Sequence[PhaseLoad], capacity: float = math.inf) -> float:
    """The rest if the app were given all it can use from now on (at most `capacity`), S = 1."""
    return best_case_of_sums([PhaseSums.of(phase) for phase in phases], capacity)


def best_case_of_sums(phases: Sequence[PhaseSums], capacity: float = math.inf) -> float:
    """The same from sums over the phases."""
    return math.fsum(
        [
            max(phase.work / min(phase.demand, capacity), phase.longest)
            for phase in phases
            if phase.demand > 0
        ]
    )


def rho_of_nothing(
    elapsed: float, lease: float, serial_rest: float, ideal: float, starvation: float = 2.0
) -> float:
    """Rho of an app that wins nothing and holds nothing: finite, so that others can still pay.

    The app waits one lease and then finishes on its smallest gang; `starvation` > 1 keeps this
    above every row it could bid.
    """
    return rho(starvation * (elapsed + lease + serial_rest), ideal)
