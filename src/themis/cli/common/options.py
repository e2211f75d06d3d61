"""Flags that several commands have, and the configuration they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.output import USAGE, fail

if TYPE_CHECKING:
    from themis.sim import RunConfig

Cluster = Annotated[str, typer.Option(help="A preset (testbed64, sim256, ...) or a YAML file.")]
Contention = Annotated[int, typer.Option(help="Keep every n-th machine of each kind.")]
WorkloadName = Annotated[
    str,
    typer.Option(help="w1, w2 or trace-study, or a file that `themis trace import` wrote."),
]
Apps = Annotated[int, typer.Option(help="How many apps arrive.")]
Load = Annotated[
    float | None, typer.Option(help="Work / (GPUs x horizon); stretches the arrivals.")
]
Lease = Annotated[str | None, typer.Option(help="Length of a lease, as 10m.")]
Knob = Annotated[float | None, typer.Option("--f", help="Fairness knob, 0 to 1.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other key; may be repeated."),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A YAML file with these flags; flags given win.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def configuration(context: typer.Context, file: Path | None, **flags: Any) -> RunConfig:
    """The run that flags and a file ask for; a flag that was given wins over the file.

    `flags` are fields of RunConfig, and `lease`, `f` and `set_`.
    """
    from themis.sim import RunConfig  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.config import refuse_apps_of_file  # noqa: PLC0415 - see above
    from themis.sim.runs.run_file import read_run  # noqa: PLC0415 - see above

    options = pairs(flags.pop("set_", None) or [])
    for key in ("lease", "f"):
        value = flags.pop(key)
        if value is not None:
            if key in options:
                fail(f"--{key} and --set {key}: given twice, once is enough", USAGE)
            options[key] = value
    if file is not None:
        told = read_run(file)
        kept = {key: getattr(told, key) for key in flags if not given(context, key)}
        flags = {"seed": told.seed, "policy": told.policy, **flags, **kept}
        options = {**told.options, **options}
    config = RunConfig(**flags, options=options)
    if given(context, "apps"):
        refuse_apps_of_file(config)  # which is silent about the number that is there anyway
    return config


def given(context: typer.Context, key: str) -> bool:
    """Whether a flag was given, if only with the value that it has anyway."""
    source = context.get_parameter_source(key)
    return source is not None and source.name == "COMMANDLINE"


def pairs(texts: list[str]) -> dict[str, Any]:
    """Keys and values of --set."""
    from themis.recording.written_values import parse_value  # noqa: PLC0415 - late, so that --help is quick

    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            fail(f"--set {text!r}: expected KEY=VALUE, for example --set payment=gpus", USAGE)
        if key.strip() in found:
            fail(f"--set {key.strip()}: given twice, once is enough", USAGE)
        found[key.strip()] = parse_value(value)
    return found
