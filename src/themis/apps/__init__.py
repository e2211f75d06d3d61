"""Apps as people write them: the app file, its search space, and the plan of its trials.

    app = read_app(Path("app.yaml"))
    plan = plan_app(app, AppId("resnet-lr"), OwnerId("ann"), seed=7)
    plan.spec                                   # for the arbiter
    program_of(app, plan.trials[0].params)      # for a node

The command line and the service make the same plan of the same file. `app_file` has the keys,
`search_space` draws trials, `plan` lays them out, `program` fills commands, and `whatif_cases`
changes an app for a forecast.
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
