"""`themis sim compare` and `themis sim sweep`: many runs on all cores, tables and figures."""

from __future__ import annotations

import csv
import io
import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common import options
from themis.cli.common.interruption import ending_alike
from themis.cli.common.output import (
    MISSING_FIGURES,
    USAGE,
    console,
    counted,
    fail,
    note,
    print_json,
    progress_bar,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from themis.sim import Comparison, RunConfig
    from themis.sim.compare import SummaryMetric
    from themis.sim.runs.worker_pool import Progress

MAX_SEEDS = 10_000

Policies = Annotated[str, typer.Option(help="Policies, separated by commas; or all.")]
Seeds = Annotated[str, typer.Option(help="Seeds: 1-5, or 1,2,7, or both.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Write runs, tables and figures here; resumes an interrupted call."),
]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write a row per run to this file.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Print a second table with the paper's convention and more.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Parallel processes; default: all cores.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run again what --out already has.")]


def compare_command(
    context: typer.Context,
    policies: Policies = "themis,equal-share,gandiva,tiresias",
    seeds: Seeds = "1-5",
    cluster: options.Cluster = "testbed64",
    contention: options.Contention = 1,
    workload: options.WorkloadName = "w2",
    apps: options.Apps = 85,
    load: options.Load = None,
    lease: options.Lease = None,
    f: options.Knob = None,
    set_: options.Set = None,
    config: options.ConfigFile = None,
    out: Out = None,
    csv: Csv = None,
    wide: Wide = False,
    workers: Workers = None,
    fresh: Fresh = False,
    json: options.Json = False,
) -> None:
    """Compare policies over seeds: the same apps for all, on all cores."""
    base = options.configuration(
        context, config, cluster=cluster, contention=contention, workload=workload, apps=apps,
        load=load, lease=lease, f=f, set_=set_,
    )  # fmt: skip
    names, numbers = policy_names(policies), seed_numbers(seeds)
    from themis.sim import compare  # noqa: PLC0415 - late, so that --help is quick

    def run(progress: Progress) -> Comparison:
        return compare(
            names, numbers, base, out=out, workers=workers, progress=progress, fresh=fresh
        )

    _carry_out(run, base, len(numbers), out, csv, wide=wide, json=json)


def sweep_command(
    context: typer.Context,
    key: Annotated[str, typer.Option(help="The key to vary: a flag, or any key of --set.")],
    values: Annotated[str, typer.Option(help="Its values, separated by commas.")],
    policies: Policies = "themis",
    seeds: Seeds = "1-5",
    cluster: options.Cluster = "testbed64",
    contention: options.Contention = 1,
    workload: options.WorkloadName = "w2",
    apps: options.Apps = 85,
    load: options.Load = None,
    lease: options.Lease = None,
    f: options.Knob = None,
    set_: options.Set = None,
    config: options.ConfigFile = None,
    out: Out = None,
    csv: Csv = None,
    wide: Wide = False,
    workers: Workers = None,
    fresh: Fresh = False,
    json: options.Json = False,
) -> None:
    """Vary one key over policies and seeds."""
    base = options.configuration(
        context, config, cluster=cluster, contention=contention, workload=workload, apps=apps,
        load=load, lease=lease, f=f, set_=set_,
    )  # fmt: skip
    names, numbers = policy_names(policies), seed_numbers(seeds)
    from themis.recording.written_values import parse_value  # noqa: PLC0415 - see above
    from themis.sim import sweep  # noqa: PLC0415 - late, so that --help is quick

    chosen = [parse_value(text) for text in _parts(values)]

    def run(progress: Progress) -> Comparison:
        return sweep(
            key, chosen, names, numbers, base, out=out, workers=workers, progress=progress,
            fresh=fresh,
        )  # fmt: skip

    _carry_out(run, base, len(numbers), out, csv, wide=wide, json=json)


def policy_names(text: str) -> list[str]:
    """The policies in a list with commas; `all` for every policy."""
    from themis.core.policies import POLICIES  # noqa: PLC0415 - late, so that --help is quick

    return list(POLICIES) if text.strip() == "all" else _parts(text)


def seed_numbers(text: str) -> list[int]:
    """Seeds from 1-5, 1,2,7 or 1-3,9."""
    found: list[int] = []
    for part in _parts(text):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or not (high if dash else low).isdecimal() or len(part) > 40:
            fail(f"--seeds {text!r}: expected numbers and ranges, for example 1-5 or 1,2,7", USAGE)
        first, last = int(low), int(high or low)
        if not 0 <= last - first < MAX_SEEDS:
            fail(f"--seeds {part!r}: expected a range upwards of at most {MAX_SEEDS}", USAGE)
        found += range(first, last + 1)
    return found


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _carry_out(
    run: Any, base: RunConfig, seeds: int, out: Path | None, csv: Path | None, *, wide: bool,
    json: bool,
) -> None:  # fmt: skip
    from themis.recording.atomic_files import (  # noqa: PLC0415 - late, so that --help is quick
        check_writable,
        write_whole,
    )
    from themis.sim.gc_tuning import spare_memory_checks  # noqa: PLC0415 - see above

    if csv is not None:
        check_writable(csv, "csv")
    spare_memory_checks()
    comparison = _with_progress(run, out)
    rows = _csv(comparison.run_rows())
    if csv is not None:
        write_whole(csv, rows, "csv")
    files = [] if out is None else _keep(comparison, out, rows)
    if json:
        print_json({**comparison.to_dict(), "files": [str(path) for path in files]})
    else:
        _show(comparison, base, seeds, wide=wide)
        for path in files:
            note(f"written: {path}")
    fail_after_failed_rounds([run.summary for group in comparison.groups for run in group.runs])


def fail_after_failed_rounds(summaries: Iterable[Mapping[str, Any]]) -> None:
    """End the command with an error if a round of these runs failed: it only renewed leases."""
    failed = [summary for summary in summaries if summary["failed_rounds"]]
    if failed:
        rounds = sum(summary["failed_rounds"] for summary in failed)
        reason = failed[0]["first_failure"]
        fail(f"{counted(rounds, 'round')} failed and only renewed leases, the first with: {reason}")


def _with_progress(run: Any, out: Path | None) -> Comparison:
    try:
        # The total is known only when everything is checked, which is done within.
        with ending_alike(), progress_bar("checking", 1, numbers=False) as bar:

            def show(done: int, total: int, text: str) -> None:
                bar.update(done, text, total)

            result: Comparison = run(show)
    except KeyboardInterrupt:
        if out is not None:
            note(f"finished runs are in {out}; the same command goes on from there")
        raise
    return result


def _keep(comparison: Comparison, out: Path, rows: bytes) -> list[Path]:
    """Tables and figures beside the runs."""
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick
    from themis.recording.atomic_files import write_whole  # noqa: PLC0415 - see above

    name = "sweep" if comparison.swept else "comparison"
    text = jsons.dumps(comparison.to_dict(), indent=1) + "\n"
    files = {
        f"{name}.json": text.encode(),
        "runs.csv": rows,
        "apps.csv": _csv(comparison.app_rows()),
    }
    for file, data in files.items():
        write_whole(out / file, data)
    paths = [out / file for file in files]
    kinds = ("sweep", "timeline") if comparison.swept else ("rho", "usage", "placement", "timeline")
    try:
        with progress_bar("drawing", len(kinds)) as bar:
            for done, kind in enumerate(kinds):
                bar.update(done, f"drawing {kind}")
                paths += comparison.plot(kind).save(out / kind)
    except ConfigError as error:
        if error.key != "figures":
            raise
        note(MISSING_FIGURES)
    return paths


def _csv(rows: list[dict[str, Any]]) -> bytes:
    """A table with every column that a row has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _show(comparison: Comparison, base: RunConfig, seeds: int, *, wide: bool) -> None:
    from themis.sim.compare import METRICS, WIDE_METRICS  # noqa: PLC0415 - see above

    first = comparison.groups[0].runs[0].summary
    what = {
        "workload": base.workload,
        "cluster": base.cluster,
        "apps": counted(first["apps"], "app"),
    }
    told = ", ".join(text for key, text in what.items() if key != comparison.swept)
    out = console()
    out.print(_table(f"{told}, {counted(seeds, 'seed')}", comparison, METRICS))
    if wide:
        out.print(_table("rho_ref by the paper's convention, and more", comparison, WIDE_METRICS))
    interval = "mean ± 95 % interval over seeds" if seeds > 1 else "one seed is an example only"
    out.print(f"rho_ref, fair share; fair: at most 1.05; {interval}.")


def _table(title: str, comparison: Comparison, metrics: tuple[SummaryMetric, ...]) -> Any:
    swept = comparison.swept
    # The first column is text: the policy, or the value with its policy.
    rows = table(title, f"{swept}, policy" if swept else "policy", *(m.label for m in metrics))
    for group in comparison.groups:
        found = group.estimates()
        label = f"{group.value}, {group.policy}" if swept else group.policy
        rows.add_row(label, *(found[metric.name].shown(metric.form) for metric in metrics))
    return rows
