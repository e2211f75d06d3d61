"""The tree of commands; of which only the verb that is called is imported and built.

    tree("ls")()    # as `themis ls`
    tree()          # all of it: for help, completion, and words that are no verb

Most of the time that a short command takes goes into reading what it does not need.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any

import typer

from themis import __version__
from themis.cli.common.output import STYLE

_GROUPS = ("sim", "trace", "auction", "config", "cert", "token", "nodes")
"""Verbs with verbs of their own: each is a module with an `app`."""


@dataclass(frozen=True, slots=True)
class _Verb:
    name: str
    module: str = ""
    """Its module, if not the one of its name."""
    function: str = ""
    """Its function, if not the one of its name."""
    kind: tuple[str, str] | None = None
    """Module and name of a click command class, for verbs that need a special one."""
    hidden: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def add_to(self, app: typer.Typer) -> None:
        module = import_module(f"themis.cli.{self.module or self.name}")
        cls = None
        if self.kind is not None:
            cls = getattr(import_module(f"themis.cli.{self.kind[0]}"), self.kind[1])
        settings = dict(self.settings) or None
        command = app.command(self.name, cls=cls, hidden=self.hidden, context_settings=settings)
        command(getattr(module, self.function or self.name))


_SERVICE = ("common.config_flags", "ServiceCommand")
_STORE = ("common.config_flags", "StoreCommand")
_VERBS = (
    _Verb("submit"),
    # Flags behind the program are the program's own, also without a `--` before it.
    _Verb("run", settings={"allow_interspersed_args": False}),
    _Verb("ls", "apps"),
    _Verb("status", "apps"),
    _Verb("explain", "apps"),
    _Verb("logs"),
    _Verb("results"),
    _Verb("wait"),
    _Verb("fair"),
    _Verb("whatif"),
    _Verb("pause", "apps"),
    _Verb("resume", "apps"),
    _Verb("cancel", "apps"),
    _Verb("retry", "apps"),
    _Verb("hold", "apps"),
    _Verb("release", "apps"),
    _Verb("quota", "owners"),
    _Verb("weight", "owners"),
    _Verb("audit"),
    _Verb("whoami", "login"),
    _Verb("login"),
    _Verb("snapshot", "whatif"),
    _Verb("backup", kind=_STORE),
    _Verb("restore", "backup", kind=_STORE),
    _Verb("serve", kind=_SERVICE),
    _Verb("doctor", kind=_SERVICE),
    _Verb("node", kind=("node", "NodeCommand")),
    _Verb("bridge", kind=("bridge", "BridgeCommand")),
    _Verb("replay"),
    _Verb("dashboard"),
    _Verb("demo"),
    _Verb("reproduce"),
    _Verb("exec", function="execute", hidden=True),
    _Verb("agents", hidden=True),
)


def tree(word: str = "") -> typer.Typer:
    """The command `themis` with one verb, or with all verbs if no verb has this name."""
    app = typer.Typer(
        name="themis",
        help="Share a GPU cluster fairly among teams who train models.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    alone = word in _GROUPS or any(verb.name == word for verb in _VERBS)
    for name in _GROUPS:
        if not alone or name == word:
            app.add_typer(import_module(f"themis.cli.{name}").app, name=name)
    for verb in _VERBS:
        if not alone or verb.name == word:
            verb.add_to(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"themis {__version__}")
        raise typer.Exit


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
