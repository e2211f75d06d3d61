"""`themis reproduce`: the experiments of the paper, with a report of every claim."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.common import options
from themis.cli.common.interruption import ending_alike
from themis.cli.common.output import FAILED, console, counted, note, print_json, span, table
from themis.cli.common.progress import talking_bar
from themis.cli.compare import Fresh, Workers, policy_names, seed_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from themis.evaluation import Chapter, Experiment, Scope
    from themis.sim.runs.result_cache import ResultCache

DATA_VARIABLE = "THEMIS_DATA"
LONG = 20.0
"""Seconds from which on it is worth saying how long something will take."""


def reproduce(
    experiments: Annotated[
        list[str] | None, typer.Argument(metavar="[E1 E2 ... | all]", help="Which; none: a list.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer apps, seeds and policies: a look, no evidence.")
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Other seeds than the evaluation's: 1-5, or 1,2,7.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Runs, data, figures and the report; resumes what is there.")
    ] = Path("reproduce-out"),
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Begin no run after so many minutes; the same command goes on."),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(help="Begin only runs of these policies: themis,equal-share; or all."),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(help="Write what --out holds as this Markdown page, figures beside it."),
    ] = None,
    unpack: Annotated[
        Path | None, typer.Option(help="First take the runs in this file; --out keeps its own.")
    ] = None,
    pack: Annotated[
        Path | None, typer.Option(help="At the end write all runs in --out as this file (.xz).")
    ] = None,
    verify: Annotated[
        int | None,
        typer.Option(min=1, help="Only make so many finished runs again, and compare."),
    ] = None,
    workers: Workers = None,
    fresh: Fresh = False,
    json: options.Json = False,
) -> None:
    """Reproduce experiments of the paper: data, figures and one report.

    Finished runs stay in the folder: the same command goes on after an interruption, and the report
    tells about all experiments that the folder holds. With THEMIS_DATA set to a folder of measured
    data, E12 and E13 show it beside, and E15 runs the Philly trace.

    With --minutes a long evaluation goes in parts: the exit code is 1 until all of it is there, and
    what is there is told with the seeds that it rests on. With --docs and no names nothing is run.
    With --pack and --unpack runs go from one machine to another, or to readers who check a figure;
    --verify tells them whether the code that they have makes the same runs.
    """
    # Before the imports, which take seconds on a busy machine.
    if experiments:
        note(f"reproducing {' '.join(experiments)}, in {out}")
    with talking_bar("starting", numbers=False):
        from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick
        from themis.evaluation import chosen  # noqa: PLC0415 - see above
        from themis.recording.atomic_files import check_folder  # noqa: PLC0415 - see above

    if policies is not None and not experiments:
        raise ConfigError("policies", policies, "only with names of experiments, or `all`")
    if verify is not None:
        others = {"--docs": docs, "--pack": pack, "--fresh": fresh or None, "--minutes": minutes}
        _check_verify(
            verify, bool(experiments), [flag for flag, one in others.items() if one is not None]
        )
    if not experiments and docs is None and pack is None and unpack is None:
        _list(_scope(quick, seeds), json=json)
        return
    _check_fresh(fresh, minutes)
    wanted, scope = chosen(experiments or []), _scope(quick, seeds)
    begun = _policies(policies)
    if experiments or unpack is not None:
        check_folder(out, "out")
    _check_places(out, docs, pack)
    if unpack is not None:
        _unpack(unpack, out)
    if not experiments:
        if docs is not None:
            _evaluate_there(out, scope)
            _write_docs(out, docs, json=json)
        if pack is not None:
            _pack(out, pack)
        if docs is None and pack is None:
            next_one = ["themis", "reproduce", "all", "--out", str(out), "--minutes", "0"]
            note(f"to see what they tell, without running more: {shlex.join(next_one)}")
        return
    asked = _ReproduceRequest(wanted, scope, out, workers, fresh, minutes, begun)
    if verify is not None:
        _verify(asked, verify, json=json)
        return
    done = _carry_out(asked)
    if json:
        from themis.evaluation.runner import report_data  # noqa: PLC0415 - see above

        told = {
            "experiments": report_data(done.chapters),
            "unfinished": done.left,
            "left_of_other_policies": done.others,
            "files": [str(path) for path in done.files],
        }
        print_json(told)
    else:
        _show(done.chapters)
        for path in done.files:
            note(f"written: {path}")
    if docs is not None:
        # Also of a part, which says what it is: an evaluation may take days.
        _write_docs(out, docs, json=False)
    if pack is not None:
        _pack(out, pack)
    _tell_left(done, begun, minutes)
    if done.left:
        raise typer.Exit(FAILED)


def _check_fresh(fresh: bool, minutes: float | None) -> None:
    """Runs of before cannot be told from those made again, so such a part could not go on."""
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick

    if fresh and minutes is not None:
        raise ConfigError("minutes", f"{minutes:g} with --fresh", "one of them: for all runs anew "
                          "and in parts, another --out")  # fmt: skip


def data_folder() -> Path | None:
    """The folder of measured data that THEMIS_DATA names, if any.

    Raises:
        ConfigError: It names something else.
    """
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick

    named = os.environ.get(DATA_VARIABLE, "")
    if not named:
        return None
    if not Path(named).is_dir():
        raise ConfigError(DATA_VARIABLE, named, "a folder of measured data, or nothing")
    if not any(Path(named).glob("*.csv")):
        note(f"{DATA_VARIABLE}: {named} has no CSV file, so that no measured data is used")
    return Path(named)


def _check_places(out: Path, docs: Path | None, pack: Path | None) -> None:
    """Find what cannot be written before hours of runs, not after."""
    from themis.evaluation.report.markdown_page import check_page  # noqa: PLC0415 - late: --help is quick
    from themis.sim.runs.archive import check_archive  # noqa: PLC0415 - as above

    if docs is not None:
        check_page(docs)
    # The folder of the runs may not be there yet.
    if pack is not None and (out.exists() or pack.absolute().parent != out.absolute()):
        check_archive(pack)


def _scope(quick: bool, seeds: str | None) -> Scope:
    from themis.evaluation import Scope  # noqa: PLC0415 - late, so that --help is quick

    numbers = () if seeds is None else tuple(dict.fromkeys(seed_numbers(seeds)))
    return Scope(quick=quick, seeds=_some(numbers, seeds), data=data_folder())


def _policies(text: str | None) -> tuple[str, ...]:
    if text is None or text.strip() == "all":
        return ()
    from themis.core.policies import POLICIES  # noqa: PLC0415 - as above
    from themis.errors import ConfigError, unknown_name  # noqa: PLC0415 - late: --help is quick

    names = tuple(policy_names(text))
    if not names:
        raise ConfigError("policies", text, "at least one policy")
    for name in names:
        if name not in POLICIES:
            raise unknown_name("policies", name, list(POLICIES))
    return names


def _evaluate_there(out: Path, scope: Scope) -> None:
    """Tell of runs that somebody made and nobody has looked at."""
    from themis.evaluation import (  # noqa: PLC0415 - late, so that --help is quick
        Results,
        evaluate_there,
        losing_data,
        of_other_scopes,
        write_report,
    )
    from themis.sim.runs.result_cache import ResultCache  # noqa: PLC0415 - both late, so that --help is quick

    store = ResultCache(out / "runs")
    if not store.folder.is_dir():
        return
    with talking_bar("looking at what is there", numbers=False, at_once=True) as bar:
        results = Results(scope, store, lambda: bar.update(0))
        before, losing = of_other_scopes(scope, out), losing_data(scope, out)
        made = evaluate_there(results, out, lambda _, __, text: bar.begin(0, text))
        if made:
            bar.begin(0, "writing the report")
            write_report(out)
    _tell_replaced(before, made, out)
    _tell_data_lost(losing, made)


def _some(numbers: tuple[int, ...], text: str | None) -> tuple[int, ...]:
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick

    if text is not None and not numbers:
        raise ConfigError("seeds", text, "at least one seed")
    return numbers


@dataclass(frozen=True, slots=True)
class _ReproduceRequest:
    wanted: list[Experiment]
    scope: Scope
    out: Path
    workers: int | None
    fresh: bool
    minutes: float | None
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Done:
    chapters: list[Chapter]
    left: dict[str, int]
    """Runs that each unfinished experiment still needs, of the policies that were chosen."""
    others: dict[str, int]
    """And those of other policies."""
    files: list[Path]


def _carry_out(asked: _ReproduceRequest) -> _Done:
    from themis.evaluation import (  # noqa: PLC0415 - late, so that --help is quick
        can_tell,
        evaluate,
        left_out,
        losing_data,
        missing,
        of_other_scopes,
        outdated,
        run_experiments,
        write_report,
    )
    from themis.sim.gc_tuning import spare_memory_checks  # noqa: PLC0415 - as above

    spare_memory_checks()
    end = None if asked.minutes is None else time.monotonic() + 60.0 * asked.minutes
    before, named = of_other_scopes(asked.scope, asked.out), [item.id for item in asked.wanted]
    _tell_replaced(before, named, asked.out)
    _tell_data_lost(losing_data(asked.scope, asked.out), named)
    with (
        _resumable(asked.out, fresh=asked.fresh),
        talking_bar("checking", numbers=False, at_once=True) as bar,
    ):

        def show(done: int, total: int, text: str) -> None:
            bar.update(done, text, total)

        results = run_experiments(
            asked.wanted,
            asked.scope,
            asked.out,
            workers=asked.workers,
            progress=show,
            fresh=asked.fresh,
            stop=lambda: end is not None and time.monotonic() >= end,
            expect=lambda *told: _tell_expected(told, asked.minutes),
            policies=asked.policies,
        )
    chapters, left, others = [], {}, {}
    with (
        _resumable(asked.out, fresh=False),
        talking_bar("evaluating", len(asked.wanted), even=False) as bar,
    ):
        for done, experiment in enumerate(asked.wanted):

            def say(_: int, __: int, text: str, done: int = done) -> None:
                bar.begin(done, text)

            def heard(done: int = done) -> None:
                bar.update(done)

            heard_of = replace(results, heard=heard)
            bar.begin(done, f"{experiment.id}: evaluating")
            left[experiment.id] = missing(experiment, heard_of, asked.policies)
            others[experiment.id] = left_out(experiment, heard_of, asked.policies)
            if can_tell(experiment, heard_of):
                chapters.append(evaluate(experiment, heard_of, asked.out, say))
        if asked.fresh:
            # Experiments share runs: chapters of others may tell about those that were replaced.
            bar.begin(len(asked.wanted), "looking at other experiments with these runs")
            for experiment in outdated(results, asked.out):
                bar.begin(len(asked.wanted), f"{experiment.id}: evaluating")
                evaluate(experiment, results, asked.out)
            # Those of other seeds may tell about replaced runs too.
            for command in of_other_scopes(asked.scope, asked.out).values():
                note(f"made before, and left as it is: {command}")
        bar.begin(len(asked.wanted), "writing the report")
        files = write_report(asked.out)
    return _Done(chapters, _counts(left), _counts(others), files)


def _tell_data_lost(losing: Sequence[str], made: Sequence[str]) -> None:
    """Say which chapters with measured data give way to such as have none."""
    lost = [name for name in losing if name in made]
    if lost:
        what = "has a chapter" if len(lost) == 1 else "have chapters"
        note(f"{' '.join(lost)} {what} with measured data, giving way to such without; "
             f"to have that again: the same command with {DATA_VARIABLE}")  # fmt: skip


def _tell_replaced(before: dict[str, str], made: Sequence[str], out: Path) -> None:
    """Say which chapters of other seeds, or of a quick look, give way, and how to have them."""
    by_flags: dict[str, list[str]] = {}
    for name in made:
        if name in before:
            flags = before[name].removeprefix(f"themis reproduce {name}")
            by_flags.setdefault(flags, []).append(name)
    for flags, names in by_flags.items():
        listed = " ".join(names)
        again = f"themis reproduce {listed}{flags} --out {shlex.quote(str(out))} --minutes 0"
        what = "has a chapter" if len(names) == 1 else "have chapters"
        note(f"{listed} {what} of another scope, giving way; to have that again: {again}")


def _counts(each: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in each.items() if count}


def _tell_left(done: _Done, policies: Sequence[str], minutes: float | None) -> None:
    for name, count in done.left.items():
        note(f"{name}: {counted(count, 'run')} left")
    for name, count in done.others.items():
        note(f"{name}: {counted(count, 'run')} of other policies left")
    if done.left:
        without = " without --minutes 0" if minutes == 0 else ""
        note(f"not finished; the same command{without} goes on from there")
    elif done.others:
        whose = ", ".join(policies)
        note(
            f"all runs of {whose} that are named so far are there; the same command without "
            "--policies makes the others"
        )


def _check_verify(count: int, named: bool, given: list[str]) -> None:
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick

    if not named or given:
        beside = f", not beside {given[0]}" if given else ""
        raise ConfigError("verify", count, f"only with names of experiments, or `all`{beside}")


def _verify(asked: _ReproduceRequest, count: int, *, json: bool) -> None:
    """Make finished runs again; the exit code is 1 if one of them comes out otherwise."""
    from themis.evaluation import Results, verify  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.gc_tuning import spare_memory_checks  # noqa: PLC0415 - as above
    from themis.sim.runs.result_cache import ResultCache  # noqa: PLC0415 - as above

    spare_memory_checks()
    store = ResultCache(asked.out / "runs")
    with talking_bar("looking at what is there", numbers=False, at_once=True) as bar:
        checked = verify(
            asked.wanted,
            Results(asked.scope, store, lambda: bar.update(0)),
            count,
            policies=asked.policies,
            workers=asked.workers,
            progress=lambda done, total, text: bar.update(done, text, total),
        )
    wrong = sum(bool(one.differences) for one in checked)
    if json:
        print_json([asdict(one) for one in checked])
    elif checked:
        rows = table("Runs made again", "run", "made with", "now")
        rows.columns[-1].justify = "left"
        for one in checked:
            rows.add_row(one.label, one.commit, "; ".join(one.differences) or "the same")
        console().print(rows)
    if not checked:
        note(f"{asked.out} has no finished run of these{_other_scope(asked, store)}")
    elif wrong:
        note(f"{wrong} of {counted(len(checked), 'run')} came out otherwise")
    if wrong or not checked:
        raise typer.Exit(FAILED)


def _other_scope(asked: _ReproduceRequest, store: ResultCache) -> str:
    """A hint for those who forgot with which flag they made the runs."""
    from themis.evaluation import Results  # noqa: PLC0415 - late, so that --help is quick

    other = replace(asked.scope, quick=not asked.scope.quick)
    results = Results(other, store)
    if not any(results.has(one) for item in asked.wanted for one in item.plan(results)):
        return ""
    return ", but some of --quick: add it" if other.quick else ", but some without --quick"


def _tell_expected(told: tuple[int, float, Sequence[str]], minutes: float | None) -> None:
    """Before it begins, so that nobody starts something that takes the night by mistake."""
    runs, seconds, follow = told
    more = "".join(f"; {text}" for text in follow)
    if minutes == 0:
        much = f"{counted(runs, 'run')} missing, roughly {span(seconds)}"
        note(f"{much}; none is begun (--minutes 0){more}")
    elif seconds >= LONG or follow:
        much = f"{counted(runs, 'run')} to do, roughly {span(seconds)}"
        end = "" if minutes is None else f"; none is begun after {span(60.0 * minutes)}"
        note(f"{much}; finished ones are kept{end}{more}")


def _write_docs(out: Path, page: Path, *, json: bool) -> None:
    from themis.evaluation.report.markdown_page import write_results  # noqa: PLC0415 - see above

    with talking_bar("writing the page", numbers=False, at_once=True):
        files = write_results(out, page)
    if json:
        print_json({"files": [str(path) for path in files]})
        return
    for path in files:
        note(f"written: {path}")


def _unpack(archive: Path, out: Path) -> None:
    from themis.sim.runs.archive import unpack  # noqa: PLC0415 - late, so that --help is quick

    with talking_bar("unpacking", numbers=False, at_once=True) as bar:
        came = unpack(archive, out / "runs", lambda done: bar.update(0, f"unpacking: {done} files"))
    had = f", {came.there} were there" if came.there else ""
    what = f"{counted(came.runs, 'run')} ({counted(came.files, 'file')}{had})"
    note(f"taken from {archive} into {out / 'runs'}: {what}")


def _pack(out: Path, archive: Path) -> None:
    from themis.sim.runs.archive import pack  # noqa: PLC0415 - late, so that --help is quick

    with talking_bar("packing", numbers=False, at_once=True) as bar:
        count = pack(out / "runs", archive, lambda done: bar.update(0, f"packing: {done} files"))
    note(f"written: {archive}, with {counted(count, 'file')} of runs")


@contextmanager
def _resumable(out: Path, *, fresh: bool) -> Iterator[None]:
    try:
        with ending_alike():
            yield
    except KeyboardInterrupt:
        if fresh:
            note(f"some runs in {out} were made again and others not; --fresh begins anew")
        elif any((out / "runs").glob("*.json")):
            note(f"finished runs are in {out}; the same command goes on from there")
        else:
            note("no run was finished; the same command begins anew")
        raise


def _list(scope: Scope, *, json: bool) -> None:
    from themis.evaluation import EXPERIMENTS  # noqa: PLC0415 - late, so that --help is quick

    with talking_bar("counting runs", numbers=False):
        runs = {name: _planned(item, scope) for name, item in EXPERIMENTS.items()}
    if json:
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
    note(f"many are in several of them, and are made once{more}")


def _planned(experiment: Experiment, scope: Scope) -> int:
    """How many runs an experiment names before there is any."""
    from themis.evaluation import Results  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.runs.result_cache import ResultCache  # noqa: PLC0415 - as above

    with TemporaryDirectory(prefix="themis-") as nothing:
        plan = experiment.wanted(Results(scope, ResultCache(Path(nothing) / "runs")))
        return len({repr(config) for config in plan})


def _show(chapters: list[Chapter]) -> None:
    from rich.text import Text  # noqa: PLC0415 - only needed when something is shown

    from themis.evaluation.report.html_page import share  # noqa: PLC0415 - late, so that --help is quick

    out = console()
    for chapter in chapters:
        rows = table(
            f"{chapter.id}: {chapter.title} ({share(chapter)})",
            "claim", "paper", "themis-paper", "themis", "verdict",
        )  # fmt: skip
        for claim in chapter.claims:
            literal = claim.themis_paper.text if claim.by_policy else "same"
            texts = (claim.statement, claim.paper.text, literal, claim.themis.text, claim.verdict)
            rows.add_row(*(Text(text) for text in texts))
        out.print(rows)
