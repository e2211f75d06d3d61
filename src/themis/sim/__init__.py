"""The simulator: the same cores as the service, with a virtual clock and modelled jobs.

from themis.sim import RunConfig, compare, run
run(RunConfig(policy="themis", apps=20, seed=1)).summary
compare(["themis", "gandiva"], seeds=range(1, 6), base=RunConfig(apps=20)).to_dataframe()
"""

from themis.sim.compare import Comparison, compare, sweep
from themis.sim.config import RunConfig, prepare
from themis.sim.run import RunResult, run

__all__ = ["Comparison", "RunConfig", "RunResult", "compare", "prepare", "run", "sweep"]
