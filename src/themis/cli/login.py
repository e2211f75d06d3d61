"""`themis whoami` and `themis login`: who one is, on the command line and in a browser."""

from __future__ import annotations

from themis.cli.common.options import Json
from themis.cli.common.output import note, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say


def whoami(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Show the identity of the current token, and the service."""
    client = reach(server, ca)
    identity = client.whoami()
    about = client.about()
    if json:
        print_json({**identity, "server": client.server, **about})
    else:
        say(f"{identity['role']} {identity['subject']} on {client.server} "
            f"(Themis {about['version']}, epoch {about['epoch']})")  # fmt: skip


def login(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Print a link that logs in one browser, once, within five minutes."""
    link = reach(server, ca).login_link()
    if json:
        print_json({"link": link})
        return
    note("open this in your browser within five minutes; it works once; keep it secret:")
    say(link)
