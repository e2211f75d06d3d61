"""What an experiment leaves in its folder, and how it is found again.

write_chapter(experiment, findings, scope, Path("out"))     # out/E12/: CSV, SVG, PNG, findings.json
read_chapters(Path("out"), EXPERIMENTS)                     # of all experiments in the folder

So a report covers experiments that were run one after another, on several days.
"""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from themis import __version__
from themis.errors import ConfigError, RefusedError
from themis.evaluation.claims import CheckedClaim
from themis.evaluation.experiment import Experiment, Figure, Findings, NumberTable, Scope
from themis.evaluation.explanations import ExperimentNotes
from themis.evaluation.provenance import seed_text
from themis.recording.atomic_files import writable, write_whole
from themis.recording.codec import decode, dumps, loads
from themis.sim.runs.run_timing import UNKNOWN

FILE = "findings.json"
WHOLE = "as the evaluation asks for"
NO_SEED = "none"
QUICK = "a quick look, not evidence"
NO_DATA = "; without measured data"


@dataclass(frozen=True, slots=True)
class ChapterFigure:
    """A figure in a file beside the chapter, by its name without the suffix."""

    name: str
    caption: str
    drawn: bool


@dataclass(frozen=True, slots=True)
class ChapterTable:
    """A table as text, and the file with its numbers."""

    file: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class ChapterOrigin:
    """Where the numbers of a chapter come from."""

    commit: str = UNKNOWN
    """Of the code that made the runs; several if they were made on several days."""
    command: str = ""
    seeds: str = ""
    """Of the finished runs."""
    runs: int = 0
    wanted: int = 0
    """The runs that the experiment asks for, if some are missing."""
    of_seeds: str = ""
    """All seeds that the evaluation asks for, if some are missing."""
    by_policy: tuple[tuple[str, str], ...] = ()
    """If some are missing: policies, and the seeds of which all their runs are finished."""

    @property
    def partial(self) -> bool:
        """Whether runs are missing."""
        return self.wanted > self.runs

    @property
    def seeds_text(self) -> str:
        """As in `101-110 of 101-130`."""
        return f"{self.seeds} of {self.of_seeds}" if self.of_seeds else self.seeds


@dataclass(frozen=True, slots=True)
class Chapter:
    """An experiment in the report. Plain data: the same runs give the same bytes."""

    themis: str
    origin: ChapterOrigin
    id: str
    title: str
    paper: str
    scope: str
    claims: tuple[CheckedClaim, ...]
    tables: tuple[ChapterTable, ...]
    figures: tuple[ChapterFigure, ...]
    notes: tuple[str, ...]
    explanations: tuple[tuple[str, str], ...]
    """Headings, and why the numbers of the claims under them are what they are."""
    files: tuple[str, ...]
    lead: tuple[str, ...] = ()

    @property
    def quick(self) -> bool:
        """Whether it is of a quick look, which is no evidence."""
        return self.scope.startswith(QUICK)

    @property
    def mark(self) -> str:
        """A warning beside each claim of a chapter that is not of the whole evaluation."""
        return "quick look" if self.quick else "a part" if self.origin.partial else ""

    @property
    def share(self) -> str:
        """The scope, and how many of its runs are finished if some are missing."""
        given = self.origin
        if not given.partial:
            return self.scope
        scope = self.scope.removesuffix(NO_DATA)
        part = scope.replace(WHOLE, f"a part of what {WHOLE.removeprefix('as ')}", 1)
        if part == scope:
            part = f"{part}, not finished"
        return f"{part}: {given.runs} of {given.wanted} runs{self.scope[len(scope) :]}"

    @property
    def extent(self) -> str:
        """The share of an experiment that the chapter rests on, with its seeds."""
        given = self.origin
        if not given.partial:
            return f"{self.scope}; seeds {given.seeds_text}" if given.of_seeds else self.scope
        return f"{self.share}, on seeds {given.seeds_text} ({_complete(given.by_policy)})"

    @property
    def made(self) -> str:
        """The version, the commit, the runs and the command, in a sentence."""
        given = self.origin
        count = f"{given.runs} of {given.wanted}" if given.partial else f"{given.runs}"
        runs = f", {count} runs, seeds {given.seeds_text}" if given.runs else ", no runs"
        command = f": {given.command}" if given.command else ""
        return f"Themis {self.themis}, commit {given.commit}{runs}{command}."


