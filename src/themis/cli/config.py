"""`themis config`: check files before something depends on them, and see what holds."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.config_flags import (
    VARIABLE,
    ServiceCommand,
    ServiceFile,
    service_configuration,
)
from themis.cli.common.options import Json
from themis.cli.common.output import (
    NOT_FOUND,
    USAGE,
    console,
    escape_line,
    fail,
    note,
    print_json,
    table,
)
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from themis.config.keys import ServiceConfig
    from themis.config.loader import Loaded
    from themis.errors import ConfigError
    from themis.sim.runs.run_file import RunFileReport

app = typer.Typer(
    help="Check configuration files, and show effective values.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class FileKind(StrEnum):
    """What a file may be."""

    AUTO = "auto"
    SIMULATION = "simulation"
    """A run or a cluster."""
    SERVICE = "service"


@app.callback()
def _group() -> None:
    """Check configuration files, and show effective values."""


@app.command("check")
def check_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Services, runs or clusters.")
    ],
    kind: Annotated[
        FileKind, typer.Option(help="The kind of the files, if their keys do not tell.")
    ] = FileKind.AUTO,
    json: Json = False,
) -> None:
    """Check YAML files: of a service (`serve`), a run (`sim run --config`) or a cluster."""
    from themis.errors import MissingFileError  # noqa: PLC0415 - late, so that --help is quick

    checked = {file: _check(file, kind) for file in files}
    if json:
        results = [
            {
                "file": str(file),
                "ok": not item.mistakes,
                "what": str(item.mistakes[0]) if item.mistakes else item.what,
                "mistakes": [str(mistake) for mistake in item.mistakes],
            }
            for file, item in checked.items()
        ]
        print_json({"files": results})
    else:
        for file, item in checked.items():
            _say(file, item)
    mistakes = [mistake for item in checked.values() for mistake in item.mistakes]
    if mistakes:
        missing = all(isinstance(mistake, MissingFileError) for mistake in mistakes)
        raise typer.Exit(NOT_FOUND if missing else USAGE)


@app.command("show", cls=ServiceCommand)
def show_command(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="The service's YAML file, as --config.")
    ] = None,
    config: ServiceFile = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only values that are not defaults.")
    ] = False,
    running: Annotated[
        bool, typer.Option("--running", help="The values of the running service.")
    ] = False,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show every key of a service with its value and the value's origin.

    Of a file, or with --running of the service that runs. Without either, what `themis serve`
    would go by if it were started here.
    """
    if file is not None and config is not None:
        fail("FILE and --config: one of them, please", USAGE)
    if running:
        if file is not None or config is not None:
            fail("--running and a file: one of them, please", USAGE)
        found = _running(reach(server, ca).config())
    else:
        chosen = file or config
        found = _rows(service_configuration(context, chosen))
        if chosen is None and VARIABLE not in os.environ:
            note(_no_file())
    rows = [row for row in found if not changed or row["origin"] != "default"]
    if json:
        print_json({"keys": rows})
        return
    shown = table("", "key", "value", "from")
    for row in rows:
        value = "" if row["value"] is None else str(row["value"])
        shown.add_row(*(escape_line(text) for text in (row["key"], value, row["origin"])))
    for column in shown.columns:
        column.justify = "left"
        column.overflow = "fold"
    console().print(shown, markup=False)


