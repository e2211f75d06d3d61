"""What commands that call a service have in common: where it is, who calls, and tables.

def ls(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    answer = reach(server, ca).apps()
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from themis.cli.output import STYLE, escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table

    from themis.client import Client

SERVER = "http://127.0.0.1:7421"
WIDTH = 80
"""Tables fit into this, also where nobody watches."""

Server = Annotated[
    str, typer.Option("--server", envvar="THEMIS_SERVER", help="Where the service is.")
]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca", envvar="THEMIS_CA", help="Who signed its certificate (PEM), for https://."
    ),
]


def reach(server: str, ca: Path | None) -> Client:
    """The service, called with the token of this user.

    Raises:
        UnknownCallerError: There is no token anywhere.
        ConfigError: Its file is open to others, or the address is none.
    """
    from themis.client import Client  # noqa: PLC0415 - late, so that --help is quick

    return Client(server, token(), ca)


def token() -> str:
    """The token of this user.

    Raises:
        UnknownCallerError: There is none anywhere.
        ConfigError: Its file is open to others.
    """
    from themis.errors import MissingFileError, UnknownCallerError  # noqa: PLC0415 - see above
    from themis.live.tokenfile import (  # noqa: PLC0415 - see above
        VARIABLE,
        read_token,
        token_places,
    )

    places = token_places(os.environ, root=os.geteuid() == 0)
    if os.environ.get(VARIABLE):
        return read_token(places[0]).reveal()
    for place in places:
        with suppress(MissingFileError):
            return read_token(place).reveal()
    looked = " and ".join(str(place) for place in places)
    raise UnknownCallerError("caller", f"no token: looked for {looked}")


# Showing


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table that fits into 80 columns; see `listing`."""
    wide_console().print(listing(title, columns, rows))


def listing(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table that fits into 80 columns.

    Args:
        title: Above it, if any.
        columns: Their names. One of numbers begins with `-`, one that is never folded with `=`.
        rows: What stands in them.
    """
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only needed when something is shown
    from rich.table import Table  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        number, whole = column.startswith("-"), column.startswith(("-", "="))
        side: Literal["left", "right"] = "right" if number else "left"
        table.add_column(column.lstrip("-="), justify=side, no_wrap=whole, overflow="fold")
    for row in rows:
        # As text and not as markup: a name may hold anything.
        table.add_row(*(Text(cell(value)) for value in row))
    return table


def say(line: str) -> None:
    """Print one line; nothing in it steers the terminal."""
    typer.echo(escape_line(line.replace("\n", " ")))


def cell(value: object) -> str:
    """A value as it stands in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape_line(str(value)).replace("\n", " ")


def moment(seconds: Any) -> str:
    """A time of day for people, in UTC: 2026-11-16 08:15."""
    if not isinstance(seconds, int | float):
        return "-"
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return "-"


def day(seconds: Any) -> str:
    """The day of a time, in UTC."""
    return moment(seconds).partition(" ")[0]


def since(then: Any, now: Any) -> str:
    """How long ago something was on the cluster's clock: 40 s, 12 min, 3.5 h."""
    if not isinstance(then, int | float) or not isinstance(now, int | float):
        return "-"
    seconds = max(0.0, now - then)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 4 * 86400 else f"{seconds / 86400:.0f} d"


def wide_console() -> Console:
    """Where tables go: as wide as the terminal, or 80 columns."""
    from rich.console import Console  # noqa: PLC0415 - only needed when something is shown

    width = None if sys.stdout.isatty() else WIDTH
    return Console(no_color=not STYLE.color, width=width, highlight=False)
