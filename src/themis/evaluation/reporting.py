"""Evaluates finished runs: a chapter for each experiment, and one report for the folder.

chapters = reproduce(chosen(["E12", "E13"]), Scope(quick=True), Path("out"))

The report covers every experiment that the folder holds, not only those of this call.
"""

import csv
import io
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from themis.evaluation.experiment import Experiment, Results, Scope
from themis.evaluation.levers import family
from themis.evaluation.provenance import commit_here, seed_text
from themis.evaluation.registry import EXPERIMENTS, holdings
from themis.evaluation.report.chapter import (
    NO_SEED,
    Chapter,
    ChapterOrigin,
    read_chapters,
    same_scope,
    write_chapter,
)
from themis.evaluation.report.document import document
from themis.evaluation.report.html import page
from themis.evaluation.runner import run_experiments
from themis.recording.atomic_files import writable, write_whole
from themis.recording.codec import dumps
from themis.sim.config import RunConfig
from themis.sim.runs.run_timing import UNKNOWN
from themis.sim.runs.worker_pool import Progress

REPORT = "report.html"

ENOUGH = 0.25
"""The part of a seed's runs from which on an unfinished experiment is reported."""
MUCH = 0.5
"""The part from which on it is reported even if all of them are of one kind."""


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

    Arguments and errors as in `run_experiments`.
    """
    results = run_experiments(
        experiments, scope, out, workers=workers, progress=progress, fresh=fresh
    )
    chapters = [evaluate(experiment, results, out) for experiment in experiments]
    write_report(out)
    return chapters


def can_tell(experiment: Experiment, results: Results) -> bool:
    """Whether an experiment has enough runs to report: a fair part of some seed's, or needs none.

    The few runs that it shares with others, such as the default of a sweep, say nothing about it:
    it needs two comparable kinds of runs of some policy, or half of all runs.
    """
    wanted: dict[int, list[RunConfig]] = {}
    finished: dict[int, list[RunConfig]] = {}
    for config in experiment.wanted(results):
        wanted.setdefault(config.seed, []).append(config)
        if results.has(config):
            finished.setdefault(config.seed, []).append(config)
    return not wanted or any(_enough(found, wanted[seed]) for seed, found in finished.items())


def _enough(finished: list[RunConfig], wanted: list[RunConfig]) -> bool:
    part = len(finished) / len(wanted)
    return part >= MUCH or (part >= ENOUGH and _kinds(finished) >= min(2, _kinds(wanted)))


def _kinds(configs: list[RunConfig]) -> int:
    """How many different runs some policy has on a seed."""
    return max(Counter(config.policy for config in configs).values())


def evaluate_all(results: Results, out: Path, progress: Progress | None = None) -> list[str]:
    """Evaluate every experiment of which a folder holds runs, without running any.

    Returns:
        The experiments that were evaluated. Those that need no runs are left as they are.
    """
    done = []
    for name, experiment in EXPERIMENTS.items():
        if any(True for _ in experiment.wanted(results)) and can_tell(experiment, results):
            evaluate(experiment, results, out, progress)
            done.append(name)
    return done


def evaluate_others(results: Results, out: Path, done: Sequence[Experiment]) -> None:
    """Evaluate the other chapters of a folder again: they may share runs that were replaced."""
    for chapter in read_chapters(out, EXPERIMENTS)[0]:
        experiment = EXPERIMENTS[chapter.id]
        if experiment not in done and same_scope(chapter, results.scope):
            evaluate(experiment, results, out)


def _command(experiment: Experiment, scope: Scope) -> str:
    """The command for an experiment, without the folders of the machine that ran it."""
    quick = ["--quick"] if scope.quick else []
    seeds = ["--seeds", ",".join(map(str, scope.seeds))] if scope.seeds else []
    return shlex.join(["themis", "reproduce", experiment.id, *quick, *seeds])


def evaluate(
    experiment: Experiment,
    results: Results,
    out: Path,
    progress: Progress | None = None,
) -> Chapter:
    """Study the runs, and write the chapter into the experiment's folder."""

    def say(text: str) -> None:
        if progress is not None:
            progress(0, 1, text)

    say(f"{experiment.id}: evaluating")
    origin = _origin(experiment, results)
    return write_chapter(experiment, experiment.study(results), results.scope, out, say, origin)


