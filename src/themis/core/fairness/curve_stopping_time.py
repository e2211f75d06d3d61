"""Shared time under performance-curve stopping: jobs end where their loss curves say they will.

Each round every running job is forecast afresh, and the app is one phase with that work.

    load = forecast_load(job, done=40, forecasts=(90, 120), most=200)   # 80 iterations left
    shared_time_by_curves(elapsed, [load], rates, best_rates)
"""

from collections.abc import Sequence

from themis.core.fairness.loads import JobLoad, load_of
from themis.core.fairness.rho import phase_time
from themis.core.model import JobSpec


def stop_iteration(forecasts: Sequence[int], most: int) -> int:
    """Where a job will stop: its longest forecast, at most its maximum of iterations.

    The longest is the most optimistic curve, the one that sees the loss still falling. A job
    without forecasts, because it has hardly begun, is taken to run to its maximum.
    """
    return min(max(forecasts, default=most), most)


def forecast_load(job: JobSpec, done: int, forecasts: Sequence[int], most: int) -> JobLoad:
    """What is left of a job; nothing once it has passed every forecast."""
    return load_of(job, max(0, stop_iteration(forecasts, most) - done))


def shared_time_by_curves(
    elapsed: float,
    loads: Sequence[JobLoad],
    rates: Sequence[float],
    best_rates: Sequence[float],
    restart: float = 0.0,
) -> float:
    """T_sh: the time so far and one phase with the forecast work."""
    rest = phase_time([load.work for load in loads], rates, best_rates)
    return elapsed + restart + rest if rest > 0.0 else elapsed
