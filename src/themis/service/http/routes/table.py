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
    Route("GET", "/healthz", Verb.HEALTH, about.health),
    Route("GET", "/readyz", Verb.HEALTH, about.ready),
    Route("GET", "/metrics", Verb.METRICS, about.metrics),
    Route("GET", "/openapi.json", Verb.ABOUT, describe),
    Route("GET", "/v1/about", Verb.ABOUT, about.about),
    Route("GET", "/v1/whoami", Verb.WHOAMI, about.whoami),
    # Apps
    Route("POST", "/v1/apps", Verb.SUBMIT, submissions.submit, body=bodies.SUBMISSION),
    Route("GET", "/v1/apps", Verb.LIST, apps.list_apps, query=(apps.ENDED,)),
    Route("GET", "/v1/apps/{app}", Verb.STATUS, apps.status),
    Route("GET", "/v1/apps/{app}/explain", Verb.EXPLAIN, apps.explain),
    Route("POST", "/v1/apps/{app}/pause", Verb.PAUSE, apps.pause),
    Route("POST", "/v1/apps/{app}/resume", Verb.RESUME, apps.resume),
    Route("POST", "/v1/apps/{app}/cancel", Verb.CANCEL, apps.cancel),
    Route("GET", "/v1/apps/{app}/results", Verb.RESULTS, apps.results),
    Route("GET", "/v1/apps/{app}/jobs/{job}/log", Verb.LOGS, logs.log,
          query=(logs.OFFSET, logs.LIMIT, logs.WAIT)),
    Route("POST", "/v1/apps/{app}/retry", Verb.RETRY, submissions.retry),
    Route("POST", "/v1/apps/{app}/hold", Verb.HOLD, apps.hold),
    Route("POST", "/v1/apps/{app}/release", Verb.RELEASE, apps.release),
    # Forecasts
    Route("POST", "/v1/whatif", Verb.WHATIF, forecasts.whatif, body=bodies.FORECAST),
    Route("GET", "/v1/whatif/{question}", Verb.WHATIF, forecasts.newest_answer,
          query=(forecasts.SEEN, forecasts.WAIT)),
    Route("DELETE", "/v1/whatif/{question}", Verb.WHATIF, forecasts.drop),
    Route("GET", "/v1/snapshot", Verb.SNAPSHOT, forecasts.snapshot),
    # Machines and owners
    Route("GET", "/v1/nodes", Verb.NODES, nodes.list_nodes),
    Route("POST", "/v1/nodes/{node}/cordon", Verb.CORDON, nodes.cordon),
    Route("POST", "/v1/nodes/{node}/drain", Verb.DRAIN, nodes.drain),
    Route("POST", "/v1/nodes/{node}/uncordon", Verb.UNCORDON, nodes.uncordon),
    Route("POST", "/v1/nodes/{node}/remove", Verb.REMOVE_NODE, nodes.remove),
    Route("POST", "/v1/nodes/{node}/gpus/{index}/restore", Verb.RESTORE_GPU, nodes.restore_gpu),
    Route("GET", "/v1/owners", Verb.QUOTA_SHOW, owners.list_owners),
    Route("PUT", "/v1/owners/{owner}/quota", Verb.QUOTA_SET, owners.set_quota, body=bodies.QUOTA),
    Route("PUT", "/v1/owners/{owner}/weight", Verb.WEIGHT_SET, owners.set_weight,
          body=bodies.WEIGHT),
    # Tokens and operations
    Route("GET", "/v1/tokens", Verb.TOKEN_LIST, tokens.list_tokens),
    Route("POST", "/v1/tokens", Verb.TOKEN_CREATE, tokens.create, body=bodies.NEW_TOKEN),
    Route("DELETE", "/v1/tokens/{token}", Verb.TOKEN_REVOKE, tokens.revoke),
    Route("GET", "/v1/rounds", Verb.AUCTION_SHOW, rounds.list_rounds,
          query=(rounds.BEFORE, rounds.LIMIT)),
    Route("GET", "/v1/rounds/{round}", Verb.AUCTION_SHOW, rounds.show_round),
    Route("GET", "/v1/audit", Verb.AUDIT, operations.audit,
          query=(operations.FIRST, operations.LAST)),
    Route("GET", "/v1/config", Verb.CONFIG_SHOW, operations.show_config),
    Route("POST", "/v1/config/reload", Verb.CONFIG_RELOAD, operations.reload_config),
    # Browsers
    Route("POST", "/v1/login-links", Verb.LOGIN, sessions.login_link),
    Route("GET", "/login/{code}", Verb.ABOUT, sessions.login),
    Route("POST", "/v1/logout", Verb.LOGOUT, sessions.logout),
    Route("GET", "/", Verb.ABOUT, dashboard.index, kind=AnswerKind.FILE),
    Route("GET", "/static/{name}", Verb.ABOUT, dashboard.file, kind=AnswerKind.FILE),
    Route("GET", "/v1/board", Verb.DASHBOARD, dashboard.board),
    Route("GET", "/v1/board/timeline", Verb.DASHBOARD, dashboard.timeline),
    Route("GET", "/v1/board/apps/{app}", Verb.STATUS, dashboard.app_page),
    Route("GET", "/v1/board/rounds", Verb.AUCTION_SHOW, dashboard.list_rounds,
          query=(rounds.BEFORE, rounds.LIMIT)),
    Route("GET", "/v1/board/runs", Verb.DASHBOARD, dashboard.list_runs),
    Route("GET", "/v1/board/stream", Verb.DASHBOARD, dashboard.stream,
          query=(dashboard.SINCE,), kind=AnswerKind.STREAM),
)  # fmt: skip
