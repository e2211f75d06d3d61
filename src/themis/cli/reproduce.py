"""`themis reproduce`: the experiments of the paper, with a report of every claim."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli import options
from themis.cli.compare import Fresh, Workers, seed_numbers
from themis.cli.output import console, note, print_json, progress_bar, table

if TYPE_CHECKING:
    from themis.experiments import Chapter, Experiment, Scope

DATA_VARIABLE = "THEMIS_DATA"


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
    workers: Workers = None,
    fresh: Fresh = False,
    json: options.Json = False,
) -> None:
    """Reproduce experiments of the paper: data, figures and one report.

    Finished runs stay in the folder: the same command goes on after an interruption, and the report
    tells of all experiments that the folder holds. With THEMIS_DATA set to a folder of measured
    data, E12 and E13 show it beside.
    """
    from themis.experiments import Scope, chosen  # noqa: PLC0415 - late, so that --help is quick

    if not experiments:
        _list(json=json)
        return
    wanted = chosen(experiments)
    numbers = () if seeds is None else tuple(dict.fromkeys(seed_numbers(seeds)))
    scope = Scope(quick=quick, seeds=_some(numbers, seeds), data=data_folder())
    chapters, files = _carry_out(wanted, scope, out, workers, fresh=fresh)
    if json:
        from themis.experiments.running import report_data  # noqa: PLC0415 - see above

        told = {"experiments": report_data(chapters), "files": [str(path) for path in files]}
        print_json(told)
        return
    _show(chapters)
    for path in files:
        note(f"written: {path}")


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
    return Path(named)


def _some(numbers: tuple[int, ...], text: str | None) -> tuple[int, ...]:
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick

    if text is not None and not numbers:
        raise ConfigError("seeds", text, "at least one seed")
    return numbers


def _carry_out(
    wanted: list[Experiment], scope: Scope, out: Path, workers: int | None, *, fresh: bool
) -> tuple[list[Chapter], list[Path]]:
    from themis.experiments import (  # noqa: PLC0415 - late, so that --help is quick
        evaluate,
        run_experiments,
        write_report,
    )

    with _resumable(out), progress_bar("checking", 1) as bar:

        def show(done: int, total: int, text: str) -> None:
            bar.update(done, text, total)

        results = run_experiments(wanted, scope, out, workers=workers, progress=show, fresh=fresh)
    chapters = []
    with _resumable(out), progress_bar("evaluating", len(wanted)) as bar:
        for done, experiment in enumerate(wanted):

            def say(_: int, __: int, text: str, done: int = done) -> None:
                bar.update(done, text)

            chapters.append(evaluate(experiment, results, out, say))
        bar.update(len(wanted), "writing the report")
        files = write_report(out)
    return chapters, files


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        note(f"finished runs are in {out}; the same command goes on from there")
        raise


def _list(*, json: bool) -> None:
    from themis.experiments import EXPERIMENTS  # noqa: PLC0415 - late, so that --help is quick

    if json:
        print_json(
            {name: {"title": item.title, "paper": item.paper} for name, item in EXPERIMENTS.items()}
        )
        return
    rows = table("Experiments: themis reproduce NAME... or all", "name", "title")
    rows.columns[1].justify = "left"
    for name, item in EXPERIMENTS.items():
        rows.add_row(name, item.title)
    console().print(rows)


def _show(chapters: list[Chapter]) -> None:
    from rich.text import Text  # noqa: PLC0415 - only needed when something is shown

    out = console()
    for chapter in chapters:
        rows = table(
            f"{chapter.id}: {chapter.title} ({chapter.scope})",
            "claim", "paper", "themis-paper", "themis", "verdict",
        )  # fmt: skip
        for claim in chapter.claims:
            literal = claim.themis_paper.text if claim.by_policy else "same"
            texts = (claim.statement, claim.paper.text, literal, claim.themis.text, claim.verdict)
            rows.add_row(*(Text(text) for text in texts))
        out.print(rows)
