"""From the names of experiments to a folder with everything they found.

chapters = reproduce(chosen(["E12", "E13"]), Scope(quick=True), Path("out"))

Runs are kept as soon as they are finished, in out/runs, and are found again by what they are. The
report tells of every experiment that the folder holds, not only of the ones just made.
"""

import csv
import io
import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from themis.errors import ConfigError
from themis.evaluation.experiment import LITERAL, Experiment, Results, Scope
from themis.evaluation.levers import family
from themis.evaluation.registry import EXPERIMENTS, holdings
from themis.evaluation.report.chapter import (
    NO_DATA,
    NO_SEED,
    Chapter,
    ChapterOrigin,
    chapter_file,
    read_chapters,
    same_scope,
    write_chapter,
)
from themis.evaluation.report.html_page import page
from themis.evaluation.report.provenance import commit_here, seed_text
from themis.evaluation.run_estimates import costs
from themis.recording.atomic_files import writable, write_whole
from themis.recording.codec import dumps
from themis.sim.config import RunConfig
from themis.sim.runs.result_cache import ResultCache, run_key
from themis.sim.runs.run_timing import UNKNOWN
from themis.sim.runs.worker_pool import Progress, cores, finish_all

REPORT = "report.html"

ENOUGH = 0.25
"""The part of a seed's runs from which on an experiment that is not finished is told of."""
MUCH = 0.5
"""And from which on it is told of even if all of them are of one kind."""

Forecast = Callable[[int, float, Sequence[str]], None]
"""Called before runs begin with how many there are, about how many seconds they will take, and what
may follow that is not counted."""


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
    policies: Collection[str] = (),
) -> Results:
    """Finish all runs that the experiments name, those of all of them side by side.

    Seed by seed, so that the time left can be told early and what is there can be compared. Once
    `stop` says so, no other run begins; of `policies`, if there are any, only those begin, and who
    names the mechanism as printed gets it on all seeds.
    `missing` tells what is left. With `fresh` a search sees no run before it was made again, or it
    would go the old way, and remember what the old runs told. Other arguments as in `reproduce`.
    """
    store = ResultCache(out / "runs", commit=commit_here())
    store.make()

    def heard() -> None:
        if progress is not None:
            progress(0, 1, "looking at what is there")

    done: set[str] = set()

    def outdated(config: RunConfig) -> bool:
        return fresh and _begins(config, policies) and repr(config) not in done

    results = Results(scope, store, heard, outdated=outdated)
    _check_policies(experiments, results, policies)
    all_there = replace(results, outdated=lambda _: False)
    while True:
        named = [config for item in experiments for config in _chosen(item, results, policies)]
        if fresh:  # Also what the evaluation does without, or old runs would be told beside new.
            named += [
                config
                for item in experiments
                for config in item.plan(results)
                if _begins(config, policies) and store.has(config)
            ]
        new = {repr(config): config for config in named if repr(config) not in done}
        if not new:
            _make_pieces(experiments, all_there, fresh=fresh, stop=stop, progress=progress)
            return all_there
        wanted = sorted(new.values(), key=lambda config: config.seed)
        todo = [config for config in wanted if fresh or not store.has(config)]
        cost = costs(todo, store.timings()) if todo else {}
        if todo and expect is not None:
            seconds = sum(cost.values()) / min(workers or cores(), len(todo))
            expect(len(todo), seconds, _to_follow(experiments, all_there, fresh=fresh))
        if finish_all(
            wanted, store, workers=workers, progress=progress, fresh=fresh, stop=stop, cost=cost
        ):
            return all_there
        done |= new.keys()


def _check_policies(
    experiments: Sequence[Experiment], results: Results, policies: Collection[str]
) -> None:
    """Nobody should believe that all runs of a policy are there which no experiment has."""
    if not policies:
        return
    named = {family(config.policy) for item in experiments for config in item.plan(results)}
    if strange := [name for name in policies if named and name not in named]:
        raise ConfigError("policies", ", ".join(strange), f"some of {', '.join(sorted(named))}")


def _to_follow(experiments: Sequence[Experiment], results: Results, *, fresh: bool) -> list[str]:
    """What nobody can count before the runs are there, or that is not made of runs."""
    scope = results.scope
    follow = []
    for item in experiments:
        if item.grows:
            in_all = "" if scope.quick or scope.seeds else f", {item.grows}"
            follow.append(f"{item.id} may name more when it has seen these{in_all}")
        pieces = [piece.what for piece in item.pieces(results) if fresh or not piece.there]
        if pieces:
            follow.append(f"{item.id} goes on with {' and '.join(pieces)}, which is not counted")
    return follow


