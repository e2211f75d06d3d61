"""The paper's equations, pure: rho, ideal time, contention, schedules, the fluid reference.

phases = declared_phases(app)
ideal = ideal_time(Convention.FAIR_SHARE, phases, contention=4.0, capacity=16.0)
rho(elapsed + best_case_rest(phases), ideal)
"""

from themis.fairness.contention import CapacityClock, ContentionClock
from themis.fairness.ideal import Convention, ideal_time
from themis.fairness.loads import (
    JobLoad,
    PhaseLoad,
    declared_phases,
    demand_max,
    load_of,
    longest_job,
    median_job,
    phase_demand,
    phase_work,
    remaining_phases,
    total_work,
    useful_demand,
)
from themis.fairness.placement import best_rate
from themis.fairness.rho import (
    best_case_rest,
    phase_time,
    restart_time,
    rho,
    rho_of_nothing,
    serial_rest,
    single_job_time,
)
from themis.fairness.schedules import (
    Bracket,
    halving_counts,
    halving_from_budget,
    halving_from_max,
    hyperband,
    upper_median,
)

__all__ = [
    "Bracket",
    "CapacityClock",
    "ContentionClock",
    "Convention",
    "JobLoad",
    "PhaseLoad",
    "best_case_rest",
    "best_rate",
    "declared_phases",
    "demand_max",
    "halving_counts",
    "halving_from_budget",
    "halving_from_max",
    "hyperband",
    "ideal_time",
    "load_of",
    "longest_job",
    "median_job",
    "phase_demand",
    "phase_time",
    "phase_work",
    "remaining_phases",
    "restart_time",
    "rho",
    "rho_of_nothing",
    "serial_rest",
    "single_job_time",
    "total_work",
    "upper_median",
    "useful_demand",
]
