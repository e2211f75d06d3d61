"""What `themis reproduce` does; a module of its own, since its imports take a while."""

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import typer
from rich.text import Text

from themis.cli.common.interruption import ending_alike
from themis.cli.common.output import FAILED, console, counted, note, print_json, span, table
from themis.cli.common.progress import talking_bar
from themis.cli.compare import policy_names, seed_numbers
from themis.cli.reproduce import DATA_VARIABLE
from themis.core.policies import POLICIES
from themis.errors import ConfigError, unknown_name
from themis.evaluation import (
    EXPERIMENTS,
    Chapter,
    Experiment,
    Results,
    Scope,
    can_tell,
    chosen,
    evaluate,
    evaluate_all,
    evaluate_others,
    left_out,
    missing,
    reporting,
    run_experiments,
    verify,
)
from themis.evaluation.metric_table import MetricTable
from themis.evaluation.report.document import claim_table
from themis.evaluation.report.markdown import check_page, write_results
from themis.recording.atomic_files import check_folder
from themis.sim.gc_tuning import spare_memory_checks
from themis.sim.runs.archive import check_archive, pack, unpack
from themis.sim.runs.result_cache import ResultCache

LONG = 20.0
"""An estimate is shown from this many seconds on."""


@dataclass(frozen=True)
class ReproduceRequest:
    """The options of the command."""

    names: tuple[str, ...]
    scope: Scope
    out: Path
    policies: tuple[str, ...]
    minutes: float | None
    docs: Path | None
    unpack: Path | None
    pack: Path | None
    workers: int | None
    fresh: bool
    json: bool

    @cached_property
    def wanted(self) -> list[Experiment]:
        """The experiments of these names."""
        return chosen(self.names)


def data_folder() -> Path | None:
    """The folder of measured data that THEMIS_DATA names, if any.

    Raises:
        ConfigError: It is no folder.
    """
    named = os.environ.get(DATA_VARIABLE, "")
    if not named:
        return None
    if not Path(named).is_dir():
        raise ConfigError(DATA_VARIABLE, named, "a folder of measured data, or nothing")
    if not any(Path(named).glob("*.csv")):
        note(f"{DATA_VARIABLE}: {named} has no CSV file, so that no measured data is used")
    return Path(named)


def parse_scope(quick: bool, seeds: str | None) -> Scope:
    """The scope that the flags ask for."""
    numbers = () if seeds is None else tuple(dict.fromkeys(seed_numbers(seeds)))
    if seeds is not None and not numbers:
        raise ConfigError("seeds", seeds, "at least one seed")
    return Scope(quick=quick, seeds=numbers, data=data_folder())


def parse_policies(text: str | None) -> tuple[str, ...]:
    """The policies whose runs begin; none stands for all."""
    if text is None or text.strip() == "all":
        return ()
    names = tuple(policy_names(text))
    if not names:
        raise ConfigError("policies", text, "at least one policy")
    for name in names:
        if name not in POLICIES:
            raise unknown_name("policies", name, list(POLICIES))
    return names


def check_named(request: ReproduceRequest, policies: str | None, count: int | None) -> None:
    """Refuse --policies and --verify without names, and --verify beside flags that write."""
    if policies is not None and not request.names:
        raise ConfigError("policies", policies, "only with names of experiments, or `all`")
    flags = {"--docs": request.docs, "--pack": request.pack, "--fresh": request.fresh or None,
             "--minutes": request.minutes}  # fmt: skip
    given = [flag for flag, value in flags.items() if value is not None]
    if count is not None and (given or not request.names):
        beside = f", not beside {given[0]}" if given else ""
        raise ConfigError("verify", count, f"only with names of experiments, or `all`{beside}")


def _prepare(request: ReproduceRequest) -> None:
    """Find mistakes and places that cannot be written before hours of runs, and add runs."""
    if request.fresh and request.minutes is not None:
        raise ConfigError("minutes", f"{request.minutes:g} with --fresh", "one of them: for all "
                          "runs anew and in parts, another --out")  # fmt: skip
    _ = request.wanted
    out, archive = request.out, request.pack
    if request.names or request.unpack is not None:
        check_folder(out, "out")
    if request.docs is not None:
        check_page(request.docs)
    # The folder of the runs may still be missing.
    if archive is not None and (out.exists() or archive.absolute().parent != out.absolute()):
        check_archive(archive)
    if request.unpack is not None:
        _unpack(request.unpack, out)


# Listing


