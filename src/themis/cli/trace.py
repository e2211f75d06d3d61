"""`themis trace`: check real traces, describe them, and make workloads of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from themis.cli.common.output import (
    FAILED,
    USAGE,
    Bar,
    amount,
    console,
    counted,
    escape_line,
    fail,
    note,
    period,
    print_json,
    progress_bar,
    table,
)

if TYPE_CHECKING:
    from themis.sim.traces import ImportOptions, Trace, TracePlan

SHOWN_PROBLEMS = 5
NO_JOB = "there is no job in it"
PATIENCE = 2.0
"""Seconds after which a bar appears."""

_Item = TypeVar("_Item")

app = typer.Typer(help="Use real traces as workloads.", no_args_is_help=True, rich_markup_mode=None)

TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="The trace.")]
Format = Annotated[
    str,
    typer.Option(help="auto, philly-json, philly-csv, philly-apps, sacct or csv."),
]
DropOwner = Annotated[
    list[str] | None, typer.Option(help="Leave this owner's jobs out; may be repeated.")
]
From = Annotated[
    str | None, typer.Option("--from", help="Start of the window on the trace's clock, as 2d.")
]
Until = Annotated[str | None, typer.Option(help="End of the window, as 16d.")]
BurstGap = Annotated[str, typer.Option(help="Like jobs so close together are one app.")]
MaxJobs = Annotated[int, typer.Option(help="The most jobs a burst may have as one app.")]
LimitApps = Annotated[int | None, typer.Option(help="Only the first n apps.")]
DurationScale = Annotated[float, typer.Option(help="Multiply every duration by this.")]
Horizon = Annotated[
    str | None, typer.Option(help="Period the load is computed over; default: the submissions'.")
]
Gpus = Annotated[int, typer.Option(help="Size of the cluster the load is computed for.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.callback()
def _group() -> None:
    """Use real traces as workloads."""


@app.command("import")
def import_command(
    trace: TraceFile,
    out: Annotated[Path, typer.Option(help="The workload file to write; replaced.")],
    format: Format = "auto",  # noqa: A002 - names the flag
    drop_owner: DropOwner = None,
    start: From = None,
    until: Until = None,
    burst_gap: BurstGap = "60s",
    max_jobs: MaxJobs = 100,
    limit_apps: LimitApps = None,
    duration_scale: DurationScale = 1.0,
    horizon: Horizon = None,
    gpus: Gpus = 64,
    seed: Annotated[int, typer.Option(help="Draws models and qualities of jobs.")] = 1,
    hardware: Annotated[str, typer.Option(help="Whose slowdowns: p100 or k80.")] = "p100",
    strict: Annotated[bool, typer.Option("--strict", help="Any bad row fails.")] = False,
    json: Json = False,
) -> None:
    """Make a workload file for `themis sim run --workload FILE`."""
    from themis.sim.traces import trace_stats, write_workload  # noqa: PLC0415 - --help is quick

    options = _options(
        drop_owner, start, until, burst_gap, max_jobs, limit_apps, duration_scale, horizon, gpus,
        seed, hardware,
    )  # fmt: skip
    _refuse_same(trace, out)
    found = _read(trace, format)
    if strict and not found.clean:
        _show_account(found, trace, stderr=True)
        bad = counted(sum(found.problem_counts.values()), "bad row")
        fail(f"{trace}: {bad}; nothing was written")
    plan = _plan(found, trace, options)
    with _late_bar(f"writing {out.name}, apps") as update:
        lines = _counted(plan.lines(), plan.header.apps, update)
        write_workload(out, plan.header, lines)
    if json:
        print_json({"out": str(out), **trace_stats(plan), "first_problems": _first(found, 1000)})
        return
    _show_account(plan.trace, trace)
    console().print(escape_line(_sentence(plan)), markup=False, soft_wrap=True)
    note(f"written to {out}")


@app.command("validate")
def validate_command(trace: TraceFile, format: Format = "auto", json: Json = False) -> None:  # noqa: A002 - names the flag
    """Read every row and say which are bad; exit 0 if none is, and there is a job."""
    found = _read(trace, format)
    fine, verdict = _verdict(found)
    if json:
        print_json(
            {
                "trace": str(trace),
                "format": found.format,
                "clean": fine,
                "verdict": verdict,
                "rows": found.rows,
                "jobs": len(found.jobs),
                "dropped": found.dropped,
                "problems": found.problem_counts,
                "first_problems": _first(found, 1000),
            }
        )
    else:
        _show_account(found, trace)
        rows, jobs = counted(found.rows, "row"), counted(len(found.jobs), "job")
        console().print(f"{found.format}: {rows}, {jobs}, {verdict}", markup=False)
    if not fine:
        raise typer.Exit(FAILED)


def _verdict(found: Trace) -> tuple[bool, str]:
    """Whether a trace will do as it is, and why not."""
    if found.clean:
        return bool(found.jobs), "every row is understood" if found.jobs else NO_JOB
    return False, "some rows are bad" if found.jobs else f"some rows are bad, and {NO_JOB}"


@app.command("stats")
def stats_command(
    trace: TraceFile,
    format: Format = "auto",  # noqa: A002 - names the flag
    drop_owner: DropOwner = None,
    start: From = None,
    until: Until = None,
    burst_gap: BurstGap = "60s",
    max_jobs: MaxJobs = 100,
    limit_apps: LimitApps = None,
    duration_scale: DurationScale = 1.0,
    horizon: Horizon = None,
    gpus: Gpus = 64,
    json: Json = False,
) -> None:
    """Describe a trace as it would be imported: jobs, apps, owners, quantiles, bursts, load."""
    from themis.sim.traces import trace_stats  # noqa: PLC0415 - late, so that --help is quick

    options = _options(
        drop_owner, start, until, burst_gap, max_jobs, limit_apps, duration_scale, horizon, gpus
    )
    plan = _plan(_read(trace, format), trace, options)
    stats = trace_stats(plan)
    if json:
        print_json({"trace": str(trace), **stats})
        return
    _show_account(plan.trace, trace)
    _show_stats(stats)
    console().print(escape_line(_sentence(plan)), markup=False, soft_wrap=True)


# From flags to a plan


def _options(
    drop_owner: list[str] | None,
    start: str | None,
    until: str | None,
    burst_gap: str,
    max_jobs: int,
    limit_apps: int | None,
    duration_scale: float,
    horizon: str | None,
    gpus: int,
    seed: int = 1,
    hardware: str = "p100",
) -> ImportOptions:
    from themis.recording.written_values import seconds  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.traces import ImportOptions  # noqa: PLC0415 - see above

    return ImportOptions(
        drop_owners=tuple(drop_owner or ()),
        start=None if start is None else seconds(start, "from"),
        until=None if until is None else seconds(until, "until"),
        burst_gap=seconds(burst_gap, "burst_gap"),
        max_jobs=max_jobs,
        limit_apps=limit_apps,
        duration_scale=duration_scale,
        horizon=None if horizon is None else seconds(horizon, "horizon"),
        gpus=gpus,
        seed=seed,
        hardware=hardware,
    )


def _refuse_same(trace: Path, out: Path) -> None:
    if trace.exists() and out.exists() and trace.samefile(out):
        fail(f"--out {out}: that is the trace itself", USAGE)


def _read(path: Path, kind: str) -> Trace:
    from themis.sim.traces import read_trace  # noqa: PLC0415 - late, so that --help is quick

    with _late_bar(f"reading {path.name}, kB") as update:
        return read_trace(path, kind, progress=lambda done, of: update(done // 1024, of // 1024))


def _plan(found: Trace, path: Path, options: ImportOptions) -> TracePlan:
    from themis.sim.traces import NoJobsError, plan_workload  # noqa: PLC0415 - --help is quick

    try:
        plan = plan_workload(found, path.stem, options)
    except NoJobsError as error:
        _show_account(error.trace, path, stderr=True)
        fail(f"{path}: no job is left")
    if options.drop_owners:
        owners = {job.owner for job in found.jobs}
        for owner in options.drop_owners:
            if owner not in owners:
                note(f"--drop-owner {owner}: no job has this owner")
    return plan


@contextmanager
def _late_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that shows only when the work takes long."""
    started = time.monotonic()
    with ExitStack() as stack:
        bar: Bar | None = None

        def update(done: int, total: int) -> None:
            nonlocal bar
            if bar is None and time.monotonic() - started > PATIENCE:
                bar = stack.enter_context(progress_bar(escape_line(description), total))
            if bar is not None:
                bar.update(done)

        yield update


