"""Flags of commands that take the service's configuration: every key of it is one.

    @app.command("serve", cls=ServiceCommand)
    def serve(context: typer.Context, config: ServiceFile = None) -> None:
        loaded = service_configuration(context, config)

The flags are made when such a command runs or explains itself, so that other commands start without
knowing of them.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from themis.cli.common.output import note

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from themis.config.keys import Key, ServiceConfig
    from themis.config.loader import Examined, Loaded

VARIABLE = "THEMIS_CONFIG"
_META = "themis.service.flags"
ServiceFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="The service's YAML file (or THEMIS_CONFIG); environment and flags win."
    ),
]


class ServiceCommand(TyperCommand):
    """A command whose flags are all keys of the configuration besides its own."""

    only: ClassVar[frozenset[str]] = frozenset()
    """Names of the only keys that are flags; empty for all."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's parameters, then one for every other key of the configuration."""
        from themis.config.keys import KEYS  # noqa: PLC0415 - late, so that --help is quick

        own = super().get_params(ctx)
        taken = {flag for parameter in own for flag in parameter.opts}
        flags = {
            key.name: key.flag
            for key in KEYS.values()
            if key.flag not in taken and (not self.only or key.name in self.only)
        }
        return [*own, *key_options(flags)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The flags in groups: what the command itself takes, then each section of the file."""
        groups: dict[str, list[Any]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and parameter.param_type_name == "option":
                groups.setdefault(_group_of(str(parameter.name)), []).append(record)
        arguments = [
            record
            for parameter in self.get_params(ctx)
            if parameter.param_type_name == "argument"
            and (record := parameter.get_help_record(ctx)) is not None
        ]
        for title, records in (("Arguments", arguments), *groups.items()):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=34)


class StoreCommand(ServiceCommand):
    """A command that needs to know where the store is, and no more."""

    only = frozenset({"state_dir", "store"})


_GROUPS = {
    "tls": "Certificates (tls)",
    "retention": "What is kept of the past (retention)",
    "limits": "What is taken from one caller (limits)",
    "node": "For `themis node` (node)",
    "slurm": "With `--engine slurm` (slurm)",
    "ray": "With `--engine ray` (ray)",
}


def _group_of(parameter: str) -> str:
    """The heading that a flag stands under."""
    from themis.config.keys import KEYS  # noqa: PLC0415 - late, so that --help is quick

    names = {_name_of(key): key.name for key in KEYS.values()}
    if parameter not in names:
        return "Options"
    section, dot, _ = names[parameter].partition(".")
    return _GROUPS.get(section, section) if dot else "The service"


def _name_of(key: Key) -> str:
    """A key's flag as a name of Python."""
    return "config_" + key.name.replace(".", "_")


def service_configuration(context: typer.Context, file: Path | None) -> Loaded:
    """The configuration that file, environment and flags of this command make.

    Raises:
        ConfigError: The first mistake in it.
    """
    found = examined(context, file)
    if found.loaded is None:
        raise found.mistakes[0]
    for slip in found.loaded.notes:
        note(f"note: {slip}")
    return found.loaded


def examined(context: typer.Context, file: Path | None) -> Examined:
    """The same, with all mistakes."""
    from themis.config.loader import examine  # noqa: PLC0415 - late, so that --help is quick

    named = os.environ.get(VARIABLE)
    path = file or (Path(named) if named else None)
    flags = context.meta.get(_META, {})
    return examine(path, environ=os.environ, flags=flags, root=os.geteuid() == 0)


def key_options(flags: Mapping[str, str]) -> list[Any]:
    """Flags for some keys. Typer makes them, as it makes those of any function.

    Args:
        flags: The keys, and what their flags are called.
    """
    from themis.config.keys import KEYS  # noqa: PLC0415 - late, so that --help is quick

    def unused() -> None:
        """Only its parameters count."""

    parameters = [_parameter(KEYS[name], flag) for name, flag in flags.items()]
    hints = {item.name: item.annotation for item in parameters}
    setattr(unused, "__signature__", inspect.Signature(parameters))  # noqa: B010 - mypy knows no such name
    unused.__annotations__ = hints
    lone = typer.Typer(add_completion=False)
    lone.command(add_help_option=False)(unused)
    return list(typer.main.get_command(lone).params)


def _parameter(key: Key, flag: str) -> inspect.Parameter:
    from themis.config.keys import MAPPINGS  # noqa: PLC0415 - late, so that --help is quick

    kind: Any = bool if key.type is bool else list[str] if key.name in MAPPINGS else str
    name = flag.removeprefix("--")
    option = typer.Option(
        f"--{name}/--no-{name}" if kind is bool else flag,
        help=key.help,
        metavar=key.metavar or None,
        show_default=False,
        expose_value=False,
        callback=_keeper(key.name),
    )
    return inspect.Parameter(
        _name_of(key),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _keeper(name: str) -> Callable[[typer.Context, Any], Any]:
    """Keeps the value beside those that the command's function gets."""

    def keep(context: typer.Context, value: Any) -> Any:
        if value is not None and value not in ((), []):
            context.meta.setdefault(_META, {})[name] = value
        return value

    # Typer looks the types up by name, and would not find them under those of this module.
    keep.__annotations__ = {"context": typer.Context, "value": Any}
    return keep


def start_logging(config: ServiceConfig) -> None:
    """Log to standard error as the configuration says."""
    from themis.ops import log_format  # noqa: PLC0415 - late, so that --help is quick

    log_format.start_logging(config.log_level, config.log_format)
