"""The tree of commands. Importing this must stay quick: verbs import what they need when run."""

from typing import Annotated

import typer

from themis import __version__
from themis.cli import (
    agents,
    apps,
    auction,
    audit,
    backup,
    cert,
    config,
    dashboard,
    demo,
    doctor,
    exec,  # noqa: A004 - the verb is called that
    fair,
    login,
    logs,
    node,
    nodes,
    owners,
    replay,
    reproduce,
    results,
    run,
    serve,
    sim,
    submit,
    token,
    trace,
    wait,
)
from themis.cli.output import STYLE
from themis.cli.service import ServiceCommand, StoreCommand

app = typer.Typer(
    name="themis",
    help="Share a GPU cluster fairly among teams who train models.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(sim.app, name="sim")
app.add_typer(trace.app, name="trace")
app.add_typer(auction.app, name="auction")
app.add_typer(config.app, name="config")
app.add_typer(cert.app, name="cert")
app.add_typer(token.app, name="token")
app.add_typer(nodes.app, name="nodes")
app.command("submit")(submit.submit)
# Flags behind the program are the program's own, also without a `--` before it.
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
for verb in (
    apps.ls, apps.status, logs.logs, results.results, wait.wait, fair.fair, apps.pause,
    apps.resume, apps.cancel, apps.retry, apps.hold, apps.release,
):  # fmt: skip
    app.command(verb.__name__)(verb)
app.command("quota")(owners.quota)
app.command("weight")(owners.weight)
app.command("audit")(audit.audit)
app.command("whoami")(login.whoami)
app.command("login")(login.login)
app.command("backup", cls=StoreCommand)(backup.backup)
app.command("restore", cls=StoreCommand)(backup.restore)
app.command("serve", cls=ServiceCommand)(serve.serve)
app.command("doctor", cls=ServiceCommand)(doctor.doctor)
app.command("node", cls=node.NodeCommand)(node.node)
app.command("replay")(replay.replay)
app.command("dashboard")(dashboard.dashboard)
app.command("demo")(demo.demo)
app.command("reproduce")(reproduce.reproduce)
app.command("exec", hidden=True)(exec.execute)
app.command("agents", hidden=True)(agents.agents)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"themis {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only results and errors.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours.")] = False,
) -> None:
    """Share a GPU cluster fairly among teams who train models."""
    STYLE.quiet = quiet
    STYLE.color = not no_color