def _counted(
    items: Iterable[_Item], total: int, update: Callable[[int, int], None]
) -> Iterator[_Item]:
    for done, item in enumerate(items):
        if done % 1024 == 0:
            update(done, total)
        yield item


# What is shown


def _first(trace: Trace, count: int) -> list[dict[str, Any]]:
    return [asdict(problem) for problem in trace.problems[:count]]


def _show_account(trace: Trace, path: Path, *, stderr: bool = False) -> None:
    """Rows that gave no job: bad ones with their lines, then those left out on purpose."""
    out = console(stderr=stderr)
    for problem in trace.problems[:SHOWN_PROBLEMS]:
        text = f"{path}:{problem.line}: {problem}"
        out.print(escape_line(text), markup=False, soft_wrap=True)
    if sum(trace.problem_counts.values()) > SHOWN_PROBLEMS:
        out.print("...")
    _show_counts(out, "bad rows", trace.problem_counts)
    _show_counts(out, "left out", trace.dropped)


def _show_counts(out: Any, title: str, counts: Mapping[str, int]) -> None:
    if counts:
        parts = ", ".join(f"{reason} {count}" for reason, count in counts.items())
        out.print(f"{title}: {sum(counts.values())} ({parts})", markup=False, soft_wrap=True)


def _sentence(plan: TracePlan) -> str:
    header = plan.header
    return (
        f"{header.name}: {counted(header.apps, 'app')}, {counted(len(plan.trace.jobs), 'job')}, "
        f"load {header.load:.2f} on {counted(header.gpus, 'GPU')} over {period(header.horizon)}"
    )


