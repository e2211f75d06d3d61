"""`themis auction show`: what happened in a round of a running service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from themis.cli.options import Json
from themis.cli.output import print_json
from themis.cli.remote import SERVER, Authority, Server, reach, say, show


def show_command(
    number: Annotated[
        int | None,
        typer.Argument(metavar="[N]", min=0, help="The round; without it the last ones."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100, help="So many of the last rounds, at most.")
    ] = 50,
    before: Annotated[
        int | None, typer.Option(min=1, help="Those before this round instead.")
    ] = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show a round of the service: who was there, was asked, won and paid."""
    client = reach(server, ca)
    answer = client.rounds(before, limit) if number is None else client.round(number)
    if json:
        print_json(answer)
    elif number is None:
        _list(answer["rounds"])
        if answer["before"] is not None:
            say(f"earlier ones: themis auction show --before {answer['before']}")
    else:
        _sheet(answer)


def _list(rounds: list[dict[str, Any]]) -> None:
    if not rounds:
        say("there is no such round, or none was held yet")
        return
    rows = [
        (item["round"], item["trigger"], item["offered"], _granted(item), item["idle"],
         len(item["own"]) + len(item["others"]), item["failed"] or "ok")
        for item in rounds
    ]  # fmt: skip
    show("", ("-round", "because of", "-GPUs", "-given", "-idle", "-apps", "outcome"), rows)


def _granted(sheet: dict[str, Any]) -> int:
    own = sum(int(row["line"]["granted"]) for row in sheet["own"])
    return own + sum(int(row["granted"]) for row in sheet["others"])


def _sheet(sheet: dict[str, Any]) -> None:
    took = sheet["settled"] - sheet["opened"]
    say(f"round {sheet['round']}, because of {sheet['trigger']}: {sheet['offered']} GPUs offered, "
        f"{_granted(sheet)} given, {sheet['idle']} idle, settled in {took:.1f} s")  # fmt: skip
    if sheet["solver"]:
        quality = {True: "the best there is", False: "perhaps not the best"}.get(sheet["exact"], "")
        say(f"solved by {sheet['solver']}" + (f": {quality}" if quality else ""))
    if sheet["failed"]:
        say(f"it failed, and holders were renewed for a beat: {sheet['failed']}")
    if sheet["own"]:
        columns = ("app", "-rho", "-rank", "=asked", "-held", "-won", "-paid", "-got", "reason")
        show("", columns, [_row(row) for row in sheet["own"]])
    for row in sheet["own"]:
        if row["refused"]:
            say(f"{row['line']['app']}: its bid was refused: {row['refused']}")
    if sheet["others"]:
        others = [(row["held"], row["granted"], row["rho_change"]) for row in sheet["others"]]
        show("apps of other owners", ("-held", "-got", "-change of rho"), others)


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    line = row["line"]
    return (
        line["app"], line["rho"], line["rank"], line["invited"], line["held"], row["won"],
        row["paid"], line["granted"], line["reason"],
    )  # fmt: skip
