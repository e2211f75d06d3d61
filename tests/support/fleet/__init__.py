"""A deterministic simulation of service, nodes and network, with faults and a checker.

from tests.support.fleet import FleetSim
FleetSim(seed=7).run()   # raises InvariantError if a GPU is used twice, a token is old, ...
"""

from tests.support.fleet.fault_rates import CALM, SERVICE_ONLY, STORM, Weather
from tests.support.fleet.invariants import Checker
from tests.support.fleet.mutants import DEFENCES, IN_DEPTH, Broken
from tests.support.fleet.simulation import FleetSim, Result, run_seeds

__all__ = [
    "CALM",
    "DEFENCES",
    "IN_DEPTH",
    "SERVICE_ONLY",
    "STORM",
    "Broken",
    "Checker",
    "FleetSim",
    "Result",
    "Weather",
    "run_seeds",
]
