"""`themis config`: check files before something depends on them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.options import Json
from themis.cli.output import NOT_FOUND, USAGE, escape_line, print_json

if TYPE_CHECKING:
    from themis.sim.runfile import Checked

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
    from themis.errors import MissingFileError  # noqa: PLC0415 - late, so that --help is quick
    from themis.sim.runfile import check_file  # noqa: PLC0415 - see above

    checked = {file: check_file(file) for file in files}
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


def _say(file: Path, checked: Checked) -> None:
    if not checked.mistakes:
        sys.stdout.write(escape_line(f"{file}: ok ({checked.what})") + "\n")
    for mistake in checked.mistakes:
        sys.stderr.write(escape_line(f"error: {mistake}") + "\n")
