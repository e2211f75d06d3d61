"""Apps that want less than their fair share, measured apart from all others.

modest(record.config)      # the ids of those that want less, the same for every policy

An app that can use less than a private 1/N of the cluster loses nothing by sharing but time spent
waiting and good places. An app that wants more is compared with the share itself.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId
from themis.evaluation.experiment import Column, NumberTable, Row
from themis.evaluation.metrics import Measure, Metric
from themis.evaluation.run_matrix import MatrixNumbers
from themis.sim.config import RunConfig, prepare
from themis.sim.metrics import FAIR, reference, within_share
from themis.sim.runs.result_cache import CachedRun


def modest(config: RunConfig) -> frozenset[AppId]:
    """The apps of a run whose demand is below their share in the reference.

    Raises:
        ConfigError: Its workload is a file that is missing.
    """
    return _modest(
        config.cluster, config.contention, config.workload, config.apps, config.seed, config.load
    )


@lru_cache(maxsize=256)  # policies on the same apps come one after the other
def _modest(
    cluster: str, contention: int, workload: str, apps: int, seed: int, load: float | None
) -> frozenset[AppId]:
    made = prepare(RunConfig(cluster=cluster, contention=contention, workload=workload,
                             apps=apps, seed=seed, load=load))  # fmt: skip
    return within_share(made.workload, made.topology, reference(made.workload, made.topology))


def _of(
    number: Callable[[Sequence[float]], float], *, below: bool, empty: float = math.nan
) -> Measure:
    def measure(record: CachedRun) -> float:
        few = modest(record.config)
        found = [app.rho_ref[Convention.FAIR_SHARE] for app in record.apps
                 if (app.app in few) is below]  # fmt: skip
        return number(found) if found else empty

    return measure


def _fair(values: Sequence[float]) -> float:
    return sum(value <= FAIR for value in values) / len(values)


METRICS = {
    f"{kind}_{name}": Metric(
        _of(number, below=below, empty=0.0 if name == "apps" else math.nan),
        f"{title} {'below' if below else 'above'}",
        form,
    )
    for kind, below in (("modest", True), ("other", False))
    for name, title, form, number in (
        ("apps", "apps", ".1f", len),
        ("rho", "max rho_ref", ".2f", max),
        ("fair", "fair", ".1%", _fair),
    )
}


def apart_table(measured: MatrixNumbers) -> NumberTable:
    """Both kinds under every policy: means over the seeds that have such apps."""
    rows: list[Row] = [
        (*cell, *(_mean(measured.values(name, cell)) for name in METRICS))
        for cell in measured.by_cell
    ]
    columns = (Column("scenario"), Column("policy"),
               *(Column(one.title, one.form) for one in METRICS.values()))  # fmt: skip
    title = "Apps whose demand is below their share, and those above: means over seeds"
    return measured.on_seeds(NumberTable("apart", title, columns, tuple(rows)))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan
