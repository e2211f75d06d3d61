"""`themis config`: check files before something depends on them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from themis.cli.options import Json
from themis.cli.output import USAGE, escape_line, print_json

app = typer.Typer(help="Check configuration files.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Check configuration files."""


@app.command("check")
def check_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Runs or clusters.")],
    json: Json = False,
) -> None:
    """Check YAML files with a run (for `sim run --config`) or a cluster (`--cluster`)."""
    from themis.errors import ConfigError  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.runfile import check_file  # noqa: PLC0415 - see above

    results: list[dict[str, object]] = []
    for file in files:
        try:
            results.append({"file": str(file), "ok": True, "what": check_file(file)})
        except ConfigError as error:
            results.append({"file": str(file), "ok": False, "what": str(error)})
    if json:
        print_json({"files": results})
    else:
        for item in results:
            _say(item)
    if not all(item["ok"] for item in results):
        raise typer.Exit(USAGE)


def _say(item: dict[str, object]) -> None:
    if item["ok"]:
        sys.stdout.write(escape_line(f"{item['file']}: ok ({item['what']})") + "\n")
    else:
        sys.stderr.write(escape_line(f"error: {item['what']}") + "\n")
