"""What an experiment leaves in its folder, and how it is found again.

write_chapter(experiment, findings, scope, Path("out"))     # out/E12/: CSV, SVG, PNG, findings.json
read_chapters(Path("out"))                                  # of all experiments that are there

So a report tells of experiments that were run one after another, on several days.
"""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from themis import __version__
from themis.errors import ConfigError, RefusedError
from themis.evaluation.experiment import Claim, Experiment, Figure, Findings, NumberTable, Scope
from themis.evaluation.report.provenance import seed_text
from themis.recording.atomic_files import writable, write_whole
from themis.recording.codec import decode, dumps, loads
from themis.sim.runs.run_timing import UNKNOWN

FILE = "findings.json"
WHOLE = "as the evaluation asks for"
NO_SEED = "none"
QUICK = "a quick look, not evidence"
NO_DATA = "; without measured data"


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure in a file beside the chapter, without its ending; empty if it was not drawn."""

    name: str
    caption: str
    drawn: bool


@dataclass(frozen=True, slots=True)
class ChapterTable:
    """A table as people read it, and the file with its numbers."""

    file: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class ChapterOrigin:
    """Where the numbers of a chapter come from."""

    commit: str = UNKNOWN
    """Of the code that made the runs; several where they were made on several days."""
    command: str = ""
    seeds: str = ""
    """Of the runs that are there."""
    runs: int = 0
    wanted: int = 0
    """Runs that the experiment asks for, if that is more than there are."""
    of_seeds: str = ""
    """All seeds that the evaluation asks for, if those are more."""
    by_policy: tuple[tuple[str, str], ...] = ()
    """Of a part: policies, and the seeds of which all their runs are there."""

    @property
    def partial(self) -> bool:
        """Whether there is more to run."""
        return self.wanted > self.runs

    @property
    def seeds_told(self) -> str:
        """As in `101-110 of 101-130`."""
        return f"{self.seeds} of {self.of_seeds}" if self.of_seeds else self.seeds


@dataclass(frozen=True, slots=True)
class Chapter:
    """An experiment as the report tells it. Plain data: the same runs give the same bytes."""

    themis: str
    origin: ChapterOrigin
    id: str
    title: str
    paper: str
    scope: str
    claims: tuple[Claim, ...]
    sheets: tuple[ChapterTable, ...]
    pictures: tuple[Picture, ...]
    notes: tuple[str, ...]
    files: tuple[str, ...]
    lead: tuple[str, ...] = ()

    @property
    def quick(self) -> bool:
        """Whether it is of a quick look, and no evidence."""
        return self.scope.startswith(QUICK)

    @property
    def mark(self) -> str:
        """What a reader of a single claim has to know: that it is not of the whole, if so."""
        return "quick look" if self.quick else "a part" if self.origin.partial else ""


def write_chapter(
    experiment: Experiment,
    findings: Findings,
    scope: Scope,
    out: Path,
    progress: Callable[[str], None] | None = None,
    origin: ChapterOrigin | None = None,
) -> Chapter:
    """Write the tables and figures of an experiment into its folder; its chapter comes last.

    Without matplotlib the figures are left out, and the chapter says so.

    Raises:
        ConfigError: Something cannot be written.
    """
    folder = out / experiment.id
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files: list[str] = []
    for table in findings.tables:
        write_whole(folder / f"{table.name}.csv", _csv(table))
        files.append(f"{table.name}.csv")
    pictures = []
    for figure in findings.figures:
        if progress is not None:
            progress(f"{experiment.id}: drawing {figure.name}")
        drawn = _drawn(figure, folder)
        files += [path.name for path in drawn]
        pictures.append(Picture(figure.name, figure.caption, bool(drawn)))
    chapter = Chapter(
        themis=__version__,
        origin=origin or ChapterOrigin(),
        id=experiment.id,
        title=experiment.title,
        paper=experiment.paper,
        scope=words(scope) + (NO_DATA if experiment.reads_data and scope.data is None else ""),
        claims=findings.claims,
        sheets=tuple(_sheet(table) for table in findings.tables if table.shown),
        pictures=tuple(pictures),
        notes=findings.notes,
        files=(*files, FILE),
        lead=findings.lead,
    )
    write_whole(folder / FILE, (dumps(chapter) + "\n").encode())
    return chapter


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
    """Whether a chapter tells of what is asked for now, with measured data at hand or without."""
    return chapter.scope.removesuffix(NO_DATA) == words(scope)


def _drawn(figure: Figure, folder: Path) -> list[Path]:
    try:
        drawing = figure.draw()
    except ConfigError as error:
        if error.key != "figures":
            raise
        return []
    with writable(folder):
        return drawing.save(folder / figure.name)


def _sheet(table: NumberTable) -> ChapterTable:
    columns = tuple(column.name for column in table.columns)
    return ChapterTable(f"{table.name}.csv", table.title, columns, table.texts())


def _csv(table: NumberTable) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column.name for column in table.columns)
    writer.writerows(table.rows)
    return text.getvalue().encode()


def words(scope: Scope) -> str:
    """How much was to be done, in a few words, but for the measured data that some read."""
    parts = [QUICK if scope.quick else WHOLE]
    if scope.seeds:
        parts.append(f"seeds {seed_text(scope.seeds)}")
    if scope.cluster:
        parts.append(f"cluster {scope.cluster}")
    if scope.apps:
        parts.append(f"{scope.apps} apps")
    return "; ".join(parts)