def _complete(by_policy: tuple[tuple[str, str], ...]) -> str:
    """The seeds of which policies have all their runs."""
    if len(by_policy) == 1:
        ((_, seeds),) = by_policy
        return "no seed has all of its runs" if seeds == NO_SEED else f"all runs of seeds {seeds}"
    each = (
        f"{names} on {'no seed' if seeds == NO_SEED else f'seeds {seeds}'}"
        for names, seeds in by_policy
    )
    return f"all runs of {'; '.join(each)}"


def write_chapter(
    experiment: Experiment,
    findings: Findings,
    scope: Scope,
    out: Path,
    progress: Callable[[str], None] = lambda _: None,
    origin: ChapterOrigin | None = None,
) -> Chapter:
    """Write the tables and figures of an experiment into its folder, and its chapter last.

    Without matplotlib the figures are left out, and the chapter records it.

    Raises:
        ConfigError: A file cannot be written.
    """
    folder = out / experiment.id
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files: list[str] = []
    for table in findings.tables:
        write_whole(folder / f"{table.name}.csv", _csv(table))
        files.append(f"{table.name}.csv")
    figures = []
    for figure in findings.figures:
        progress(f"{experiment.id}: drawing {figure.name}")
        drawn = _drawn(figure, folder)
        files += [path.name for path in drawn]
        figures.append(ChapterFigure(figure.name, figure.caption, bool(drawn)))
    explanation = experiment.explanation
    chapter = Chapter(
        themis=__version__,
        origin=origin or ChapterOrigin(),
        id=experiment.id,
        title=experiment.title,
        paper=experiment.paper,
        scope=scope_text(scope) + (NO_DATA if experiment.reads_data and scope.data is None else ""),
        claims=findings.claims,
        tables=tuple(_chapter_table(table) for table in findings.tables if table.shown),
        figures=tuple(figures),
        notes=(*explanation.notes, *findings.notes),
        explanations=_used(explanation, findings.claims),
        files=(*files, FILE),
        lead=findings.lead,
    )
    write_whole(folder / FILE, (dumps(chapter) + "\n").encode())
    return chapter


def _used(
    explanation: ExperimentNotes, claims: Iterable[CheckedClaim]
) -> tuple[tuple[str, str], ...]:
    headings = {claim.why for claim in claims}
    return tuple(section for section in explanation.sections if section[0] in headings)


def chapter_file(out: Path, name: str) -> Path:
    """Where the chapter of an experiment is, if there is one."""
    return out / name / FILE


def read_chapters(out: Path, ids: Iterable[str]) -> tuple[list[Chapter], list[str]]:
    """The chapters in a folder, in the order of `ids`, and the ids of those that are damaged."""
    chapters, damaged = [], []
    for name in ids:
        path = chapter_file(out, name)
        if not path.exists():
            continue
        try:
            chapters.append(decode(Chapter, loads(path.read_text("utf-8"))))
        except (OSError, UnicodeDecodeError, RefusedError):
            damaged.append(name)
    return chapters, damaged


def same_scope(chapter: Chapter, scope: Scope) -> bool:
    """Whether a chapter has the scope that is asked for now, with or without measured data."""
    return chapter.scope.removesuffix(NO_DATA) == scope_text(scope)


def _drawn(figure: Figure, folder: Path) -> list[Path]:
    try:
        drawing = figure.draw()
    except ConfigError as error:
        if error.key != "figures":
            raise
        return []
    with writable(folder):
        return drawing.save(folder / figure.name)


def _chapter_table(table: NumberTable) -> ChapterTable:
    columns = tuple(column.name for column in table.columns)
    return ChapterTable(f"{table.name}.csv", table.title, columns, table.texts())


def _csv(table: NumberTable) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column.name for column in table.columns)
    writer.writerows(table.rows)
    return text.getvalue().encode()


def scope_text(scope: Scope) -> str:
    """A scope in a few words, without the measured data."""
    parts = [QUICK if scope.quick else WHOLE]
    if scope.seeds:
        parts.append(f"seeds {seed_text(scope.seeds)}")
    if scope.cluster:
        parts.append(f"cluster {scope.cluster}")
    if scope.apps:
        parts.append(f"{scope.apps} apps")
    return "; ".join(parts)