@app.command("reload")
def reload_command(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Let a running service reload its file; all of it or nothing."""
    answer = reach(server, ca).reload()
    if json:
        print_json(answer)
        return
    changed = ", ".join(map(str, answer["changed"]))
    say(f"read again; changed: {changed}" if changed else "read again; nothing changed")


@app.command("schema")
def schema_command(
    of_app: Annotated[
        bool, typer.Option("--app", help="The schema of app files (`submit`) instead.")
    ] = False,
) -> None:
    """Print the JSON Schema of the service's file, for editors."""
    from json import dumps  # noqa: PLC0415 - a flag of other commands has this name

    from themis.apps import app_schema  # noqa: PLC0415 - for a quick --help
    from themis.config.keys import service_schema  # noqa: PLC0415 - see above

    sys.stdout.write(dumps(app_schema() if of_app else service_schema(), indent=2) + "\n")


_USUAL = Path("/etc/themis/themis.yaml")


def _no_file() -> str:
    """The hint for a user who may expect the keys of a file or of a running service."""
    usual = f" FILE, as {_USUAL}" if _USUAL.is_file() else " FILE"
    return (
        f"no file is named: defaults, environment and flags alone; `themis config show{usual}` "
        "shows that of a file, --running that of the service that runs"
    )


def _running(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The keys of a running service."""
    from themis.config.keys import MAPPINGS  # noqa: PLC0415 - late, for a quick --help

    rows: list[dict[str, Any]] = []
    for key, told in answer.items():
        if key in MAPPINGS and isinstance(told["value"], dict):
            entries = told["value"].items()
            rows += [
                {"key": f"{key}.{name}", "value": value, "origin": told["from"]}
                for name, value in entries
            ]
        else:
            rows.append({"key": key, "value": told["value"], "origin": told["from"]})
    return rows


def _rows(loaded: Loaded) -> list[dict[str, Any]]:
    from themis.config.keys import values_of  # noqa: PLC0415 - late, for a quick --help
    from themis.config.value_types import plain  # noqa: PLC0415 - see above

    return [
        {"key": key, "value": plain(value), "origin": loaded.origins[key]}
        for key, value in values_of(loaded.config).items()
    ]


def _check(file: Path, kind: FileKind) -> RunFileReport:
    from themis.sim.runs.run_file import RunFileReport, check_file  # noqa: PLC0415 - for a quick --help

    if not (kind is FileKind.SERVICE or (kind is FileKind.AUTO and _is_service(file))):
        return check_file(file)
    from themis.config.loader import examine  # noqa: PLC0415 - see above

    found = examine(file)
    if found.loaded is None:
        return RunFileReport("", found.mistakes)
    config = found.loaded.config
    mistake = _mistake_of_engine(file)
    if mistake is not None:
        return RunFileReport("", (mistake,))
    return RunFileReport(f"service, {config.policy} on grpc {config.grpc} and http {config.http}")


def _mistake_of_engine(file: Path) -> ConfigError | None:
    """Why a service with this file and environment could not start its local nodes."""
    from themis.config.loader import examine  # noqa: PLC0415 - see above
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick

    loaded = examine(file, environ=os.environ, root=os.geteuid() == 0).loaded
    if loaded is None:
        return None
    try:
        _check_engine(loaded.config)
    except ConfigError as error:
        return ConfigError(error.key, error.given, error.allowed, error.where or str(file))
    return None


def _check_engine(config: ServiceConfig) -> None:
    if config.engine != "local":
        from themis.node.bridge.child import check_bridge  # noqa: PLC0415 - for a quick --help

        check_bridge(config)
    elif config.local_nodes is not None:
        from themis.node.local_nodes import local_machines  # noqa: PLC0415 - see above

        local_machines(config)


def _is_service(file: Path) -> bool:
    """Whether a file has a key that only services have."""
    from themis.config.keys import KEYS, SECTIONS  # noqa: PLC0415 - see above
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick
    from themis.recording.yaml_documents import read_document  # noqa: PLC0415 - see above
    from themis.sim.runs.run_file import KEYS as RUN_KEYS  # noqa: PLC0415 - see above

    try:
        data, _ = read_document(file)
    except ConfigError:
        return False
    own = {*KEYS, *SECTIONS} - {*RUN_KEYS, "racks"}
    return isinstance(data, dict) and any(key in own for key in data if isinstance(key, str))


def _say(file: Path, checked: RunFileReport) -> None:
    if not checked.mistakes:
        sys.stdout.write(escape_line(f"{file}: ok ({checked.what})") + "\n")
    for mistake in checked.mistakes:
        sys.stderr.write(escape_line(f"error: {mistake}") + "\n")
