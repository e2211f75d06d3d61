"""The paper's equations, pure: rho, ideal time, contention, schedules, the fluid reference.

phases = declared_phases(app)
ideal = ideal_time(Convention.FAIR_SHARE, phases, contention=4.0, capacity=16.0)
rho(elapsed + best_case_rest(phases), ideal)
"""

from themis.core.fairness.best_placement import best_rate
from themis.core.fairness.checkers import (
    Allocation,
    Envy,
    EnvyFreeness,
    ParetoEfficiency,
    SharingIncentive,
    Values,
    is_envy_free,
    is_pareto_efficient,
    jain_index,
    sharing_incentive,
)
from themis.core.fairness.contention import CapacityClock, ContentionClock
from themis.core.fairness.curve_stopping_time import (
    forecast_load,
    shared_time_by_curves,
    stop_iteration,
)
from themis.core.fairness.fluid import FluidApp, FluidResult, fluid_run, reference_ideal_time
from themis.core.fairness.ideal_time import Convention, ideal_time
from themis.core.fairness.loads import (
    JobLoad,
    PhaseLoad,
    PhaseSums,
    declared_phases,
    demand_max,
    load_of,
    longest_job,
    median_job,
    phase_demand,
    phase_work,
    remaining_phases,
    total_work,
)
from themis.core.fairness.rho import (
    best_case_rest,
    phase_time,
    restart_time,
    rho,
    rho_of_nothing,
    serial_rest,
    single_job_time,
    time_from_sums,
)
from themis.core.fairness.schedules import (
    Bracket,
    halving_counts,
    halving_from_budget,
    halving_from_max,
    hyperband,
    upper_median,
)

__all__ = [
    "Allocation",
    "Bracket",
    "CapacityClock",
    "ContentionClock",
    "Convention",
    "Envy",
    "EnvyFreeness",
    "FluidApp",
    "FluidResult",
    "JobLoad",
    "ParetoEfficiency",
    "PhaseLoad",
    "PhaseSums",
    "SharingIncentive",
    "Values",
    "best_case_rest",
    "best_rate",
    "declared_phases",
    "demand_max",
    "fluid_run",
    "forecast_load",
    "halving_counts",
    "halving_from_budget",
    "halving_from_max",
    "hyperband",
    "ideal_time",
    "is_envy_free",
    "is_pareto_efficient",
    "jain_index",
    "load_of",
    "longest_job",
    "median_job",
    "phase_demand",
    "phase_time",
    "phase_work",
    "reference_ideal_time",
    "remaining_phases",
    "restart_time",
    "rho",
    "rho_of_nothing",
    "serial_rest",
    "shared_time_by_curves",
    "sharing_incentive",
    "single_job_time",
    "stop_iteration",
    "time_from_sums",
    "total_work",
    "upper_median",
]
