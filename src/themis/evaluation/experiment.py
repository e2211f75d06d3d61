"""What an experiment is: the runs it needs, and what follows from them.

    EXPERIMENT = Experiment("E10", "The knob f", "best near 0.8", study, plan)

    def plan(results: Results) -> Iterable[RunConfig]: ...     # which runs, given those so far
    def study(results: Results) -> Findings: ...               # claims, tables, figures

An experiment without runs has no plan. One that searches names more runs when it has seen the first
ones: it is asked again until it names no new one. All of this is data and functions of data, so an
interrupted experiment goes on where it was.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.runs.result_cache import CachedRun, ResultCache
from themis.sim.runs.worker_pool import found

TUNING_SEEDS = range(1, 11)
REPORT_SEEDS = range(101, 131)
FEWER_REPORT_SEEDS = range(101, 111)
"""Seeds are chosen once: policies are tuned on the first, results are told of the others."""
FEWEST_REPORT_SEEDS = range(101, 107)
"""As many as a verdict needs, for the mechanism as printed, which takes long."""
OURS, LITERAL = "themis", "themis-paper"

QUICK_APPS = 6
QUICK_SEEDS = 2


@dataclass(frozen=True, slots=True)
class Scope:
    """How much to do. Without a word it is the evaluation as published."""

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
        """The run that an experiment varies; `quick` is how many apps are enough for a look."""
        few = QUICK_APPS if quick is None else quick
        count = self.apps or (min(apps, few) if self.quick else apps)
        return RunConfig(cluster=self.cluster or cluster, workload=workload, apps=count)


@dataclass(frozen=True, slots=True)
class Results:
    """The finished runs, read one at a time."""

    scope: Scope
    store: ResultCache
    heard: Callable[[], None] = lambda: None
    """Called for every run that is read, which takes a while when there are thousands."""
    memo: dict[str, float] = field(default_factory=dict, compare=False)
    """Numbers of runs that a plan looks at again and again."""
    outdated: Callable[[RunConfig], bool] = lambda _: False
    """Tells the runs that are to be made again: until then they are not there."""

    def has(self, config: RunConfig) -> bool:
        """Whether this run is there."""
        return not self.outdated(config) and self.store.has(config)

    def record(self, config: RunConfig) -> CachedRun:
        """One run.

        Raises:
            UnavailableError: It is not there: no plan named it, or somebody removed it.
        """
        self.heard()
        return found(self.store, config)

    def find(self, config: RunConfig) -> CachedRun | None:
        """One run, or nothing: of an evaluation that is not finished what there is can be told."""
        self.heard()
        return self.store.load(config) if self.has(config) else None


class Verdict(StrEnum):
    """What became of a claim, judged by the column `themis`."""

    HOLDS = "holds"
    PARTLY = "partly"
    FAILS = "does not hold"
    OPEN = "undecided"
    """The interval is too wide to tell."""
    GIVEN = "by construction"
    """We put it in: finding it again checks us, not the paper."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something that a table says, as text and, where it is a number, with its interval."""

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        # A run may lack a number; the text says so, and files have no word for it.
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                object.__setattr__(self, name, None)


NOTHING = Told("-")
_OWN = "(ours)"
OWN_BAR = Told(f"- {_OWN}")
"""What the paper's column has beside a bar of our own."""
MOST_DIGITS = 4


def told(
    value: float,
    form: str = ".2f",
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    limit: float | None = None,
) -> Told:
    """A number with its unit and 95 % interval, `form` as in .2f.

    An end that is near a `limit` gets as many digits as tell on which side of it it is.
    """
    if not math.isfinite(value):
        return NOTHING
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return Told(f"{value:{form}}{unit}", value)
    if limit is not None:
        sign, digits = form[:-2], int(form[-2])
        while digits < MOST_DIGITS and any(
            end != limit and round(end, digits) == limit for end in (low, high)
        ):
            digits += 1
        form = f"{sign}{digits}f"
    text = f"{value:{form}}{unit}"
    return Told(f"{text} ({low:{form}} to {high:{form}})", value, low, high)


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the paper against what we find."""

    statement: str
    paper: Told
    themis_paper: Told
    themis: Told
    verdict: Verdict
    explanation: str
    by_policy: bool = True
    """Whether the two columns of ours tell of policies; otherwise they are the same."""

    @property
    def ours(self) -> bool:
        """Whether it is a bar of our own, which the paper says nothing of."""
        return self.paper.text.endswith(_OWN)


def alike(statement: str, paper: Told, ours: Told, verdict: Verdict, explanation: str) -> Claim:
    """A claim on which no policy has a say."""
    return Claim(statement, paper, ours, ours, verdict, explanation, by_policy=False)


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column, and how its numbers are printed for people."""

    name: str
    form: str = ""


Row = tuple[str | float | int | None, ...]


@dataclass(frozen=True, slots=True)
class NumberTable:
    """Numbers behind a claim or a figure. Long ones are for programs only."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    shown: bool = True

    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as people read them."""
        return tuple(
            tuple(
                _cell(value, column.form) for value, column in zip(row, self.columns, strict=True)
            )
            for row in self.rows
        )


def _cell(value: str | float | None, form: str) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING.text
    return value if isinstance(value, str) else format(value, form)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, drawn when it is needed."""

    name: str
    caption: str
    draw: Callable[[], Drawing]


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment found."""

    claims: tuple[Claim, ...]
    tables: tuple[NumberTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader has to know: what was chosen, what is missing."""
    lead: tuple[str, ...] = ()
    """Sentences that belong to the first lines of the whole report; up to the colon they say what
    they are about, and of two chapters that tell of the same the later one is heard."""


@dataclass(frozen=True, slots=True)
class ExtraData:
    """Something besides runs that an experiment rests on: made once, and kept beside them."""

    what: str
    """For people."""
    path: Path
    make: Callable[[Callable[[str], None]], bytes]
    """Makes it, and says now and then how far it is."""

    @property
    def there(self) -> bool:
        """Whether it was made."""
        return self.path.is_file()


def literal_seeds(_: RunConfig) -> Collection[int]:
    """The seeds on which the mechanism as printed has this run, if nobody names it.

    It takes ten to twenty times as long as another policy: it has as many as a verdict needs.
    """
    return FEWEST_REPORT_SEEDS


def _no_runs(_: Results) -> Iterable[RunConfig]:
    return ()


def _no_pieces(_: Results) -> Iterable[ExtraData]:
    return ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure or table of the evaluation."""

    id: str
    title: str
    paper: str
    """What the paper says, in a sentence."""
    study: Callable[[Results], Findings]
    plan: Callable[[Results], Iterable[RunConfig]] = _no_runs
    pieces: Callable[[Results], Iterable[ExtraData]] = _no_pieces
    """What else it needs, after its runs."""
    literal: Callable[[RunConfig], Collection[int]] = literal_seeds
    """On which seeds it runs the mechanism as printed."""
    reads_data: bool = False
    """Whether it shows measured data where there is some."""
    grows: str = ""
    """How many runs it comes to, if it names more when it has seen the first."""

    def wanted(self, results: Results) -> Iterator[RunConfig]:
        """Its plan without what the evaluation can do without, as above. What is there is used.

        A quick look has all of its plan: it was made to be short.
        """
        for config in self.plan(results):
            if (
                config.policy != LITERAL
                or results.scope.quick
                or config.seed in self.literal(config)
            ):
                yield config
