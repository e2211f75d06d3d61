"""A deterministic simulation of service, nodes and network, with faults and a checker.

from themis.testing.fleet import FleetSim
FleetSim(seed=7).run()   # raises InvariantError if a GPU is used twice, a token is old, ...
"""

from themis.testing.fleet.broken import DEFENCES, IN_DEPTH, Broken
from themis.testing.fleet.checker import Checker
from themis.testing.fleet.simulation import FleetSim, Result, run_seeds
from themis.testing.fleet.weather import CALM, SERVICE_ONLY, STORM, Weather

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
