"""What commands that call a service have in common: where it is, who calls, and tables.

def ls(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    answer = reach(server, ca).apps()
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.output import escape_line
from themis.cli.common.tables import listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from themis.client import Client

SERVER = "http://127.0.0.1:7421"

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
        UnknownCallerError: There is no token anywhere, or its file is open to others.
        ConfigError: The address is none.
    """
    from themis.client import Client  # noqa: PLC0415 - late, so that --help is quick

    return Client(server, token(), ca)


def token() -> str:
    """The token of this user.

    Raises:
        UnknownCallerError: There is none anywhere, or its file is open to others.
    """
    from themis.errors import (  # noqa: PLC0415 - see above
        ConfigError,
        MissingFileError,
        UnknownCallerError,
    )
    from themis.security.token_files import (  # noqa: PLC0415 - see above
        VARIABLE,
        read_token,
        token_places,
    )

    places = token_places(os.environ, root=os.geteuid() == 0)
    try:
        if os.environ.get(VARIABLE):
            return read_token(places[0]).reveal()
        for place in places:
            with suppress(MissingFileError):
                return read_token(place).reveal()
    except ConfigError as error:  # A file that is no good is no token, as one that is not there.
        raise UnknownCallerError("caller", f"no token: {error}") from None
    looked = " and ".join(str(place) for place in places)
    raise UnknownCallerError("caller", f"no token: looked for {looked}")


# Showing


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table that fits into 80 columns; see `listing`."""
    listing(title, columns, rows).print()


def say(line: str) -> None:
    """Print one line; nothing in it steers the terminal."""
    typer.echo(escape_line(line.replace("\n", " ")))


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
