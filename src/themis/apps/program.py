"""The program that a node runs for a trial: its command, environment and metrics.

program = program_of(app, {"lr": 0.1})
"""

import json
import re
from collections.abc import Mapping

from themis.apps.app_file import AppFile
from themis.apps.search_space import Value, written_value
from themis.errors import ConfigError
from themis.protocol.node_messages import MetricsSource, Program

_HOLE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


def program_of(app: AppFile, params: Mapping[str, Value]) -> Program:
    """The program of a trial with these parameters."""
    metric = app.metric
    return Program(
        argv_of(app.command, params),
        environment(app, params),
        app.workdir,
        app.checkpoint.grace,
        MetricsSource(metric.name, str(metric.source), metric.path, metric.pattern),
    )


def check_holes(command: tuple[str, ...], params: Mapping[str, object]) -> None:
    """See that every {name} in a command is a parameter.

    Raises:
        ConfigError: One is not.
    """
    for argument in command:
        for found in _HOLE.finditer(argument):
            if found[1] and found[1] not in params:
                known = ", ".join(params) or "none: there is no search"
                raise ConfigError(
                    "command", f"{{{found[1]}}}", f"a parameter ({known}); {{{{ stands for a brace"
                )


def argv_of(command: tuple[str, ...], params: Mapping[str, Value]) -> tuple[str, ...]:
    """The command with its holes filled."""

    def fill(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        return written_value(params[found[1]])

    return tuple(_HOLE.sub(fill, argument) for argument in command)


def environment(app: AppFile, params: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
    """What a job finds in its environment besides what its node puts there."""
    made = dict(app.env)
    made["THEMIS_PARAMS"] = json.dumps(dict(params))
    if app.checkpoint.every:
        made["THEMIS_CHECKPOINT_EVERY"] = f"{app.checkpoint.every:g}"
    return tuple(sorted(made.items()))