def _begins(config: RunConfig, policies: Collection[str]) -> bool:
    return not policies or family(config.policy) in policies


def _chosen(
    experiment: Experiment, results: Results, policies: Collection[str]
) -> Iterator[RunConfig]:
    """The runs of an experiment that these policies have in it; those of all if none is named."""
    named = (config for config in experiment.wanted(results) if _begins(config, policies))
    if LITERAL not in policies:
        return named
    more = (config for config in experiment.plan(results) if config.policy == LITERAL)
    return iter({repr(config): config for config in (*named, *more)}.values())


def _make_pieces(
    experiments: Sequence[Experiment],
    results: Results,
    *,
    fresh: bool,
    stop: Callable[[], bool],
    progress: Progress | None,
) -> None:
    """Make what experiments need besides runs, one after the other, and keep each at once."""
    pieces = [(item, piece) for item in experiments for piece in item.pieces(results)]
    todo = [(item, piece) for item, piece in pieces if fresh or not piece.there]
    for done, (item, piece) in enumerate(todo):
        if stop():
            return

        def say(text: str, label: str = f"{item.id}: {piece.what}", done: int = done) -> None:
            if progress is not None:
                progress(done, len(todo), f"{label} {text}".rstrip())

        say("")
        write_whole(piece.path, piece.make(say))


def missing(experiment: Experiment, results: Results, policies: Collection[str] = ()) -> int:
    """How many runs an experiment still needs; a search may want more when it has seen them.

    Of `policies`, if there are any, only those that `run_experiments` begins with them.
    """
    runs = sum(not results.has(config) for config in _chosen(experiment, results, policies))
    return runs + sum(not piece.there for piece in experiment.pieces(results))


def left_out(experiment: Experiment, results: Results, policies: Collection[str]) -> int:
    """How many runs are missing that nobody begins, since they are of no policy that was chosen."""
    return sum(
        not _begins(config, policies) and not results.has(config)
        for config in experiment.wanted(results)
    )


def can_tell(experiment: Experiment, results: Results) -> bool:
    """Whether there is anything to tell: a fair part of some seed's runs, or none is needed.

    The few that an experiment shares with others, as the default of a sweep, say nothing of it: of
    some policy there must be two kinds of runs that can be compared, or half of all runs.
    """
    wanted: dict[int, list[RunConfig]] = {}
    there: dict[int, list[RunConfig]] = {}
    for config in experiment.wanted(results):
        wanted.setdefault(config.seed, []).append(config)
        if results.has(config):
            there.setdefault(config.seed, []).append(config)
    return not wanted or any(_tells(found, wanted[seed]) for seed, found in there.items())


def _tells(there: list[RunConfig], wanted: list[RunConfig]) -> bool:
    part = len(there) / len(wanted)
    return part >= MUCH or (part >= ENOUGH and _kinds(there) >= min(2, _kinds(wanted)))


def _kinds(configs: list[RunConfig]) -> int:
    """How many different runs some policy has on a seed."""
    return max(Counter(config.policy for config in configs).values())


def evaluate_there(results: Results, out: Path, progress: Progress | None = None) -> list[str]:
    """Evaluate what a folder holds runs of, without running anything.

    A chapter that is there and whole is left as it is, unless it is of another scope or some of its
    runs were made again since; experiments that need no runs are left to whoever asks for them.

    Returns:
        The experiments that were evaluated.
    """
    known = {chapter.id: chapter for chapter in read_chapters(out, EXPERIMENTS)[0]}
    done = []
    for name, experiment in EXPERIMENTS.items():
        chapter = known.get(name)
        whole = chapter and not chapter.origin.partial and same_scope(chapter, results.scope)
        if whole and not _made_since(experiment, results, out):
            continue
        if any(True for _ in experiment.wanted(results)) and can_tell(experiment, results):
            evaluate(experiment, results, out, progress)
            done.append(name)
    return done


def outdated(results: Results, out: Path) -> list[Experiment]:
    """Experiments whose chapter tells of runs that were made again since: others share them."""
    return [
        EXPERIMENTS[chapter.id]
        for chapter in read_chapters(out, EXPERIMENTS)[0]
        if same_scope(chapter, results.scope) and _made_since(EXPERIMENTS[chapter.id], results, out)
    ]


def of_other_scopes(scope: Scope, out: Path) -> dict[str, str]:
    """Chapters that tell of other seeds, or of a quick look, and what made them."""
    chapters = read_chapters(out, EXPERIMENTS)[0]
    return {each.id: each.origin.command for each in chapters if not same_scope(each, scope)}


