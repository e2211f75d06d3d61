"""Apps that want less than their fair share, and all others: told apart.

modest(record.config)      # the ids of those that want less, the same for every policy

Who can use less than a private 1/N of the cluster loses nothing by sharing, so that what is left is
how long it waits and where it is put. Whoever wants more is held against the share itself.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId
from themis.evaluation.experiment import Column, NumberTable, Row
from themis.evaluation.run_matrix import MatrixNumbers, Measure
from themis.sim.config import RunConfig, prepare
from themis.sim.metrics import FAIR, reference, within_share
from themis.sim.runs.result_cache import CachedRun

COLUMNS = {
    "modest_apps": Column("apps below", ".1f"),
    "modest_rho": Column("max rho_ref below", ".2f"),
    "modest_fair": Column("fair below", ".1%"),
    "other_apps": Column("apps above", ".1f"),
    "other_rho": Column("max rho_ref above", ".2f"),
    "other_fair": Column("fair above", ".1%"),
}


def modest(config: RunConfig) -> frozenset[AppId]:
    """The apps of a run whose demand is below their share in the reference.

    Raises:
        ConfigError: Its workload is a file that is not there any more.
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


MEASURES = {
    f"{kind}_{name}": _of(number, below=below, empty=0.0 if name == "apps" else math.nan)
    for kind, below in (("modest", True), ("other", False))
    for name, number in (("apps", len), ("rho", max), ("fair", _fair))
}


def apart_table(measured: MatrixNumbers) -> NumberTable:
    """Both kinds under every policy: means over the seeds on which there are any."""
    rows: list[Row] = []
    for cell in measured.by_cell:
        means = (_mean(measured.values(name, cell)) for name in COLUMNS)
        rows.append((str(cell[0]), str(cell[1]), *means))
    columns = (Column("scenario"), Column("policy"), *COLUMNS.values())
    title = "Apps whose demand is below their share, and those above: means over seeds"
    return measured.on_seeds(NumberTable("apart", title, columns, tuple(rows)))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan
