"""`themis quota` and `themis weight`: what owners may have, and their shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.common.options import Json
from themis.cli.common.output import NOT_FOUND, USAGE, fail, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say, show

if TYPE_CHECKING:
    from themis.client import Client

Owner = Annotated[str | None, typer.Argument(help="The owner; by default all owners are shown.")]


def quota(
    owner: Owner = None,
    gpus: Annotated[
        str | None, typer.Argument(metavar="[N|none]", help="GPUs at most, or none for any number.")
    ] = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show the GPU quotas of owners, or change one."""
    client = reach(server, ca)
    if owner is None or gpus is None:
        _show(client, owner, json=json)
        return
    wanted = _whole(gpus)
    client.quota(owner, wanted)
    if json:
        print_json({"owner": owner, "quota": wanted})
    else:
        limit = "any number of GPUs" if wanted is None else f"at most {wanted} GPUs"
        say(f"{owner} may have {limit}; existing leases run out")


def weight(
    owner: Owner = None,
    weight_: Annotated[
        float | None, typer.Argument(metavar="[W]", help="Its weight; 1 if never set.")
    ] = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Show the weights of owners, or change one."""
    client = reach(server, ca)
    if owner is None or weight_ is None:
        _show(client, owner, json=json)
        return
    client.weight(owner, weight_)
    if json:
        print_json({"owner": owner, "weight": weight_})
    else:
        say(f"{owner} has weight {weight_:g}")


def _whole(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal() or len(text) > 9:
        fail(f"quota: got {text!r}, allowed: a number of GPUs, or none", USAGE)
    return int(text)


def _show(client: Client, owner: str | None, *, json: bool) -> None:
    lines = [line for line in client.owners()["owners"] if owner in {None, line["owner"]}]
    if owner is not None and not lines:
        if client.whoami().get("role") != "admin":
            fail(f"{owner}: no app, quota or weight of this owner is known, or it is not yours",
                 NOT_FOUND)  # fmt: skip
        # A caller who sees all owners sees that nothing was set: each has weight one.
        lines = [{"owner": owner, "quota": None, "weight": None}]
    if json:
        print_json({"owners": lines})
        return
    rows = [
        (line["owner"], "any" if line["quota"] is None else line["quota"],
         1 if line["weight"] is None else line["weight"])
        for line in lines
    ]  # fmt: skip
    show("", ("owner", "-GPUs at most", "-weight"), rows)
