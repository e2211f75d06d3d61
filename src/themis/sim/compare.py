"""Policies compared over seeds, and any key swept: means with intervals, tables, figures.

comparison = compare(["themis", "gandiva"], seeds=range(1, 6), base=RunConfig(apps=20))
comparison.estimates("themis")["max_rho_ref"].mean
sweep("f", [0.0, 0.5, 0.8, 1.0], ["themis"], seeds=[1, 2, 3]).to_dataframe()

All policies see the same apps for the same seed.
"""

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from themis import __version__
from themis.display import Displayed, Sheet, Table
from themis.errors import ConfigError, unknown_name
from themis.sim.config import RunConfig, allowed_keys
from themis.sim.run import Segment
from themis.sim.runs.data_frames import app_rows, frame
from themis.sim.runs.result_cache import CachedRun, ResultCache
from themis.sim.runs.worker_pool import Progress, run_all

if TYPE_CHECKING:
    from themis.sim.figures.plot_style import Drawing

# Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_Z95 = 1.95996

FLAGS = tuple(item.name for item in fields(RunConfig) if item.name not in {"options", "policy"})
"""Keys of a run that are no options."""


@dataclass(frozen=True, slots=True)
class SummaryMetric:
    """A number of a summary that runs are compared by."""

    name: str
    label: str
    key: str
    convention: str = ""
    form: str = ".2f"

    def of(self, summary: Mapping[str, Any]) -> float:
        """Its value; NaN where the run had none."""
        value = summary[self.key]
        if self.convention:
            value = value[self.convention]
        return math.nan if value is None else float(value)


