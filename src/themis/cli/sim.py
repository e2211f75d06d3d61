"""`themis sim`: run the scheduler on a simulated cluster."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common import options
from themis.cli.common.output import (
    MISSING_FIGURES,
    USAGE,
    amount,
    console,
    counted,
    fail,
    note,
    print_json,
    progress_bar,
    table,
)
from themis.cli.compare import compare_command, fail_after_failed_rounds, sweep_command

if TYPE_CHECKING:
    from themis.sim import RunConfig, RunResult

app = typer.Typer(
    help="Run the scheduler on a simulated cluster.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    """Run the scheduler on a simulated cluster."""


@app.command("run")
def run_command(
    context: typer.Context,
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
    out: Annotated[Path | None, typer.Option(help="Write the run into this new folder.")] = None,
    events: Annotated[
        bool, typer.Option("--events", help="With --out: write the event log, for replay.")
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="With --out: also draw figures of this run.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Simulate one policy on one workload and print how fair it was."""
    if events and out is None:
        fail("--events needs --out DIR: that is where the log goes", USAGE)
    if figures and out is None:
        fail("--figures needs --out DIR: that is where they go", USAGE)
    asked = options.configuration(
        context, config, cluster=cluster, contention=contention, workload=workload, apps=apps,
        seed=seed, policy=policy, load=load, lease=lease, f=f, set_=set_,
    )  # fmt: skip
    summary = _run(asked, out, events=events, figures=figures)
    if json:
        print_json(summary)
    else:
        _show(summary)
    fail_after_failed_rounds([summary])


# Here, because the help lists commands in this order.
app.command("compare")(compare_command)
app.command("sweep")(sweep_command)


def _run(config: RunConfig, out: Path | None, *, events: bool, figures: bool) -> dict[str, Any]:
    from themis.sim import prepare, run  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.gc_tuning import spare_memory_checks  # noqa: PLC0415 - see above
    from themis.sim.runs.run_folder import new_folder, run_files, write_run  # noqa: PLC0415 - see above

    spare_memory_checks()
    started = time.process_time()
    prepared = prepare(config)
    total = len(prepared.workload.apps)
    with progress_bar(f"{config.policy}, seed {config.seed}", total) as bar:
        if out is None:
            result = run(prepared, keep_segments=False, progress=lambda done, _: bar.update(done))
        else:
            with new_folder(out) as draft:
                with run_files(draft) as files:
                    result = run(
                        prepared,
                        keep_segments=figures,
                        on_round=files.on_round,
                        on_segment=files.on_segment,
                        log_to=draft / "events.jsonl" if events else None,
                        progress=lambda done, _: bar.update(done),
                    )
                write_run(result, draft)
                summary = with_costs(result, started)  # of the run, not of the figures
                if figures:
                    _draw(result, draft / "figures")
            note(f"written to {out}")
            return summary
    return with_costs(result, started)


def _draw(result: RunResult, folder: Path) -> None:
    """Draw every figure of a run, or say what is missing for it."""
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.figures.run_figures import RUN_FIGURES  # noqa: PLC0415 - see above

    try:
        drawings = {kind: result.plot(kind) for kind in RUN_FIGURES}
    except ConfigError as error:
        if error.key != "figures":
            raise
        note(MISSING_FIGURES)
        return
    folder.mkdir()
    for kind, drawing in drawings.items():
        drawing.save(folder / kind)


def with_costs(result: RunResult, started: float) -> dict[str, Any]:
    """The summary with the run's cost on this machine."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        **result.summary,
        "cpu_s": round(time.process_time() - started, 3),
        "peak_rss_mb": round(peak, 1),
    }


def _show(summary: dict[str, Any]) -> None:
    out = console()
    rows = table(
        f"{summary['policy']} on {summary['cluster']}: {summary['workload']}, "
        f"{counted(summary['apps'], 'app')}, load {summary['load']:.2f}, seed {summary['seed']}",
        "finish-time fairness (fair: at most 1.05)",
        "max",
        "p95",
        "median",
        "share fair",
    )
    for label, suffix in (("rho, this run's contention", ""), ("rho_ref, fluid reference", "_ref")):
        for convention, name in (("fair_share", "fair share"), ("paper", "paper")):
            rows.add_row(
                f"{label}, {name}",
                *(
                    f"{summary[key + suffix][convention]:.2f}"
                    for key in ("max_rho", "p95_rho", "median_rho")
                ),
                f"{summary['share_fair' + suffix][convention]:.0%}",
            )
    out.print(rows)
    out.print(
        f"GPU time {amount(summary['gpu_hours'])} h, mean completion "
        f"{summary['mean_completion_h']:.1f} h (fluid equal share "
        f"{summary['fluid_completion_h']:.1f} h), makespan {amount(summary['makespan_h'])} h"
    )
    out.print(
        f"{counted(summary['rounds'], 'round')}, {counted(summary['moves'], 'restart')}, "
        f"{counted(summary['events'], 'event')}, "
        f"{summary['cpu_s']:.1f} CPU s, {summary['peak_rss_mb']:.0f} MB"
    )
