"""`themis auction show`: what happened in a round of a running service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from themis.cli.common.app_view import length
from themis.cli.common.options import Json
from themis.cli.common.output import print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say, show, since


def show_command(
    number: Annotated[
        int | None,
        typer.Argument(metavar="[N]", min=0, help="The round; by default the last ones."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100, help="At most this many of the last rounds.")
    ] = 50,
    before: Annotated[
        int | None, typer.Option(min=1, help="Those before this round instead.")
    ] = None,
    bids: Annotated[bool, typer.Option("--bids", help="Also every row of the bids.")] = False,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show a round of the service: invitations, bids, winners, payments and leftovers."""
    client = reach(server, ca)
    answer = client.rounds(before, limit) if number is None else client.round(number)
    if json:
        print_json(answer)
    elif number is None:
        _list(answer["rounds"], answer.get("now"))
        if answer["before"] is not None:
            say(f"earlier ones: themis auction show --before {answer['before']}")
    else:
        _sheet(answer)
        _bids(answer["own"], whole=bids)


_TRIGGERS = {
    "beat": "leases ended at a beat",
    "free": "GPUs came free",
    "call": "an app could not wait",
}
_LEVELS = ("in one slot", "on one machine", "in one rack", "anywhere")


def _list(rounds: list[dict[str, Any]], now: Any) -> None:
    if not rounds:
        say("there is no such round, or none was held yet")
        return
    rows = [
        (item["round"], since(item["opened"], now), item["trigger"], item["offered"],
         _granted(item), item["idle"], len(item["own"]) + len(item["others"]),
         item.get("invited", 0), item["failed"] or "ok")
        for item in rounds
    ]  # fmt: skip
    columns = ("-round", "-ago", "because of", "-GPUs", "-given", "-idle", "-apps", "-asked",
               "outcome")  # fmt: skip
    show("", columns, rows)


def _granted(sheet: dict[str, Any]) -> int:
    own = sum(int(row["line"]["granted"]) for row in sheet["own"])
    return own + sum(int(row["granted"]) for row in sheet["others"])


def _sheet(sheet: dict[str, Any]) -> None:
    took = sheet["settled"] - sheet["opened"]
    ago = since(sheet["opened"], sheet.get("now"))
    when = "" if ago == "-" else f", {ago} ago"
    trigger = _TRIGGERS.get(sheet["trigger"], sheet["trigger"])
    say(f"round {sheet['round']}{when}: {trigger}; settled in {took:.1f} s")
    say(f"{sheet['offered']} GPUs offered, {_granted(sheet)} given, {sheet['idle']} idle")
    apps = len(sheet["own"]) + len(sheet["others"])
    if sheet.get("invited"):
        say(f"{sheet['invited']} of {apps} apps were asked for bids, the furthest behind first")
    if sheet["solver"]:
        say(f"solved by {sheet['solver']}{_certificate(sheet)}")
    if sheet["failed"]:
        say(f"it failed, and holders were renewed for a beat: {sheet['failed']}")
    if sheet["own"]:
        columns = ("app", "-rho", "-rank", "=asked", "-held", "-won", "-paid", "-left over", "-got",
                   "reason")  # fmt: skip
        show("", columns, [_row(row) for row in sheet["own"]])
    for row in sheet["own"]:
        if row["refused"]:
            say(f"{row['line']['app']}: its bid was refused: {row['refused']}")
    if sheet["others"]:
        others = [(row["held"], row["granted"], row["rho_change"]) for row in sheet["others"]]
        show("apps of other owners", ("-held", "-got", "-change of rho"), others)


def _certificate(sheet: dict[str, Any]) -> str:
    """The certificate of the answer, as far as the caller may see it."""
    quality = {True: ": the best there is", False: ": perhaps not the best"}.get(sheet["exact"], "")
    value, bound = sheet.get("value"), sheet.get("bound")
    if value is None or bound is None:
        return quality
    return f"{quality} (value {value:.4g}, no answer has more than {bound:.4g})"


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    line, given = row["line"], row.get("given_by") or {}
    rho = None if line["rho"] is None else f"{line['rho']:.2f}"
    return (
        line["app"], rho, line["rank"], line["invited"], line["held"], row["won"], row["paid"],
        given.get("leftover", 0), line["granted"], line["reason"],
    )  # fmt: skip


def _bids(rows: list[dict[str, Any]], *, whole: bool) -> None:
    """The bids: the largest row of each app, or all rows."""
    made = [(row["line"]["app"], row["bid"]["rows"]) for row in rows if row["bid"]]
    if not made:
        return
    if not whole:
        shown = [(app, len(bid), *_largest(bid)) for app, bid in made]
        show("bids", ("app", "-rows", "-GPUs at most", "-done in, with those"), shown)
        say("`--bids` shows every row")
    for app, bid in made if whole else ():
        lines = [(_chunks(row["chunks"]), length(row["seconds"])) for row in bid]
        show(f"bid of {app}", ("with", "-done in"), lines)


def _largest(bid: list[dict[str, Any]]) -> tuple[int, str]:
    if not bid:
        return 0, "-"
    sizes = [(sum(int(chunk["count"]) for chunk in row["chunks"]), -row["seconds"]) for row in bid]
    gpus, seconds = max(sizes)
    return gpus, length(-seconds)


def _chunks(chunks: list[dict[str, Any]]) -> str:
    """A row of a bid in words; machines by number, as bids name them."""
    told: dict[str, int] = {}
    for chunk in chunks:
        count, machine = int(chunk["count"]), chunk.get("machine")
        text = "1 GPU" if count == 1 else f"{count} GPUs"
        if machine is not None:
            text += f" on machine {machine}"
        elif count > 1:
            text += f" {_LEVELS[min(int(chunk['level']), len(_LEVELS) - 1)]}"
        told[text] = told.get(text, 0) + 1
    return " + ".join(text if times == 1 else f"{times} x {text}" for text, times in told.items())
