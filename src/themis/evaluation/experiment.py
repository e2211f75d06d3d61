"""What an experiment is: the runs that it needs, and what follows from them.

    EXPERIMENT = Experiment("E10", "The knob f", "best near 0.8", study, plan, module=__name__)

    def plan(results: Results) -> Iterable[RunConfig]: ...     # which runs, given those so far
    def study(results: Results) -> Findings: ...               # claims, tables, figures

An experiment without runs has no plan. A search names more runs once it has seen the first ones: it
is asked again until it names no new one. All of this is data and functions of data, so that an
interrupted experiment resumes where it was.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from themis.evaluation.claims import NO_VALUE, CheckedClaim
from themis.evaluation.explanations import ExperimentNotes, explanation
from themis.evaluation.metric_table import MetricTable
from themis.evaluation.metrics import LITERAL, Metric
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.runs.result_cache import CachedRun, ResultCache
from themis.sim.runs.worker_pool import found

TUNING_SEEDS = range(1, 11)
REPORT_SEEDS = range(101, 131)
FEWER_REPORT_SEEDS = range(101, 111)
"""Seeds are fixed: policies are tuned on the first range, results are reported on the others."""
FEWEST_REPORT_SEEDS = range(101, 107)
"""As many as a verdict needs, for the mechanism as printed, whose runs take long."""

QUICK_APPS = 6
QUICK_SEEDS = 2


@dataclass(frozen=True, slots=True)
class Scope:
    """How much to do. The default is the evaluation as published."""

    quick: bool = False
    seeds: tuple[int, ...] = ()
    data: Path | None = None
    """The folder of other people's measurements, where there is one."""
    cluster: str = ""
    apps: int = 0
    """Another cluster and another number of apps for all experiments, to try something small."""

    def seeds_of(self, full: Sequence[int], quick: int) -> tuple[int, ...]:
        """The seeds asked for; else those of the evaluation, or the first few tuning seeds."""
        if self.seeds:
            return self.seeds
        return tuple(TUNING_SEEDS[:quick]) if self.quick else tuple(full)

    def base(
        self,
        workload: str,
        cluster: str = "testbed64",
        apps: int = 85,
        quick: int | None = None,
    ) -> RunConfig:
        """The run that an experiment varies; `quick` is the number of apps of a quick look."""
        few = QUICK_APPS if quick is None else quick
        count = self.apps or (min(apps, few) if self.quick else apps)
        return RunConfig(cluster=self.cluster or cluster, workload=workload, apps=count)


@dataclass(frozen=True, slots=True)
class Results:
    """The finished runs, read one at a time."""

    scope: Scope
    store: ResultCache
    on_read: Callable[[], None] = lambda: None
    """Called for every run that is read; reading thousands takes a while."""
    memo: dict[str, float] = field(default_factory=dict, compare=False)
    """Numbers of runs that a plan looks at again and again."""
    outdated: Callable[[RunConfig], bool] = lambda _: False
    """Whether a run will be made again; until then it counts as missing."""
    table: MetricTable = field(default_factory=MetricTable, compare=False)
    """Metrics of runs: its rows stand for runs, and measured runs are added to it."""

    def has(self, config: RunConfig) -> bool:
        """Whether this run is finished."""
        if repr(config) in self.table.given:
            return True
        return not self.outdated(config) and self.store.has(config)

    def record(self, config: RunConfig) -> CachedRun:
        """One run.

        Raises:
            UnavailableError: It is missing: no plan named it, or its file was removed.
        """
        self.on_read()
        return found(self.store, config)

    def find(self, config: RunConfig) -> CachedRun | None:
        """One run, or None while it is missing."""
        self.on_read()
        return self.store.load(config) if self.has(config) else None

    def numbers(
        self, config: RunConfig, metrics: Mapping[str, Metric]
    ) -> Mapping[str, float] | None:
        """Numbers of one run, or None while it is missing; NaN for what it lacks."""
        given = self.table.given.get(repr(config))
        if given is not None:
            return {name: given.get(name, math.nan) for name in metrics}
        record = self.find(config)
        if record is None:
            return None
        # The workload file of a run may have moved since the run was made.
        record = replace(record, config=config)
        found = {name: metric.of(record) for name, metric in metrics.items()}
        self.table.add(config, found)
        return found


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column, and the format of its numbers."""

    name: str
    form: str = ""


Row = tuple[str | float | int | None, ...]


@dataclass(frozen=True, slots=True)
class NumberTable:
    """Numbers behind a claim or a figure. Long tables are written to a file but not shown."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    shown: bool = True

    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as text."""
        return tuple(
            tuple(
                _cell(value, column.form) for value, column in zip(row, self.columns, strict=True)
            )
            for row in self.rows
        )


def _cell(value: str | float | None, form: str) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NO_VALUE.text
    return value if isinstance(value, str) else format(value, form)


def number_table(
    name: str, title: str, columns: dict[str, str] | Iterable[str], rows: Iterable[Row],
    *, shown: bool = True,
) -> NumberTable:  # fmt: skip
    """A table whose columns are names, or names with the format of their numbers."""
    forms = columns if isinstance(columns, dict) else dict.fromkeys(columns, "")
    heads = tuple(Column(head, form) for head, form in forms.items())
    return NumberTable(name, title, heads, tuple(rows), shown)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, drawn when it is needed."""

    name: str
    caption: str
    draw: Callable[[], Drawing]


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment found."""

    claims: tuple[CheckedClaim, ...]
    tables: tuple[NumberTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    """What holds for these runs only, such as what is missing; other notes are in Markdown."""
    lead: tuple[str, ...] = ()
    """Sentences for the first lines of the whole report. The part before the colon names the
    subject; if two chapters have the same subject, the report takes the later one."""


@dataclass(frozen=True, slots=True)
class ExtraData:
    """Data besides runs that an experiment needs: made once, and kept beside the runs."""

    title: str
    path: Path
    make: Callable[[Callable[[str], None]], bytes]
    """Makes it, and reports its progress."""

    @property
    def exists(self) -> bool:
        """Whether it was made."""
        return self.path.is_file()


def literal_seeds(_: RunConfig) -> Collection[int]:
    """The seeds on which the evaluation runs the mechanism as printed: enough for a verdict.

    Such a run takes ten to twenty times as long as one of another policy.
    """
    return FEWEST_REPORT_SEEDS


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure or table of the evaluation."""

    id: str
    title: str
    paper: str
    """What the paper says, in a sentence."""
    study: Callable[[Results], Findings]
    plan: Callable[[Results], Iterable[RunConfig]] = lambda _: ()
    extra_data: Callable[[Results], Iterable[ExtraData]] = lambda _: ()
    """What else it needs, after its runs."""
    literal: Callable[[RunConfig], Collection[int]] = literal_seeds
    """On which seeds it runs the mechanism as printed."""
    reads_data: bool = False
    """Whether it shows measured data where there is some."""
    grows: str = ""
    """The final number of runs, if it names more once it has seen the first."""
    module: str = ""
    """Its module; the explanations are the Markdown file beside it."""

    @property
    def explanation(self) -> ExperimentNotes:
        """Why its numbers are what they are."""
        return explanation(self.module)

    def wanted(self, results: Results) -> Iterator[RunConfig]:
        """The runs that the evaluation asks for: the plan, but LITERAL only on `literal` seeds.

        A quick look wants all of its plan, which is short.
        """
        for config in self.plan(results):
            if (
                config.policy != LITERAL
                or results.scope.quick
                or config.seed in self.literal(config)
            ):
                yield config
