"""Checks of programs that agents ask for, before a node tries to run them.

trouble_with(program)       # "metric.pattern: got '(', allowed: ..."; empty if it is valid
"""

import json

from themis.apps.app_file import MetricSpec
from themis.engines.base import check_task
from themis.engines.metrics.sources import check_source
from themis.engines.task import SourceSpec, Task
from themis.errors import ConfigError
from themis.node.runs import source_of
from themis.protocol.node_messages import Program

LONGEST_GRACE = 3600.0


def check_metric(metric: MetricSpec) -> None:
    """Check the source of an app's metric, as far as this machine can tell.

    Raises:
        ConfigError: No node could read it: the pattern is invalid, or the path leads elsewhere.
    """
    source = SourceSpec(metric.name, str(metric.source), metric.path, metric.pattern)
    check_source(source, elsewhere=True)


def trouble_with_params(text: str) -> str:
    """Why a text cannot be the parameters of a trial, which people see; empty if it can."""
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        found = None
    return "" if isinstance(found, dict) else "parameters of a trial are a JSON object"


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # JSON has finite numbers only.


def trouble_with(program: Program) -> str:
    """Why no machine could run a program; empty if one could."""
    if not 0.0 <= program.grace <= LONGEST_GRACE:
        allowed = f"0 to {LONGEST_GRACE:g} seconds"
        return str(ConfigError("checkpoint.grace", program.grace, allowed))
    try:
        check_source(source_of(program.metrics), elsewhere=True)
        argv, env, workdir = program.argv, dict(program.env), program.workdir
        check_task(Task("job", "owner", 0, (), argv, end=0.0, env=env, workdir=workdir))
    except ConfigError as error:
        return str(error)
    return ""
