"""The scenarios of the bar: W1 and W2, the same with half of the machines, and the real trace.

runs(results)["W1 2x", "themis"]      # one run for each seed
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from themis.core.policies import policy_class, policy_options
from themis.evaluation import philly_workload
from themis.evaluation.experiment import QUICK_SEEDS, REPORT_SEEDS, Results
from themis.evaluation.macro_benchmark import policies
from themis.evaluation.metrics import OURS
from themis.evaluation.run_matrix import Cell, over
from themis.sim.config import RunConfig


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload at some load, on which all policies are compared."""

    name: str
    workload: str = ""
    contention: int = 1
    philly: str = ""
    """The load of the real trace, if the scenario runs it."""


GENERATED = (
    Scenario("W1", "w1"),
    Scenario("W2", "w2"),
    Scenario("W1 2x", "w1", 2),
    Scenario("W2 2x", "w2", 2),
)
REAL = tuple(Scenario(f"Philly {load}", philly=load) for load in philly_workload.SCALES)


CALLING: Mapping[str, str] = {
    "equal-share+call": "equal-share",
    "min-max-rho+call": "min-max-rho",
}
"""The strongest opponents with one of our levers: newcomers need not wait for a beat.

A default policy that is better only through a lever open to every policy would prove little.
"""


def rivals(results: Results) -> tuple[str, ...]:
    """All policies, ours and the stronger opponents too."""
    known = policies(results)
    return known if results.scope.quick else (*known, *CALLING)


def scenarios(results: Results) -> tuple[Scenario, ...]:
    """All scenarios; the real trace only where its file exists."""
    return (*GENERATED, *REAL) if philly_workload.at_hand(results) else GENERATED


def runs(results: Results) -> Mapping[tuple[str, str], list[RunConfig]]:
    """The runs of every scenario and policy, in the order of the seeds."""
    found: dict[tuple[str, str], list[RunConfig]] = {}
    for one in scenarios(results):
        each = [_base(results, one, seed) for seed in seeds_of(results)]
        cells = over({one.name: each[0]}, policies(results))
        for (_, policy), cell in {**cells, **_calling(results, one, cells)}.items():
            found[one.name, str(policy)] = [
                replace(base, policy=cell.policy, options=cell.options) for base in each
            ]
    return found


def _calling(
    results: Results, one: Scenario, cells: Mapping[Cell, RunConfig]
) -> dict[Cell, RunConfig]:
    gain = policy_options(policy_class(OURS))["call_in_gain"]
    return {
        (one.name, name): replace(
            cell := cells[one.name, CALLING[name]], options={**cell.options, "call_in_gain": gain}
        )
        for name in rivals(results)
        if name in CALLING
    }


def _base(results: Results, one: Scenario, seed: int) -> RunConfig:
    if one.philly:
        return philly_workload.for_seed(results, one.philly, seed)
    base = results.scope.base(one.workload)
    return replace(base, contention=one.contention, seed=seed)


def seeds_of(results: Results) -> tuple[int, ...]:
    """The seeds of all scenarios."""
    return results.scope.seeds_of(REPORT_SEEDS, QUICK_SEEDS)