def losing_data(scope: Scope, out: Path) -> list[str]:
    """Chapters that tell of measured data, which is not at hand now."""
    chapters = read_chapters(out, EXPERIMENTS)[0] if scope.data is None else ()
    return [
        each.id
        for each in chapters
        if EXPERIMENTS[each.id].reads_data and not each.scope.endswith(NO_DATA)
    ]


def _made_since(experiment: Experiment, results: Results, out: Path) -> bool:
    """Whether runs of an experiment are younger than its chapter."""
    told_at = chapter_file(out, experiment.id).stat().st_mtime_ns
    folder = results.store.folder
    younger = {path.stem for path in folder.glob("*.json") if path.stat().st_mtime_ns > told_at}
    younger |= {path.name for path in folder.glob("*.live") if path.stat().st_mtime_ns > told_at}
    if not younger:  # As a rule, and a plan may have to read thousands of runs.
        return False
    if any(piece.path.name in younger for piece in experiment.pieces(results)):
        return True
    return any(run_key(config) in younger for config in experiment.plan(results))


def _command(experiment: Experiment, scope: Scope) -> str:
    """What makes all of an experiment: nothing of the folders of who ran it."""
    quick = ["--quick"] if scope.quick else []
    seeds = ["--seeds", ",".join(map(str, scope.seeds))] if scope.seeds else []
    return shlex.join(["themis", "reproduce", experiment.id, *quick, *seeds])


def evaluate(
    experiment: Experiment,
    results: Results,
    out: Path,
    progress: Progress | None = None,
) -> Chapter:
    """What follows from the runs, written into the experiment's folder."""

    def say(text: str) -> None:
        if progress is not None:
            progress(0, 1, text)

    say(f"{experiment.id}: evaluating")
    origin = _origin(experiment, results)
    return write_chapter(experiment, experiment.study(results), results.scope, out, say, origin)


def _origin(experiment: Experiment, results: Results) -> ChapterOrigin:
    """Which code made the runs, on which seeds. The code that evaluates them may be newer."""
    wanted = list(experiment.wanted(results))
    there = {repr(config): config for config in experiment.plan(results) if results.has(config)}
    configs = list(there.values())
    distinct = {repr(config) for config in wanted}
    left = len(distinct - there.keys())
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
        # What is there beyond the plan does not make up for what is not.
        runs=len(distinct) - left if left else len(configs),
        wanted=len(distinct) if left else 0,
        of_seeds=asked if not seen.issuperset(config.seed for config in whole) else "",
        by_policy=_by_policy(wanted, results) if left else (),
    )


def _whole_plan(
    experiment: Experiment, results: Results, wanted: list[RunConfig]
) -> list[RunConfig]:
    """The runs that the evaluation asks for, whichever seeds of it were asked for now."""
    scope = results.scope
    if scope.quick or not scope.seeds:
        return wanted
    whole = list(experiment.wanted(replace(results, scope=replace(scope, seeds=()))))
    # Seeds that the evaluation does not know are not a part of it.
    known = {config.seed for config in whole}
    return whole if all(config.seed in known for config in wanted) else wanted


def _by_policy(wanted: list[RunConfig], results: Results) -> tuple[tuple[str, str], ...]:
    """The seeds of which each policy has all of its runs, policies with the same ones together."""
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
    """The page, and the claims for programs, of every experiment that the folder holds.

    One whose file is damaged is named on the page.
    """
    chapters, damaged, absent = holdings(out)
    svgs = {
        (chapter.id, picture.name): path.read_text("utf-8")
        for chapter in chapters
        for picture in chapter.pictures
        if picture.drawn and (path := out / chapter.id / f"{picture.name}.svg").is_file()
    }
    files = {
        REPORT: page(chapters, svgs, damaged, absent),
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
        ("experiment", "claim", "paper", "themis-paper", "themis", "verdict", "explanation",
         "scope", "runs", "wanted", "seeds")
    )  # fmt: skip
    for chapter in chapters:
        given = chapter.origin
        rests = (chapter.scope, given.runs, max(given.runs, given.wanted), given.seeds)
        for claim in chapter.claims:
            columns = (claim.paper, claim.themis_paper, claim.themis)
            texts = (column.text for column in columns)
            writer.writerow((chapter.id, claim.statement, *texts, claim.verdict, claim.explanation,
                             *rests))  # fmt: skip
    return text.getvalue()