def _origin(experiment: Experiment, results: Results) -> ChapterOrigin:
    """The code and the seeds of the runs. The code that evaluates them may be newer."""
    wanted = list(experiment.wanted(results))
    finished = {repr(config): config for config in experiment.plan(results) if results.has(config)}
    configs = list(finished.values())
    distinct = {repr(config) for config in wanted}
    left = len(distinct - finished.keys())
    commits = set()
    for config in configs:
        timing = results.store.timing(config)
        commits.add(UNKNOWN if timing is None else timing.commit)
    seen = {config.seed for config in configs}
    seeds = seed_text(seen)
    whole = _whole_plan(experiment, results, wanted)
    asked = seed_text(config.seed for config in whole)
    return ChapterOrigin(
        commit="; ".join(sorted(commits)) or commit_here(),
        command=_command(experiment, results.scope),
        seeds=seeds,
        # Runs beyond the plan do not make up for missing ones.
        runs=len(distinct) - left if left else len(configs),
        wanted=len(distinct) if left else 0,
        of_seeds=asked if not seen.issuperset(config.seed for config in whole) else "",
        by_policy=_by_policy(wanted, results) if left else (),
    )


def _whole_plan(
    experiment: Experiment, results: Results, wanted: list[RunConfig]
) -> list[RunConfig]:
    """The runs of the whole evaluation, whichever of its seeds were asked for now."""
    scope = results.scope
    if scope.quick or not scope.seeds:
        return wanted
    whole = list(experiment.wanted(replace(results, scope=replace(scope, seeds=()))))
    # Other seeds than those of the evaluation are no part of it.
    known = {config.seed for config in whole}
    return whole if all(config.seed in known for config in wanted) else wanted


def _by_policy(wanted: list[RunConfig], results: Results) -> tuple[tuple[str, str], ...]:
    """The seeds of which each policy has all of its runs, grouped by equal seeds."""
    lacking = {(family(one.policy), one.seed) for one in wanted if not results.has(one)}
    seeds: dict[str, set[int]] = {}
    for config in wanted:
        whole = seeds.setdefault(family(config.policy), set())
        if (family(config.policy), config.seed) not in lacking:
            whole.add(config.seed)
    groups: dict[str, list[str]] = {}
    for policy, whole in seeds.items():
        groups.setdefault(seed_text(whole) or NO_SEED, []).append(policy)
    return tuple((", ".join(names), text) for text, names in groups.items())


def write_report(out: Path) -> list[Path]:
    """The page and the claims as data, of every experiment that the folder holds."""
    chapters, damaged, missing = holdings(out)
    svgs = {
        (chapter.id, figure.name): path.read_text("utf-8")
        for chapter in chapters
        for figure in chapter.figures
        if figure.drawn and (path := out / chapter.id / f"{figure.name}.svg").is_file()
    }
    files = {
        REPORT: page(document(chapters, damaged, missing), svgs),
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
        ("experiment", "id", "claim", "paper", "themis-paper", "themis", "verdict", "beside it",
         "scope", "runs", "wanted", "seeds")
    )  # fmt: skip
    for chapter in chapters:
        given = chapter.origin
        extent = (chapter.scope, given.runs, max(given.runs, given.wanted), given.seeds)
        for claim in chapter.claims:
            columns = (claim.paper, claim.themis_paper, claim.themis)
            texts = (column.text for column in columns)
            writer.writerow((chapter.id, claim.id, claim.statement, *texts, claim.verdict,
                             claim.details_text, *extent))  # fmt: skip
    return text.getvalue()
