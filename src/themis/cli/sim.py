"""`themis sim`: run the scheduler on a simulated cluster."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.output import USAGE, console, fail, note, print_json, progress_bar, table

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
    cluster: Annotated[
        str, typer.Option(help="A preset (testbed64, sim256, ...) or a YAML file.")
    ] = "testbed64",
    contention: Annotated[int, typer.Option(help="Keep one machine of each kind in so many.")] = 1,
    workload: Annotated[str, typer.Option(help="The workload to generate.")] = "w2",
    apps: Annotated[int, typer.Option(help="How many apps arrive.")] = 85,
    seed: Annotated[int, typer.Option(help="The seed of everything random.")] = 1,
    policy: Annotated[str, typer.Option(help="A policy by name, or module:Class.")] = "themis",
    load: Annotated[
        float | None, typer.Option(help="Work / (GPUs x horizon); stretches the arrivals.")
    ] = None,
    lease: Annotated[str | None, typer.Option(help="Length of a lease, as 10m.")] = None,
    f: Annotated[float | None, typer.Option("--f", help="Fairness knob, 0 to 1.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other key; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the run into this new folder.")] = None,
    events: Annotated[
        bool, typer.Option("--events", help="With --out: write the event log, for replay.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Simulate one policy on one workload and print how fair it was."""
    from themis.sim import RunConfig  # noqa: PLC0415 - late, so that --help is quick

    if events and out is None:
        fail("--events needs --out DIR: that is where the log goes", USAGE)
    flags = {"lease": lease, "f": f}
    options = _pairs(set_ or []) | {key: value for key, value in flags.items() if value is not None}
    config = RunConfig(cluster, contention, workload, apps, seed, policy, load, options)
    summary = _run(config, out, events=events)
    if json:
        print_json(summary)
    else:
        _show(summary)


def _pairs(texts: list[str]) -> dict[str, Any]:
    from themis.sim.config import parse_value  # noqa: PLC0415 - late, so that --help is quick

    pairs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            fail(f"--set {text!r}: expected KEY=VALUE, for example --set payment=gpus", USAGE)
        pairs[key.strip()] = parse_value(value)
    return pairs


def _run(config: RunConfig, out: Path | None, *, events: bool) -> dict[str, Any]:
    from themis.sim import prepare, run  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.folder import new_folder, write_run  # noqa: PLC0415 - see above

    started = time.process_time()
    prepared = prepare(config)
    total = len(prepared.workload.apps)
    with progress_bar(f"{config.policy}, seed {config.seed}", total) as bar:
        if out is None:
            result = run(prepared, progress=lambda done, _: bar.update(done))
        else:
            with new_folder(out) as draft:
                log = draft / "events.jsonl" if events else None
                result = run(
                    prepared,
                    keep_rounds=True,
                    log_to=log,
                    progress=lambda done, _: bar.update(done),
                )
                write_run(result, draft)
            note(f"written to {out}")
    return with_costs(result, started)


def with_costs(result: RunResult, started: float) -> dict[str, Any]:
    """The summary with what the run cost on this machine."""
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
        f"{summary['apps']} apps, load {summary['load']:.2f}, seed {summary['seed']}",
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
        f"GPU time {summary['gpu_hours']:.0f} h, mean completion "
        f"{summary['mean_completion_h']:.1f} h (fluid equal share "
        f"{summary['fluid_completion_h']:.1f} h), makespan {summary['makespan_h']:.0f} h"
    )
    out.print(
        f"{summary['rounds']} rounds, {summary['moves']} restarts, {summary['events']} events, "
        f"{summary['cpu_s']:.1f} CPU s, {summary['peak_rss_mb']:.0f} MB"
    )