def list_experiments(request: ReproduceRequest) -> None:
    """Show all experiments with the number of their runs."""
    scope = request.scope
    with talking_bar("counting runs", numbers=False):
        runs = {name: _planned(item, scope) for name, item in EXPERIMENTS.items()}
    if request.json:
        print_json(
            {
                name: {"title": item.title, "paper": item.paper, "runs": runs[name]}
                for name, item in EXPERIMENTS.items()
            }
        )
        return
    few = scope.quick or scope.seeds
    rows = table("Experiments: themis reproduce NAME... or all", "name", "title", "runs", "")
    rows.columns[1].justify = rows.columns[3].justify = "left"
    for name, item in EXPERIMENTS.items():
        rows.add_row(name, item.title, str(runs[name] or "none"), "" if few else item.grows)
    console().print(rows)
    more = "" if scope.data is not None else f"; E15 has more with {DATA_VARIABLE}"
    note(f"experiments share runs, which are made once{more}")


def _planned(experiment: Experiment, scope: Scope) -> int:
    """How many runs an experiment names before any is finished."""
    with TemporaryDirectory(prefix="themis-") as empty:
        plan = experiment.wanted(Results(scope, ResultCache(Path(empty) / "runs")))
        return len({repr(config) for config in plan})


# Running and evaluating


@dataclass(slots=True)
class _Outcome:
    chapters: list[Chapter] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    """Runs that each unfinished experiment still needs, of the chosen policies."""
    others: dict[str, int] = field(default_factory=dict)
    """Missing runs of other policies."""
    files: list[Path] = field(default_factory=list)
    table: MetricTable | None = None


def make_report(request: ReproduceRequest) -> None:
    """Run and evaluate experiments; the exit code is 1 while runs are missing."""
    _prepare(request)
    done = _carry_out(request)
    if request.json:
        print_json(
            {
                "experiments": reporting.report_data(done.chapters),
                "unfinished": done.left,
                "left_of_other_policies": done.others,
                "files": [str(path) for path in done.files],
            }
        )
    else:
        _show(done.chapters)
        for path in done.files:
            note(f"written: {path}")
    if request.docs is not None:
        # Also of a part, which is marked as such: an evaluation may take days.
        _write_docs(request.out, request.docs, done.table, json=False)
    if request.pack is not None:
        _pack(request.out, request.pack)
    _show_left(done, request)
    if done.left:
        raise typer.Exit(FAILED)


def _carry_out(request: ReproduceRequest) -> _Outcome:
    spare_memory_checks()
    end = None if request.minutes is None else time.monotonic() + 60.0 * request.minutes
    with (
        _resumable(request.out, fresh=request.fresh),
        talking_bar("checking", numbers=False, at_once=True) as bar,
    ):
        results = run_experiments(
            request.wanted,
            request.scope,
            request.out,
            workers=request.workers,
            progress=lambda done, total, text: bar.update(done, text, total),
            fresh=request.fresh,
            stop=lambda: end is not None and time.monotonic() >= end,
            expect=lambda *expected: _show_expected(expected, request.minutes),
            policies=request.policies,
        )
    with _resumable(request.out, fresh=False):
        return _evaluate(request, results)


def _evaluate(request: ReproduceRequest, results: Results) -> _Outcome:
    found = _Outcome(table=results.table)
    total = len(request.wanted)
    with talking_bar("evaluating", total, even=False) as bar:
        for done, experiment in enumerate(request.wanted):

            def show(_: int, __: int, text: str, done: int = done) -> None:
                bar.begin(done, text)

            def on_read(done: int = done) -> None:
                bar.update(done)

            audible = replace(results, on_read=on_read)
            bar.begin(done, f"{experiment.id}: evaluating")
            if left := missing(experiment, audible, request.policies):
                found.left[experiment.id] = left
            if others := left_out(experiment, audible, request.policies):
                found.others[experiment.id] = others
            if can_tell(experiment, audible):
                found.chapters.append(evaluate(experiment, audible, request.out, show))
        if request.fresh:
            bar.begin(total, "evaluating other experiments with these runs")
            evaluate_others(results, request.out, request.wanted)
        bar.begin(total, "writing the report")
        found.files = reporting.write_report(request.out)
    return found


@contextmanager
def _resumable(out: Path, *, fresh: bool) -> Iterator[None]:
    """After an interrupt, explain how to continue."""
    try:
        with ending_alike():
            yield
    except KeyboardInterrupt:
        if fresh:
            note(f"some runs in {out} were made again and others not; --fresh begins anew")
        elif any((out / "runs").glob("*.json")):
            note(f"finished runs are in {out}; the same command resumes there")
        else:
            note("no run was finished; the same command begins anew")
        raise


def _show(chapters: Sequence[Chapter]) -> None:
    for chapter in chapters:
        claims = claim_table(chapter.claims, details=False)
        rows = table(f"{chapter.id}: {chapter.title} ({chapter.share})", *claims.columns)
        for row in claims.rows:
            rows.add_row(*(Text(str(cell)) for cell in row))
        console().print(rows)


