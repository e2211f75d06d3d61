"""`themis token`: who may call the service."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from themis.cli.common.options import Json
from themis.cli.common.output import USAGE, fail, note, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, day, reach, say, show

app = typer.Typer(help="Make, list and revoke tokens.", no_args_is_help=True, rich_markup_mode=None)


class RoleName(StrEnum):
    """The role of a token."""

    VIEWER = "viewer"
    TENANT = "tenant"
    NODE = "node"
    ADMIN = "admin"


@app.callback()
def _group() -> None:
    """Make, list and revoke tokens."""


@app.command("create")
def create_command(
    role: Annotated[RoleName, typer.Option(help="The token's role.")],
    subject: Annotated[str, typer.Option(help="An owner, a node, or a person's name.")],
    days: Annotated[
        float | None, typer.Option(help="Days of validity (default: until revoked).")
    ] = None,
    remark: Annotated[str, typer.Option("--note", help="A remark, for `token ls`.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="A new file for it (mode 0600), instead of the terminal.")
    ] = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Make a token; its secret is shown or written this once, and kept nowhere."""
    if out is not None and out.exists():
        fail(f"{out}: there is such a file already; choose another name", USAGE)
    client = reach(server, ca)
    made = client.create_token(role.value, subject, days=days, note=remark)
    secret = str(made.pop("token"))
    if out is not None:
        _write(out, secret, lambda: client.revoke_token(str(made["id"])))
    if json:
        print_json({**made, "file": str(out)} if out else {**made, "token": secret})
    elif out is not None:
        say(f"token {made['id']} for {made['role']} {made['subject']} is in {out}")
    else:
        note(f"token {made['id']} for {made['role']} {made['subject']}, shown this once:")
        say(secret)


def _write(out: Path, secret: str, undo: Any) -> None:
    """Write the secret to its file; revoke the token if that fails."""
    from themis.errors import ThemisError  # noqa: PLC0415 - late, so that --help is quick
    from themis.security.token_files import write_secret  # noqa: PLC0415 - see above
    from themis.security.tokens import Secret  # noqa: PLC0415 - see above

    try:
        write_secret(out, Secret(secret))
    except ThemisError:
        undo()
        raise


@app.command("ls")
def ls_command(
    all_: Annotated[bool, typer.Option("--all", help="Also those that are no longer valid.")] = (
        False
    ),
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """List tokens, without their secrets."""
    answer = reach(server, ca).tokens()
    now = time.time()
    kept = [item for item in answer["tokens"] if all_ or _state(item, now) == "valid"]
    if json:
        print_json({"tokens": kept})
        return
    rows = [
        (item["id"], item["role"], item["subject"], _state(item, now), day(item["expires"]),
         day(item["used"]), item["note"])
        for item in kept
    ]  # fmt: skip
    show("", ("=id", "=role", "subject", "=state", "=expires", "=last used", "note"), rows)


@app.command("revoke")
def revoke_command(
    token: Annotated[str, typer.Argument(metavar="ID", help="The 12 characters after themis_.")],
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """End a token at once, with the browser sessions that were opened with it."""
    # People paste the whole token: its secret goes no further than here.
    parts = token.split("_")
    number = parts[1] if len(parts) == 3 and parts[0] == "themis" else token
    ended = reach(server, ca).revoke_token(number)
    if json:
        print_json(ended)
    else:
        say(f"token {ended['id']} of {ended['role']} {ended['subject']} is no longer valid")


def _state(item: dict[str, Any], now: float) -> str:
    if item["revoked"] is not None:
        return "revoked"
    return "expired" if item["expires"] is not None and item["expires"] <= now else "valid"
