"""`themis audit`: who did what."""

from __future__ import annotations

from typing import Annotated

import typer

from themis.cli.common.options import Json
from themis.cli.common.output import print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, moment, reach, show


def audit(
    last: Annotated[int, typer.Option(min=1, max=1000, help="How many of the newest rows.")] = 50,
    first: Annotated[
        int | None, typer.Option(min=1, help="Show 1000 rows from this number on instead.")
    ] = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show who changed what, and which calls were denied."""
    client = reach(server, ca)
    answer = client.audit(first=first) if first is not None else client.audit(last=last)
    if json:
        print_json(answer)
        return
    rows = [
        (row["number"], moment(row["at"]), row["who"].replace("/", " "),
         f"{row['verb']} {row['target']}".strip(), f"{row['outcome']} {row['detail']}".strip())
        for row in answer["rows"]
    ]  # fmt: skip
    show("", ("-row", "=when (UTC)", "who", "what", "outcome"), rows)
