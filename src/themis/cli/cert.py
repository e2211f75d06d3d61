"""`themis cert`: certificates for the service and its nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from themis.cli.common.options import Json
from themis.cli.common.output import escape_line, print_json

if TYPE_CHECKING:
    from themis.security.certificate_authority import CertificatePair

Folder = Annotated[Path, typer.Option("--dir", help="The folder with the authority's files.")]
Days = Annotated[float, typer.Option(help="Days of validity.")]

app = typer.Typer(
    help="Make certificates for the service and its nodes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Make certificates for the service and its nodes."""


@app.command("ca")
def ca_command(folder: Folder = Path("certs"), days: Days = 3650.0, json: Json = False) -> None:
    """Make a certificate authority: ca.pem to hand out, ca.key to keep secret."""
    from themis.security.certificate_authority import make_authority  # noqa: PLC0415 - late, for a quick --help

    _tell(make_authority(folder, now=time.time(), days=days), json=json)


@app.command("server")
def server_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names and addresses.")],
    folder: Folder = Path("certs"),
    days: Days = 398.0,
    json: Json = False,
) -> None:
    """Make the service's certificate, for the names and addresses of its clients' URLs."""
    from themis.security.certificate_authority import make_server  # noqa: PLC0415 - late, for a quick --help

    _tell(make_server(folder, names, now=time.time(), days=days), json=json)


@app.command("node")
def node_command(
    name: Annotated[str, typer.Argument(help="The node's name, as in its token.")],
    folder: Folder = Path("certs"),
    days: Days = 398.0,
    json: Json = False,
) -> None:
    """Make a node's certificate, for `tls.require_client`."""
    _client("node", name, folder, days, json=json)


@app.command("tenant")
def tenant_command(
    name: Annotated[str, typer.Argument(help="The owner's name, as in the token.")],
    folder: Folder = Path("certs"),
    days: Days = 398.0,
    json: Json = False,
) -> None:
    """Make a certificate for the agents of an owner, for `tls.require_client`."""
    _client("tenant", name, folder, days, json=json)


@app.command("show")
def show_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Certificates (PEM).")],
    json: Json = False,
) -> None:
    """Show when certificates expire."""
    from themis.security.tls import days_left  # noqa: PLC0415 - late, for a quick --help

    now = time.time()
    found = {file: days_left(file, now=now) for file in files}
    if json:
        print_json({"files": [{"file": str(f), "days_left": d} for f, d in found.items()]})
        return
    for file, left in found.items():
        words = f"valid for {left:.0f} days" if left > 0 else "expired"
        typer.echo(escape_line(f"{file}: {words}"))


def _client(role: str, name: str, folder: Path, days: float, *, json: bool) -> None:
    from themis.security.certificate_authority import make_client  # noqa: PLC0415 - late, for a quick --help
    from themis.security.tokens import Role  # noqa: PLC0415 - see above

    _tell(make_client(folder, Role(role), name, now=time.time(), days=days), json=json)


def _tell(pair: CertificatePair, *, json: bool) -> None:
    if json:
        print_json({"cert": str(pair.cert), "key": str(pair.key)})
    else:
        typer.echo(escape_line(f"{pair.cert} and {pair.key} (keep that one to yourself)"))
