"""From the names of experiments to a folder with everything they found.

chapters = reproduce(chosen(["E12", "E13"]), Scope(quick=True), Path("out"))

Runs are kept as soon as they are finished, in out/runs, and are found again by what they are. The
report tells of every experiment that the folder holds, not only of the ones just made.
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from themis.experiments.base import Experiment, Results, Scope
from themis.experiments.chapter import Chapter, Origin, read_chapters, write_chapter
from themis.experiments.estimates import forecast
from themis.experiments.provenance import commit_here, seed_text
from themis.experiments.registry import EXPERIMENTS
from themis.experiments.report import page
from themis.records.codec import dumps
from themis.sim.pool import Progress, cores, finish_all
from themis.sim.store import Store, writable, write_whole
from themis.sim.timing import UNKNOWN

REPORT = "report.html"

Forecast = Callable[[int, float], None]
"""Called before runs begin with how many there are and about how many seconds they will take."""


def reproduce(
    experiments: Sequence[Experiment],
    scope: Scope,
    out: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> list[Chapter]:
    """Run what is missing, evaluate the experiments, and write the report.

    Args:
        experiments: Which.
        scope: How much of them.
        out: The folder; what is there is used.
        workers: Processes at the same time; all cores unless said.
        progress: Hears how far the runs are.
        fresh: Run also what is there already.

    Raises:
        ConfigError: Something that cannot be, or cannot be written.
        ThemisError: A run failed; those that finished are kept.
    """
    results = run_experiments(
        experiments, scope, out, workers=workers, progress=progress, fresh=fresh
    )
    chapters = [evaluate(experiment, results, out) for experiment in experiments]
    write_report(out)
    return chapters


def run_experiments(
    experiments: Sequence[Experiment],
    scope: Scope,
    out: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
    stop: Callable[[], bool] = lambda: False,
    expect: Forecast | None = None,
) -> Results:
    """Finish all runs that the experiments name, those of all of them side by side.

    Seed by seed, so that the time left can be told early and what is there can be compared. Once
    `stop` says so, no other run begins; `missing` tells what is left. Other arguments as in
    `reproduce`.
    """
    store = Store(out / "runs", commit=commit_here())
    store.make()

    def heard() -> None:
        if progress is not None:
            progress(0, 1, "looking at what is there")

    results = Results(scope, store, heard)
    done: set[str] = set()
    while True:
        named = [config for item in experiments for config in item.plan(results)]
        new = {repr(config): config for config in named if repr(config) not in done}
        if not new:
            return results
        wanted = sorted(new.values(), key=lambda config: config.seed)
        todo = [config for config in wanted if fresh or not store.has(config)]
        if todo and expect is not None:
            expect(len(todo), forecast(todo, store.timings()) / min(workers or cores(), len(todo)))
        if finish_all(wanted, store, workers=workers, progress=progress, fresh=fresh, stop=stop):
            return results
        done |= new.keys()


def missing(experiment: Experiment, results: Results) -> int:
    """How many runs an experiment still needs; a search may want more when it has seen them."""
    return sum(not results.has(config) for config in experiment.plan(results))


def evaluate(
    experiment: Experiment,
    results: Results,
    out: Path,
    progress: Progress | None = None,
    command: str = "",
) -> Chapter:
    """What follows from the runs, written into the experiment's folder."""

    def say(text: str) -> None:
        if progress is not None:
            progress(0, 1, text)

    say(f"{experiment.id}: evaluating")
    origin = _origin(experiment, results, command)
    return write_chapter(experiment, experiment.study(results), results.scope, out, say, origin)


def _origin(experiment: Experiment, results: Results, command: str) -> Origin:
    """Which code made the runs, on which seeds. The code that evaluates them may be newer."""
    configs = list(experiment.plan(results))
    commits = set()
    for config in configs:
        timing = results.store.timing(config)
        commits.add(UNKNOWN if timing is None else timing.commit)
    return Origin(
        commit="; ".join(sorted(commits)) or commit_here(),
        command=command,
        seeds=seed_text(config.seed for config in configs),
        runs=len(configs),
    )


def write_report(out: Path) -> list[Path]:
    """The page, and the claims for programs, of every experiment that the folder holds.

    One whose file is damaged is named on the page.
    """
    chapters, damaged = read_chapters(out, EXPERIMENTS)
    svgs = {
        (chapter.id, picture.name): path.read_text("utf-8")
        for chapter in chapters
        for picture in chapter.pictures
        if picture.drawn and (path := out / chapter.id / f"{picture.name}.svg").is_file()
    }
    files = {
        REPORT: page(chapters, svgs, damaged),
        "claims.csv": _claims_csv(chapters),
        "report.json": json.dumps(report_data(chapters), indent=1) + "\n",
    }
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_whole(out / name, text.encode())
    return [out / name for name in files]


def report_data(chapters: Sequence[Chapter]) -> list[dict[str, object]]:
    """The chapters as plain data."""
    data: list[dict[str, object]] = json.loads(dumps(list(chapters)))
    return data


def _claims_csv(chapters: Sequence[Chapter]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("experiment", "claim", "paper", "themis-paper", "themis", "verdict", "explanation")
    )
    for chapter in chapters:
        for claim in chapter.claims:
            columns = (claim.paper, claim.themis_paper, claim.themis)
            texts = (column.text for column in columns)
            writer.writerow((chapter.id, claim.statement, *texts, claim.verdict, claim.explanation))
    return text.getvalue()
