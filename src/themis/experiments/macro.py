"""The macro-benchmark: W1 and W2 on the testbed, all policies. The runs of E1, E2 and E4."""

from themis.experiments.base import REPORT_SEEDS, Results
from themis.experiments.matrix import Matrix, over
from themis.policies import POLICIES

WORKLOADS = ("w1", "w2")
OURS, LITERAL = "themis", "themis-paper"
PAPERS = ("gandiva", "tiresias", "optimus", "slaq")
"""The paper's own opponents."""
QUICK = (OURS, LITERAL, "equal-share", *PAPERS)


def policies(results: Results) -> tuple[str, ...]:
    """Which policies are run: all, or for a quick look the paper's and the natural opponent."""
    return QUICK if results.scope.quick else tuple(POLICIES)


def matrix(results: Results) -> Matrix:
    """Cells are (workload, policy)."""
    scope = results.scope
    return Matrix(
        over({name: scope.base(name) for name in WORKLOADS}, policies(results)),
        scope.seeds_of(REPORT_SEEDS, quick=3),
    )
