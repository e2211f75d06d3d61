"""The table of routes: how each is called, its verb, what it takes, and its handler.

A new route is one function in a module of this folder and one row here; OpenAPI, the reference in
the documentation and the checks of permissions follow from the row.
"""

from themis.security.permissions import Verb
from themis.service.http import bodies, openapi
from themis.service.http.context import ApiContext
from themis.service.http.routes import (
    about,
    apps,
    dashboard,
    forecasts,
    logs,
    nodes,
    operations,
    owners,
    rounds,
    sessions,
    submissions,
    tokens,
)
from themis.service.http.routing import AnswerKind, ApiRequest, Data, Route


async def describe(_api: ApiContext, _: ApiRequest) -> Data:
    """This table as OpenAPI."""
    return openapi.document(ROUTES)


ROUTES = (
    Route("GET", "/healthz", Verb.HEALTH, about.health, "Whether the process answers"),
    Route("GET", "/readyz", Verb.HEALTH, about.ready, "Whether it can take work"),
    Route("GET", "/metrics", Verb.METRICS, about.metrics, "For Prometheus"),
    Route("GET", "/openapi.json", Verb.ABOUT, describe, "This API"),
    Route("GET", "/v1/about", Verb.ABOUT, about.about, "Version, epoch, port for agents"),
    Route("GET", "/v1/whoami", Verb.WHOAMI, about.whoami, "Role and subject of the caller"),
    # Apps
    Route("POST", "/v1/apps", Verb.SUBMIT, submissions.submit, "Submit an app",
          body=bodies.SUBMISSION),
    Route("GET", "/v1/apps", Verb.LIST, apps.list_apps, "All apps", query=(apps.ENDED,)),
    Route("GET", "/v1/apps/{app}", Verb.STATUS, apps.status, "One app"),
    Route("GET", "/v1/apps/{app}/explain", Verb.EXPLAIN, apps.explain, "Why it waits"),
    Route("POST", "/v1/apps/{app}/pause", Verb.PAUSE, apps.pause, "Take no new GPUs"),
    Route("POST", "/v1/apps/{app}/resume", Verb.RESUME, apps.resume, "Go on after a pause"),
    Route("POST", "/v1/apps/{app}/cancel", Verb.CANCEL, apps.cancel, "End an app"),
    Route("GET", "/v1/apps/{app}/results", Verb.RESULTS, apps.results, "Results of its trials"),
    Route("GET", "/v1/apps/{app}/jobs/{job}/log", Verb.LOGS, logs.log, "The log of a job",
          query=(logs.OFFSET, logs.LIMIT, logs.WAIT)),
    Route("POST", "/v1/apps/{app}/retry", Verb.RETRY, submissions.retry, "Submit it once more"),
    Route("POST", "/v1/apps/{app}/hold", Verb.HOLD, apps.hold, "Keep an app from running"),
    Route("POST", "/v1/apps/{app}/release", Verb.RELEASE, apps.release, "Let it run again"),
    # Forecasts
    Route("POST", "/v1/whatif", Verb.WHATIF, forecasts.whatif, "Ask when an app would finish",
          body=bodies.FORECAST),
    Route("GET", "/v1/whatif/{question}", Verb.WHATIF, forecasts.newest_answer,
          "The newest answer", query=(forecasts.SEEN, forecasts.WAIT)),
    Route("DELETE", "/v1/whatif/{question}", Verb.WHATIF, forecasts.drop, "Drop a question"),
    Route("GET", "/v1/snapshot", Verb.SNAPSHOT, forecasts.snapshot, "The state, to ask offline"),
    # Machines and owners
    Route("GET", "/v1/nodes", Verb.NODES, nodes.list_nodes, "Machines and their GPUs"),
    Route("POST", "/v1/nodes/{node}/cordon", Verb.CORDON, nodes.cordon, "Grant no new leases"),
    Route("POST", "/v1/nodes/{node}/drain", Verb.DRAIN, nodes.drain, "Nor renew leases"),
    Route("POST", "/v1/nodes/{node}/uncordon", Verb.UNCORDON, nodes.uncordon, "Use it again"),
    Route("POST", "/v1/nodes/{node}/remove", Verb.REMOVE_NODE, nodes.remove,
          "No longer show a silent machine"),
    Route("POST", "/v1/nodes/{node}/gpus/{index}/restore", Verb.RESTORE_GPU, nodes.restore_gpu,
          "Take a GPU out of quarantine"),
    Route("GET", "/v1/owners", Verb.QUOTA_SHOW, owners.list_owners, "Quotas and weights"),
    Route("PUT", "/v1/owners/{owner}/quota", Verb.QUOTA_SET, owners.set_quota,
          "How many GPUs it may hold", body=bodies.QUOTA),
    Route("PUT", "/v1/owners/{owner}/weight", Verb.WEIGHT_SET, owners.set_weight, "Its share",
          body=bodies.WEIGHT),
    # Tokens and operations
    Route("GET", "/v1/tokens", Verb.TOKEN_LIST, tokens.list_tokens, "Tokens, without secrets"),
    Route("POST", "/v1/tokens", Verb.TOKEN_CREATE, tokens.create, "A new token",
          body=bodies.NEW_TOKEN),
    Route("DELETE", "/v1/tokens/{token}", Verb.TOKEN_REVOKE, tokens.revoke, "End a token"),
    Route("GET", "/v1/rounds", Verb.AUCTION_SHOW, rounds.list_rounds, "The last rounds",
          query=(rounds.BEFORE, rounds.LIMIT)),
    Route("GET", "/v1/rounds/{round}", Verb.AUCTION_SHOW, rounds.show_round, "One round"),
    Route("GET", "/v1/audit", Verb.AUDIT, operations.audit, "The audit log",
          query=(operations.FIRST, operations.LAST)),
    Route("GET", "/v1/config", Verb.CONFIG_SHOW, operations.show_config,
          "The configuration in force"),
    Route("POST", "/v1/config/reload", Verb.CONFIG_RELOAD, operations.reload_config,
          "Read it again"),
    # Browsers
    Route("POST", "/v1/login-links", Verb.LOGIN, sessions.login_link,
          "A link that logs a browser in"),
    Route("GET", "/login/{code}", Verb.ABOUT, sessions.login, "Use such a link"),
    Route("POST", "/v1/logout", Verb.LOGOUT, sessions.logout, "End the browser's session"),
    Route("GET", "/", Verb.ABOUT, dashboard.index, "The dashboard", kind=AnswerKind.FILE),
    Route("GET", "/static/{name}", Verb.ABOUT, dashboard.file, "Its files", kind=AnswerKind.FILE),
    Route("GET", "/v1/board", Verb.DASHBOARD, dashboard.board, "What its pages show"),
    Route("GET", "/v1/board/timeline", Verb.DASHBOARD, dashboard.timeline,
          "Which app held which GPU when"),
    Route("GET", "/v1/board/apps/{app}", Verb.STATUS, dashboard.app_page, "The page of an app"),
    Route("GET", "/v1/board/rounds", Verb.AUCTION_SHOW, dashboard.list_rounds,
          "The last rounds in short", query=(rounds.BEFORE, rounds.LIMIT)),
    Route("GET", "/v1/board/runs", Verb.DASHBOARD, dashboard.list_runs, "Runs to compare"),
    Route("GET", "/v1/board/stream", Verb.DASHBOARD, dashboard.stream,
          "Changes, as they happen", query=(dashboard.SINCE,), kind=AnswerKind.STREAM),
)  # fmt: skip
