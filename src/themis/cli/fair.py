"""`themis fair`: rho of every app, the worst off first."""

from __future__ import annotations

from themis.cli.common.app_view import gpus_held, length
from themis.cli.common.options import Json
from themis.cli.common.output import print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say, show

FAIR = 1.05
"""The largest rho that counts as fair."""


def fair(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """Show rho of every app: its time on the cluster divided by its time on a private share."""
    lines = reach(server, ca).fair()
    if json:
        print_json({"apps": lines})
        return
    if not lines:
        say("no app has a rho yet")
        return
    rows = [
        (line["app"], line.get("owner"), f"{line['rho']:.2f}",
         f"{gpus_held(line)}/{line.get('demand', '?')}", length(line.get("elapsed")),
         length(line.get("ideal_seconds")), line.get("reason"))
        for line in lines
    ]  # fmt: skip
    show("", ("app", "owner", "-rho", "-GPUs", "-so far", "-ideal", "=reason"), rows)
    from statistics import median  # noqa: PLC0415 - late, so that --help is quick

    all_rho = [float(line["rho"]) for line in lines]
    good = sum(rho <= FAIR for rho in all_rho)
    say(f"rho at most {all_rho[0]:.2f}, median {median(all_rho):.2f}; "
        f"{good} of {len(lines)} fair (at most {FAIR})")  # fmt: skip
