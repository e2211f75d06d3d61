"""`themis demo`: policies compared on a small simulated cluster, with figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.output import console, counted, note, print_json, progress_bar, table

if TYPE_CHECKING:
    from themis.sim import RunResult

POLICIES = ("themis", "equal-share", "worst-first", "tiresias", "fifo")


def demo(
    out: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("demo-out"),
    apps: Annotated[int, typer.Option(help="How many apps arrive.")] = 10,
    seed: Annotated[int, typer.Option(help="The seed of everything random.")] = 4,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Compare policies on 16 simulated GPUs shared by a few hyper-parameter sweeps."""
    from themis.sim import RunConfig, prepare, run  # noqa: PLC0415 - late, so that --help is quick

    runs = [
        prepare(RunConfig(cluster="demo16", apps=apps, seed=seed, policy=policy, load=0.9))
        for policy in POLICIES
    ]
    results: dict[str, RunResult] = {}
    with _folder(out), progress_bar("comparing policies", apps * len(POLICIES)) as bar:
        for number, (policy, prepared) in enumerate(zip(POLICIES, runs, strict=True)):

            def show(done: int, _: int, number: int = number, policy: str = policy) -> None:
                bar.update(number * apps + done, f"simulating {policy}")

            results[policy] = run(prepared, progress=show)
        figures = _draw(results, out)
    if json:
        print_json(
            {
                "runs": {name: result.summary for name, result in results.items()},
                "figures": [str(path) for path in figures],
            }
        )
        return
    _show(results)
    for path in figures:
        note(f"figure: {path}")


@contextmanager
def _folder(out: Path) -> Iterator[None]:
    """A folder for the figures, made first because it may fail, and gone if nothing came of it."""
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("out", str(out), f"a folder that can be written ({error})") from error
    try:
        yield
    except BaseException:
        if not any(out.iterdir()):
            out.rmdir()
        raise


def _draw(results: dict[str, RunResult], out: Path) -> list[Path]:
    from themis.sim.figures import draw_rho_cdf, draw_timeline  # noqa: PLC0415 - see above

    draw_rho_cdf({name: result.apps for name, result in results.items()}, out / "rho")
    draw_timeline(results["themis"], out / "timeline")
    return [out / "rho.svg", out / "rho.png", out / "timeline.svg", out / "timeline.png"]


def _show(results: dict[str, RunResult]) -> None:
    out = console()
    first = next(iter(results.values())).summary
    sweeps, jobs = counted(first["apps"], "hyper-parameter sweep"), counted(first["jobs"], "job")
    out.print(
        f"\n{sweeps} ({jobs}) {'shares' if first['apps'] == 1 else 'share'} 16 GPUs on 6 machines "
        f"in 3 racks, load {first['load']:.2f}."
    )
    out.print(
        "rho compares each sweep's finish with its finish on a private, equal share of the cluster:"
        " at most 1 means that sharing cost it nothing.\n"
    )
    rows = table(
        "Who is fair?", "policy", "worst rho", "p95", "median", "fair apps", "mean finish",
        "GPU time", "restarts",
    )  # fmt: skip
    for name, result in results.items():
        summary = result.summary
        rows.add_row(
            name,
            *(
                f"{summary[key]['fair_share']:.2f}"
                for key in ("max_rho_ref", "p95_rho_ref", "median_rho_ref")
            ),
            f"{summary['share_fair_ref']['fair_share']:.0%}",
            f"{summary['mean_completion_h']:.1f} h",
            f"{summary['gpu_hours']:.0f} h",
            f"{summary['moves']}",
        )
    out.print(rows)
    out.print(
        "rho against the fluid equal-share reference (rho_ref, fair_share); fair: at most 1.05. "
        "One seed is an example, not evidence: try --seed."
    )