def _show_expected(expected: tuple[int, float, Sequence[str]], minutes: float | None) -> None:
    """Before runs begin, so that a user does not start a night of work by mistake."""
    runs, seconds, follow = expected
    more = "".join(f"; {text}" for text in follow)
    if minutes == 0:
        much = f"{counted(runs, 'run')} missing, roughly {span(seconds)}"
        note(f"{much}; none is begun (--minutes 0){more}")
    elif seconds >= LONG or follow:
        much = f"{counted(runs, 'run')} to do, roughly {span(seconds)}"
        end = "" if minutes is None else f"; none is begun after {span(60.0 * minutes)}"
        note(f"{much}; finished runs are kept{end}{more}")


def _show_left(done: _Outcome, request: ReproduceRequest) -> None:
    for name, count in done.left.items():
        note(f"{name}: {counted(count, 'run')} left")
    for name, count in done.others.items():
        note(f"{name}: {counted(count, 'run')} of other policies left")
    if done.left:
        without = " without --minutes 0" if request.minutes == 0 else ""
        note(f"not finished; the same command{without} resumes there")
    elif done.others:
        whose = ", ".join(request.policies)
        note(
            f"all runs of {whose} that are named so far are finished; the same command without "
            "--policies makes the others"
        )


# Without running


def convert(request: ReproduceRequest) -> None:
    """Unpack, write the page or pack, without running anything."""
    _prepare(request)
    if request.docs is not None:
        runs = _evaluate_all(request)
        _write_docs(request.out, request.docs, runs, json=request.json)
    if request.pack is not None:
        _pack(request.out, request.pack)
    if request.docs is None and request.pack is None:
        following = ["themis", "reproduce", "all", "--out", str(request.out), "--minutes", "0"]
        note(f"to evaluate them without running more: {shlex.join(following)}")


def _evaluate_all(request: ReproduceRequest) -> MetricTable | None:
    store = ResultCache(request.out / "runs")
    if not store.folder.is_dir():
        return None
    with talking_bar("reading finished runs", numbers=False, at_once=True) as bar:
        results = Results(request.scope, store, lambda: bar.update(0))
        if evaluate_all(results, request.out, lambda _, __, text: bar.begin(0, text)):
            bar.begin(0, "writing the report")
            reporting.write_report(request.out)
    return results.table


def _write_docs(out: Path, page: Path, runs: MetricTable | None, *, json: bool) -> None:
    with talking_bar("writing the page", numbers=False, at_once=True):
        files = write_results(out, page, runs)
    if json:
        print_json({"files": [str(path) for path in files]})
        return
    for path in files:
        note(f"written: {path}")


def _unpack(archive: Path, out: Path) -> None:
    with talking_bar("unpacking", numbers=False, at_once=True) as bar:
        came = unpack(archive, out / "runs", lambda done: bar.update(0, f"unpacking: {done} files"))
    had = f", {came.there} existed" if came.there else ""
    what = f"{counted(came.runs, 'run')} ({counted(came.files, 'file')}{had})"
    note(f"added from {archive} to {out / 'runs'}: {what}")


def _pack(out: Path, archive: Path) -> None:
    with talking_bar("packing", numbers=False, at_once=True) as bar:
        count = pack(out / "runs", archive, lambda done: bar.update(0, f"packing: {done} files"))
    note(f"written: {archive}, with {counted(count, 'file')} of runs")


# Verifying


def verify_runs(request: ReproduceRequest, count: int) -> None:
    """Make finished runs again; the exit code is 1 if one of them differs."""
    _prepare(request)
    spare_memory_checks()
    store = ResultCache(request.out / "runs")
    with talking_bar("reading finished runs", numbers=False, at_once=True) as bar:
        checked = verify(
            request.wanted,
            Results(request.scope, store, lambda: bar.update(0)),
            count,
            policies=request.policies,
            workers=request.workers,
            progress=lambda done, total, text: bar.update(done, text, total),
        )
    wrong = sum(bool(one.differences) for one in checked)
    if request.json:
        print_json([asdict(one) for one in checked])
    elif checked:
        rows = table("Runs made again", "run", "made with", "now")
        rows.columns[-1].justify = "left"
        for one in checked:
            rows.add_row(one.label, one.commit, "; ".join(one.differences) or "the same")
        console().print(rows)
    if not checked:
        note(f"{request.out} has no finished run of these{_other_scope(request, store)}")
    elif wrong:
        note(f"{wrong} of {counted(len(checked), 'run')} differ")
    if wrong or not checked:
        raise typer.Exit(FAILED)


def _other_scope(request: ReproduceRequest, store: ResultCache) -> str:
    """A hint if the folder has runs of the other size."""
    other = replace(request.scope, quick=not request.scope.quick)
    results = Results(other, store)
    if not any(results.has(one) for item in request.wanted for one in item.plan(results)):
        return ""
    return ", but some of --quick: add it" if other.quick else ", but some without --quick"
