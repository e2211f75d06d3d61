"""`themis auction`: keep the auctions of a run as files, and solve them again."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.auction_show import show_command
from themis.cli.auction_solve import solve_command, warm_up
from themis.cli.common import options
from themis.cli.common.output import NOT_FOUND, USAGE, console, fail, print_json, progress_bar, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from themis.sim import RunConfig
    from themis.sim.auction_recording import Kept, Recorder
    from themis.sim.auction_selection import Selection

_OF_A_RUN = (
    "cluster", "contention", "workload", "apps", "seed", "policy", "load", "lease", "f", "set_",
    "config",
)  # fmt: skip

app = typer.Typer(
    help="Show the auctions of a service; record those of a run as files, and solve them again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Show the auctions of a service; record those of a run as files, and solve them again."""


@app.command("record")
def record_command(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="The folder for the files.")],
    log: Annotated[
        Path | None,
        typer.Option("--from", help="Read them from an event log (or a run folder with one)."),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Only every n-th auction.")] = 1,
    bidders: Annotated[
        int, typer.Option(min=0, help="Only auctions with at least this many bidders.")
    ] = 0,
    slowest: Annotated[
        int | None, typer.Option(min=1, help="Only the n that took the solver longest.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="At most n, spread evenly over the run.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace auctions that are already in the folder.")
    ] = False,
    cluster: options.Cluster = "testbed64",
    contention: options.Contention = 1,
    workload: options.WorkloadName = "w2",
    apps: options.Apps = 85,
    seed: Annotated[int, typer.Option(help="The seed of everything random.")] = 1,
    policy: Annotated[str, typer.Option(help="A policy by name, or module:Class.")] = "themis",
    load: options.Load = None,
    lease: options.Lease = None,
    f: options.Knob = None,
    set_: options.Set = None,
    config: options.ConfigFile = None,
    json: options.Json = False,
) -> None:
    """Record the auctions of a run as files: simulate it, or read its event log."""
    from themis.sim.auction_recording import Recorder  # noqa: PLC0415 - late, so that --help is quick

    selection = _selection(slowest, most)
    record: Callable[[Recorder], tuple[Kept, ...]]
    if log is not None:
        _refuse_run_flags(context)
        log = _event_log(log)
        whose, record = f"of {log}", partial(_record_log, log)
    else:
        asked = options.configuration(
            context, config, cluster=cluster, contention=contention, workload=workload, apps=apps,
            seed=seed, policy=policy, load=load, lease=lease, f=f, set_=set_,
        )  # fmt: skip
        _refuse_without_auctions(asked.policy)
        whose, record = f"with policy {asked.policy}", partial(_record_run, asked)
    with _folder(out, force=force) as draft:
        recorder = Recorder(draft, selection, every=every, min_bidders=bidders)
        kept = record(recorder)
        if not kept:
            # Within the folder's draft, so that an empty one is not left behind.
            fail(_why_none(recorder, bidders, whose))
        size = sum((draft / item.name).stat().st_size for item in kept)
    if json:
        print_json(_plain(out, log, recorder, kept))
    else:
        _show(out, recorder, kept, size)


def _selection(slowest: int | None, most: int | None) -> Selection:
    from themis.sim.auction_selection import Everything, Slowest, Spread  # noqa: PLC0415 - see above

    if slowest is not None and most is not None:
        fail("--slowest and --most: choose one of them", USAGE)
    if slowest is not None:
        return Slowest(slowest)
    return Everything() if most is None else Spread(most)


def _refuse_run_flags(context: typer.Context) -> None:
    given = [name for name in _OF_A_RUN if options.given(context, name)]
    if given:
        flag = "--" + given[0].rstrip("_")
        fail(f"--from and {flag}: the log says what was run; leave {flag} out", USAGE)


def _refuse_without_auctions(name: str) -> None:
    """Check the options before anything is simulated."""
    from themis.core.policies import DirectPolicy  # noqa: PLC0415 - late, so that --help is quick
    from themis.core.policies.registry import POLICIES, policy_class  # noqa: PLC0415 - see above

    if issubclass(policy_class(name), DirectPolicy):
        some = [each for each, kind in POLICIES.items() if not issubclass(kind, DirectPolicy)]
        fail(f"policy: got {name!r}, which holds no auctions; {' and '.join(some)} do", USAGE)


def _event_log(path: Path) -> Path:
    log = path / "events.jsonl" if path.is_dir() else path
    if not log.is_file():
        fail(f"{log}: there is no such file (runs write one with --out DIR --events)", NOT_FOUND)
    return log


def _folder(out: Path, *, force: bool) -> AbstractContextManager[Path]:
    from themis.recording.auction_files import PATTERN  # noqa: PLC0415 - late: --help is quick
    from themis.sim.runs.run_folder import new_folder, refilled_folder  # noqa: PLC0415 - see above

    if force:
        return refilled_folder(out, PATTERN)
    if out.is_dir() and any(out.glob(PATTERN)):
        fail(f"{out}: there are auctions in this folder; --force replaces them", USAGE)
    return new_folder(out)


def _record_run(config: RunConfig, recorder: Recorder) -> tuple[Kept, ...]:
    from themis.core.auction import solver  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim import prepare  # noqa: PLC0415 - see above
    from themis.sim.auction_recording import record_run  # noqa: PLC0415 - see above

    prepared = prepare(config)
    warm_up([solver(prepared.solver)])
    total = len(prepared.workload.apps)
    with progress_bar(f"{config.policy}, seed {config.seed}", total) as bar:
        return record_run(prepared, recorder, time.process_time, bar.update)


def _record_log(log: Path, recorder: Recorder) -> tuple[Kept, ...]:
    from themis.sim.auction_recording import record_log  # noqa: PLC0415 - late, so that --help is quick

    with progress_bar(f"reading {log} (KiB)", log.stat().st_size // 1024) as bar:
        return record_log(log, recorder, lambda done: bar.update(done // 1024), warn)


def _why_none(recorder: Recorder, bidders: int, whose: str) -> str:
    if recorder.seen:
        return f"none of {recorder.seen} auctions has {bidders} bidders or more: nothing written"
    return f"the run {whose} held no auction: nothing written"


def _plain(
    out: Path, log: Path | None, recorder: Recorder, kept: tuple[Kept, ...]
) -> dict[str, Any]:
    return {
        "out": str(out),
        "from": None if log is None else str(log),
        "auctions": recorder.seen,
        "kept": len(kept),
        "files": [
            {
                "file": str(out / item.name),
                "round": item.round,
                "at_s": item.at,
                "machines": item.machines,
                "gpus": item.gpus,
                "bidders": item.bidders,
                "rows": item.rows,
                "solver": item.solver,
                "work": item.work,
                "exact": item.exact,
                "value": item.value,
                "cpu_ms": None if item.seconds is None else round(1000 * item.seconds, 3),
            }
            for item in kept
        ],
    }


def _show(out: Path, recorder: Recorder, kept: tuple[Kept, ...], size: int) -> None:
    exact = sum(item.exact for item in kept)
    hardest = max(kept, key=lambda item: (item.seconds or 0.0, item.work))
    cost = f"work {hardest.work}"
    if hardest.seconds is not None:
        cost = f"{1000 * hardest.seconds:.1f} CPU ms, {cost}"
    console().print(
        f"{len(kept)} of {recorder.seen} auctions kept in {out} ({size / 1e6:.1f} MB): "
        f"{_range(item.bidders for item in kept)} bidders, "
        f"{_range(item.rows for item in kept)} rows, "
        f"{_range(item.gpus for item in kept)} GPUs, {exact} solved exactly; "
        f"hardest {hardest.name} ({cost})",
        markup=False,
        soft_wrap=True,
    )


def _range(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


app.command("solve")(solve_command)
app.command("show")(show_command)