METRICS = (
    SummaryMetric("max_rho_ref", "max rho_ref", "max_rho_ref", "fair_share"),
    SummaryMetric("p95_rho_ref", "p95", "p95_rho_ref", "fair_share"),
    SummaryMetric("share_fair_ref", "share fair", "share_fair_ref", "fair_share", ".0%"),
    SummaryMetric("mean_completion_h", "completion h", "mean_completion_h", form=".1f"),
    SummaryMetric("gpu_hours", "GPU hours", "gpu_hours", form=".0f"),
    SummaryMetric("moves", "moves", "moves", form=".0f"),
)
WIDE_METRICS = (
    SummaryMetric("max_rho_ref_paper", "max rho_ref", "max_rho_ref", "paper"),
    SummaryMetric("p95_rho_ref_paper", "p95", "p95_rho_ref", "paper"),
    SummaryMetric("share_fair_ref_paper", "share fair", "share_fair_ref", "paper", ".0%"),
    SummaryMetric("p95_completion_h", "p95 compl. h", "p95_completion_h", form=".1f"),
    SummaryMetric("makespan_h", "makespan h", "makespan_h", form=".0f"),
    SummaryMetric("placement_score", "placement", "placement_score", form=".3f"),
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds with its 95 % interval (Student's t); one run has none."""

    mean: float
    half: float | None
    runs: int

    def shown(self, form: str) -> str:
        """For people: 1.30 ± 0.05; a dash where the runs had no such number."""
        if not math.isfinite(self.mean):
            return "-"
        mean = format(self.mean, form)
        return mean if self.half is None else f"{mean} ± {format(self.half, form).rstrip('%')}"


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of independent values and how far from it the true one may well be."""
    mean = fmean(values)
    if len(values) < 2 or not math.isfinite(mean):
        return Estimate(mean, None, len(values))
    return Estimate(
        mean, t95(len(values) - 1) * stdev(values) / math.sqrt(len(values)), len(values)
    )


def t95(freedom: int) -> float:
    """The two-sided 95 % point of Student's t."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    # The first terms of the expansion around the normal's point; good to 3 digits from here on.
    return _Z95 + (_Z95**3 + _Z95) / (4 * freedom)


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs of one policy, and of one value when a key is swept, over all seeds."""

    policy: str
    value: Any
    runs: tuple[CachedRun, ...]

    def estimates(self) -> dict[str, Estimate]:
        """Every metric over the seeds."""
        return {
            metric.name: estimate([metric.of(run.summary) for run in self.runs])
            for metric in (*METRICS, *WIDE_METRICS)
        }


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """What a comparison gives. `swept` is the key that was varied, if one was."""

    groups: tuple[RunGroup, ...]
    swept: str | None = None
    segments: tuple[Segment, ...] = ()
    """Who held which GPU when in the first run; the other runs' would fill the memory."""

    def __repr__(self) -> str:
        # All of it would fill a notebook.
        over = f", {self.swept} of {', '.join(map(str, self.values))}" if self.swept else ""
        runs = sum(len(group.runs) for group in self.groups)
        return f"Comparison({', '.join(self.policies)}{over}; runs: {runs})"

    def _sheet(self) -> Sheet:
        first = f"{self.swept}, policy" if self.swept else "policy"
        columns = (first, "seeds", *(metric.label for metric in METRICS))
        rows = []
        for group in self.groups:
            found = group.estimates()
            label = f"{group.value}, {group.policy}" if self.swept else group.policy
            cells = (found[metric.name].shown(metric.form) for metric in METRICS)
            rows.append((label, len(group.runs), *cells))
        note = "rho_ref, fair share; fair: at most 1.05; mean ± 95 % interval over seeds"
        return Sheet("", (Table(columns, tuple(rows)),), (note,))

    @property
    def policies(self) -> list[str]:
        """In the order they were given."""
        return list(dict.fromkeys(group.policy for group in self.groups))

    @property
    def values(self) -> list[Any]:
        """The values of the swept key, in the order they were given."""
        return list(dict.fromkeys(group.value for group in self.groups))

    def estimates(self, policy: str, value: Any = None) -> dict[str, Estimate]:
        """Every metric of one policy (and value) over the seeds."""
        for group in self.groups:
            if (group.policy, group.value) == (policy, value):
                return group.estimates()
        raise unknown_name("policy", policy, self.policies)

    def run_rows(self) -> list[dict[str, Any]]:
        """One flat row for each run."""
        return [
            {**self._head(group, run), **_flat(run.summary)}
            for group in self.groups
            for run in group.runs
        ]

    def app_rows(self) -> list[dict[str, Any]]:
        """One flat row for each app of each run."""
        return [
            {**self._head(group, run), **row}
            for group in self.groups
            for run in group.runs
            for row in app_rows(run.apps)
        ]

    def to_dataframe(self, per: str = "run") -> Any:
        """A pandas DataFrame with a row per `run` or per `app`.

        Raises:
            ConfigError: pandas is missing, or `per` is neither.
        """
        rows = {"run": self.run_rows, "app": self.app_rows}
        if per not in rows:
            raise unknown_name("per", per, rows)
        return frame(rows[per]())

    def to_dict(self) -> dict[str, Any]:
        """Everything but the apps, as plain data: the same for the same runs."""
        return {
            "themis": __version__,
            "swept": self.swept,
            "groups": [
                {
                    "policy": group.policy,
                    **({self.swept: group.value} if self.swept else {}),
                    "seeds": [run.config.seed for run in group.runs],
                    "metrics": {
                        name: {
                            "mean": item.mean if math.isfinite(item.mean) else None,
                            "half_width_95": item.half,
                            "runs": item.runs,
                        }
                        for name, item in group.estimates().items()
                    },
                    "runs": [dict(run.summary) for run in group.runs],
                }
                for group in self.groups
            ],
        }

    def plot(self, kind: str | None = None) -> "Drawing":
        """A figure: `rho`, `usage`, `placement`, `timeline` of the first run, or `sweep`.

        Raises:
            ConfigError: No such figure, or matplotlib is missing.
        """
        from themis.sim.figures.run_figures import comparison_figure  # noqa: PLC0415 - it imports this module

        return comparison_figure(self, kind)

    def _head(self, group: RunGroup, run: CachedRun) -> dict[str, Any]:
        swept = {self.swept: group.value} if self.swept else {}
        return {"policy": group.policy, "seed": run.config.seed, **swept}


def compare(
    policies: Sequence[str],
    seeds: Iterable[int],
    base: RunConfig | None = None,
    *,
    out: Path | str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> Comparison:
    """Run every policy on every seed.

    Args:
        policies: Names, or `module:Class`.
        seeds: The same for all policies.
        base: Everything else. An option goes to the policies that know it.
        out: Where finished runs are kept, for a second call to find them.
        workers: Processes at the same time; all cores unless said. A script that wants more than
            one needs `if __name__ == "__main__":`, as with every pool of processes.
        progress: Hears of apps finished, apps in all, and a word on what is done.
        fresh: Run again what is there.

    Raises:
        ConfigError: Something that cannot be; nothing was run.
    """
    cells = [(name, None, config) for name, config in _over(base or RunConfig(), policies)]
    return _run(cells, seeds, None, out, workers, progress, fresh=fresh)


def sweep(
    key: str,
    values: Sequence[Any],
    policies: Sequence[str],
    seeds: Iterable[int],
    base: RunConfig | None = None,
    *,
    out: Path | str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> Comparison:
    """Run every policy on every seed for every value of one key; see `compare`.

    Raises:
        ConfigError: Something that cannot be; nothing was run.
    """
    if not values or len({repr(value) for value in values}) < len(values):
        raise ConfigError("values", list(values), "at least one value, and none twice")
    start = base or RunConfig()
    if key in {"policy", "seed"}:
        raise ConfigError("key", key, "any other: policies and seeds have lists of their own")
    cells = [
        (name, value, config)
        for value in values
        for name, config in _over(with_value(start, key, value), policies)
    ]
    return _run(cells, seeds, key, out, workers, progress, fresh=fresh)


def with_value(config: RunConfig, key: str, value: Any) -> RunConfig:
    """The configuration with one key, flag or option, set."""
    if key not in FLAGS:
        return replace(config, options={**config.options, key: value})
    if key in {"cluster", "workload"}:
        value = str(value)
    change: dict[str, Any] = {key: value}
    return replace(config, **change)


def _over(base: RunConfig, policies: Sequence[str]) -> Iterator[tuple[str, RunConfig]]:
    """The base for each policy, with the options that it knows.

    Raises:
        ConfigError: No policy, one twice, or an option that none of them knows.
    """
    if not policies or len(set(policies)) < len(policies):
        raise ConfigError("policies", ",".join(policies), "at least one policy, and none twice")
    known = {name: allowed_keys(name, base.workload) for name in policies}
    for key in base.options:
        if not any(key in keys for keys in known.values()):
            allowed = {*FLAGS, *(name for keys in known.values() for name in keys)}
            raise unknown_name("key", key, allowed)
    for name in policies:
        options = {key: value for key, value in base.options.items() if key in known[name]}
        yield name, replace(base, policy=name, options=options)


def _run(
    cells: Sequence[tuple[str, Any, RunConfig]],
    seeds: Iterable[int],
    swept: str | None,
    out: Path | str | None,
    workers: int | None,
    progress: Progress | None,
    *,
    fresh: bool,
) -> Comparison:
    chosen = list(seeds)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError("seeds", chosen, "at least one seed, and none twice")
    configs = [replace(config, seed=seed) for _, _, config in cells for seed in chosen]
    if out is None:
        with tempfile.TemporaryDirectory(prefix="themis-") as folder:
            store = ResultCache(Path(folder))
            records = run_all(configs, store, workers=workers, progress=progress, fresh=fresh)
            return _grouped(cells, records, swept, store)
    store = ResultCache(Path(out) / "runs")
    records = run_all(configs, store, workers=workers, progress=progress, fresh=fresh)
    return _grouped(cells, records, swept, store)


def _grouped(
    cells: Sequence[tuple[str, Any, RunConfig]],
    records: Sequence[CachedRun],
    swept: str | None,
    store: ResultCache,
) -> Comparison:
    each = len(records) // len(cells)
    groups = tuple(
        RunGroup(policy, value, tuple(records[each * place : each * (place + 1)]))
        for place, (policy, value, _) in enumerate(cells)
    )
    return Comparison(groups, swept, store.segments(groups[0].runs[0].config))


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """One level: {"max_rho": {"paper": 1}} becomes {"max_rho_paper": 1}."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        inner = _flat(value, f"{prefix}{key}_") if isinstance(value, Mapping) else None
        flat |= {prefix + key: value} if inner is None else inner
    return flat