def _show_stats(stats: dict[str, Any]) -> None:
    out = console()
    shares = list(stats["duration_s"])
    rows = table(f"{stats['format']}, {counted(stats['rows'], 'row')}", "", *shares)
    for key, label in (
        ("duration_s", "duration, s"),
        ("gpus_per_job", "GPUs per job"),
        ("jobs_per_app", "jobs per app"),
        ("gap_s", "between submissions, s"),
    ):
        rows.add_row(label, *(_cell(stats[key].get(share)) for share in shares))
    out.print(rows)
    out.print(
        f"{counted(stats['owners'], 'owner')}, {amount(stats['gpu_hours'])} GPU-hours; "
        + _bursts(stats)
    )
    for key, title in (("owners_by_jobs", "most jobs"), ("statuses", "status")):
        if stats[key]:
            listed = ", ".join(f"{name} {count}" for name, count in stats[key].items())
            out.print(escape_line(f"{title}: {listed}"), markup=False, soft_wrap=True)


def _cell(value: float | None) -> str:
    """One quantile; a single job has no time between submissions."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _bursts(stats: dict[str, Any]) -> str:
    if not stats["bursts"]:
        return "no bursts"
    return (
        f"{counted(stats['bursts'], 'burst')} with {counted(stats['jobs_in_bursts'], 'job')}, "
        f"the largest {stats['largest_burst']}"
    )
