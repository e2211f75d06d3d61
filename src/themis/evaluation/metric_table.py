"""One small table of per-run metrics: enough for most claims, without the runs themselves.

    table = read_run_table(Path("docs/results/runs.csv"))
    e1.study(Results(Scope(), ResultCache(Path("none")), table=table)).claims

`themis reproduce --docs` writes it beside the page. E6, E9, E16 and E17 rest on more than the
metrics of a run, and E12 and E13 on no runs: they are not in it.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from themis.errors import ConfigError
from themis.evaluation.metrics import LITERAL, OURS
from themis.recording.atomic_files import write_whole
from themis.sim.config import RunConfig

METRICS = (
    "max_rho", "max_rho_alone", "spread_rho", "max_rho_ref", "share_fair", "completion_h",
    "fluid_h", "placed_fluid_h", "gpu_hours", "over_work", "placed", "slowed", "starting", "moves",
    "score", "over_floor", "placed_floor", "over_placed_floor", "most_fair", "auction_share",
    "long", "short", "long_ref", "short_ref",
)  # fmt: skip
"""The metrics that claims use."""
OF_PRESETS = frozenset(METRICS) - {
    "max_rho", "spread_rho", "max_rho_ref", "gpu_hours", "over_work", "slowed", "starting",
    "moves", "score", "long", "short", "long_ref", "short_ref",
}  # fmt: skip
"""Metrics that no claim uses of another policy than the two presets."""
KEYS = ("cluster", "contention", "workload", "apps", "seed", "policy", "load", "options")

Numbers = dict[str, float]


@dataclass(slots=True)
class MetricTable:
    """Metrics of runs: those read from a file, and those measured since."""

    given: dict[str, Numbers] = field(default_factory=dict)
    """By the `repr` of the configuration."""
    measured: dict[str, tuple[RunConfig, Numbers]] = field(default_factory=dict)

    def add(self, config: RunConfig, numbers: Mapping[str, float]) -> None:
        """Keep what was measured of a run."""
        _, known = self.measured.setdefault(repr(config), (config, {}))
        known.update(numbers)


def read_run_table(path: Path) -> MetricTable:
    """The metrics in a file.

    Raises:
        ConfigError: The file is damaged.
    """
    table = MetricTable()
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                numbers = {name: float(row[name]) for name in METRICS if row[name]}
                table.given[repr(_config(row))] = numbers
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError("file", str(error), "a readable table of runs", str(path)) from error
    return table


def _config(row: Mapping[str, str]) -> RunConfig:
    return RunConfig(
        row["cluster"],
        int(row["contention"]),
        row["workload"],
        int(row["apps"]),
        int(row["seed"]),
        row["policy"],
        float(row["load"]) if row["load"] else None,
        json.loads(row["options"] or "{}"),
    )


def write_run_table(path: Path, table: MetricTable) -> None:
    """Write what was measured, to six digits.

    Raises:
        ConfigError: The file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*KEYS, *METRICS))
    writer.writerows(_rows(table))
    write_whole(path, text.getvalue().encode(), "docs")


def _rows(table: MetricTable) -> Iterable[list[object]]:
    for config, numbers in table.measured.values():
        keys = [
            config.cluster,
            config.contention,
            Path(config.workload).name,
            config.apps,
            config.seed,
            config.policy,
            "" if config.load is None else config.load,
            json.dumps(config.options, separators=(",", ":")) if config.options else "",
        ]
        preset = config.policy in {OURS, LITERAL}
        names = (name if preset or name not in OF_PRESETS else "" for name in METRICS)
        yield [*keys, *(_text(numbers.get(name, math.nan)) for name in names)]


def _text(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""
