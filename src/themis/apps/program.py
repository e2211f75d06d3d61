"""What a node is told to run for a trial.

program = program_of(written, {"lr": 0.1})

Apart from plans: command lines lay apps out without what nodes and agents say to each other.
"""

from collections.abc import Mapping

from themis.apps.app_file import AppFile
from themis.apps.plan import argv_of, environment
from themis.apps.search_space import Value
from themis.protocol.node_messages import MetricsSource, Program


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
