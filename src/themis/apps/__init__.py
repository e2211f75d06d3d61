"""Apps as people write them: the app file, the trials it stands for, and what they will cost.

    written = read_app(Path("app.yaml"))
    plan = plan_app(written, AppId("resnet-lr"), OwnerId("ann"), seed=7)
    plan.spec                 # what the arbiter schedules
    plan.trials[0].argv       # what a node runs

Nothing here does more than read the file that was named: the service makes the same plan of the
same file.
"""

from themis.apps.app_file import (
    AppFile,
    Goal,
    MetricSpec,
    Search,
    StopConditions,
    TunedBy,
    app_schema,
    parse_app,
    plain_app,
    read_app,
)
from themis.apps.plan import PlannedTrial, SweepPlan, plan_app
from themis.apps.search_space import Choice, Parameter, Range

__all__ = [
    "AppFile",
    "Choice",
    "Goal",
    "MetricSpec",
    "Parameter",
    "PlannedTrial",
    "Range",
    "Search",
    "StopConditions",
    "SweepPlan",
    "TunedBy",
    "app_schema",
    "parse_app",
    "plain_app",
    "plan_app",
    "read_app",
]
