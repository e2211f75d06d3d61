"""The simulator: the same cores as the service, with a virtual clock and modelled jobs.

from themis.sim import RunConfig, run
run(RunConfig(policy="themis", apps=20, seed=1)).summary
"""

from themis.sim.config import RunConfig, prepare
from themis.sim.run import RunResult, run

__all__ = ["RunConfig", "RunResult", "prepare", "run"]
