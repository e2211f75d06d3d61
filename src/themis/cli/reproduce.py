"""`themis reproduce`: the experiments of the paper, with a report of every claim."""

from pathlib import Path
from typing import Annotated

import typer

from themis.cli.common import options
from themis.cli.common.output import note
from themis.cli.common.progress import talking_bar
from themis.cli.compare import Fresh, Workers

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
        Path, typer.Option(help="Runs, data, figures and the report; finished runs are reused.")
    ] = Path("reproduce-out"),
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Begin no run after this many minutes; run again to continue."),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(help="Begin only runs of these policies: themis,equal-share; or all."),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(help="Write --out as this Markdown page, with figures and runs.csv beside."),
    ] = None,
    unpack: Annotated[
        Path | None, typer.Option(help="First add the runs in this file; --out keeps its own.")
    ] = None,
    pack: Annotated[
        Path | None, typer.Option(help="At the end write all runs in --out as this file (.xz).")
    ] = None,
    verify: Annotated[
        int | None,
        typer.Option(min=1, help="Only make this many finished runs again, and compare."),
    ] = None,
    workers: Workers = None,
    fresh: Fresh = False,
    json: options.Json = False,
) -> None:
    """Reproduce experiments of the paper: data, figures and one report.

    Finished runs stay in the folder: run the same command again after an interruption. The report
    covers all experiments that the folder holds. With THEMIS_DATA set to a folder of measured data,
    E12 and E13 show it, and E15 runs the Philly trace.

    With --minutes a long evaluation is done in parts: the exit code is 1 while runs are missing,
    and the report names the seeds that are finished. With --docs and no names no run begins. --pack
    and --unpack move runs to another machine, or to readers who check a figure; --verify checks
    that the present code makes the same runs.
    """
    # Before the imports, which take seconds on a busy machine.
    if experiments:
        note(f"reproducing {' '.join(experiments)}, in {out}")
    with talking_bar("starting", numbers=False):
        from themis.cli.common import reproduction  # noqa: PLC0415 - late, so that --help is quick

    request = reproduction.ReproduceRequest(
        names=tuple(experiments or ()),
        scope=reproduction.parse_scope(quick, seeds),
        out=out,
        policies=reproduction.parse_policies(policies),
        minutes=minutes,
        docs=docs,
        unpack=unpack,
        pack=pack,
        workers=workers,
        fresh=fresh,
        json=json,
    )
    if policies is not None or verify is not None:
        reproduction.check_named(request, policies, verify)
    if verify is not None:
        reproduction.verify_runs(request, verify)
    elif experiments:
        reproduction.make_report(request)
    elif docs is None and pack is None and unpack is None:
        reproduction.list_experiments(request)
    else:
        reproduction.convert(request)
