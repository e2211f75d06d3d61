"""The routes: how each is called, which verb it is, and what it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from themis.core.model.ids import LEAST_WEIGHT, MOST_WEIGHT
from themis.protocol.node_messages import MOST_LOG
from themis.recording.forecast_questions import LONGEST, MOST_SEEDS
from themis.security.permissions import Verb
from themis.security.tokens import Role


class AnswerKind(StrEnum):
    """What an answer is."""

    JSON = "application/json"
    FILE = "text/html"
    """A file of the pages, whoever asks."""
    STREAM = "text/event-stream"
    """It goes on until one of both has enough."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route: how it is called, which verb it is, and who answers."""

    method: str
    path: str
    verb: Verb
    handler: str
    summary: str
    body: Mapping[str, Any] | None = None
    """The JSON Schema of what is sent, if anything is."""
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What may stand behind the question mark, by name: JSON Schema."""
    kind: AnswerKind = AnswerKind.JSON

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"


ROUNDS = 50
MOST_ROUNDS = 100
"""Rounds in one answer."""
LONGEST_WAIT = 30.0
"""Seconds that a call for news of a log is kept at most."""
MOST_ROWS = 1000
"""Rows of the audit log in one answer."""

MOST_ENDED = 500
"""Apps that are over in one answer, the last to end."""

_TEXT = {"type": "string", "maxLength": 200}
_APP = {
    "type": "object",
    "required": ["key"],
    "properties": {
        "app": {"type": "object"},
        "spec": {"type": "object"},
        "key": _TEXT,
        "owner": _TEXT,
        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
        "dry_run": {"type": "boolean"},
    },
    "additionalProperties": False,
}
_QUOTA = {
    "type": "object",
    "required": ["gpus"],
    "properties": {"gpus": {"type": ["integer", "null"], "minimum": 0}},
    "additionalProperties": False,
}
_WEIGHT = {
    "type": "object",
    "required": ["weight"],
    "properties": {
        "weight": {"type": "number", "minimum": LEAST_WEIGHT, "maximum": MOST_WEIGHT},
    },
    "additionalProperties": False,
}
_TOKEN = {
    "type": "object",
    "required": ["role", "subject"],
    "properties": {
        "role": {"enum": [str(role) for role in Role]},
        "subject": _TEXT,
        "days": {"type": ["number", "null"], "exclusiveMinimum": 0},
        "note": _TEXT,
    },
    "additionalProperties": False,
}
_ENDED = {
    "ended": {"type": "boolean", "default": False, "description": "Also those that are over."},
}
_PAGE = {
    "before": {"type": "integer", "minimum": 1, "description": "Rounds before this one."},
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROUNDS, "default": ROUNDS},
}
_LOG = {
    "offset": {"type": "integer", "default": 0,
               "description": "In bytes of all its runs; negative: so many from the end."},
    "limit": {"type": "integer", "minimum": 64, "maximum": MOST_LOG, "default": MOST_LOG},
    "wait": {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT, "default": 0,
             "description": "Seconds in which something may come."},
}  # fmt: skip
_ROWS = {
    "first": {"type": "integer", "minimum": 1, "description": "Rows from this one on."},
    "last": {"type": "integer", "maximum": MOST_ROWS, "description": "So many of the newest."},
}
_SINCE = {
    "since": {"type": "integer", "minimum": 0, "description": "`cursor` of the timeline."},
}

_ANY_OF = {"type": "array", "maxItems": 7}
_WHATIF = {
    "type": "object",
    "required": ["app"],
    "properties": {
        "app": {"type": "object"},
        "owner": _TEXT,
        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
        "gpus": {**_ANY_OF, "items": {"type": "integer", "minimum": 1}},
        "stop": {**_ANY_OF, "items": _TEXT},
        "at": {**_ANY_OF, "items": {"type": ["string", "number"]}},
        "policy": {**_ANY_OF, "items": _TEXT},
        "add_machines": {**_ANY_OF, "items": {"type": ["integer", "array"]}},
        "seeds": {"type": "integer", "minimum": 1, "maximum": MOST_SEEDS},
        "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST},
    },
    "additionalProperties": False,
}
_SEEN = {
    "seen": {"type": "integer", "minimum": 0, "default": 0,
             "description": "The number of the answer that is known."},
    "wait": {"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT, "default": 0,
             "description": "Seconds in which a newer one may come."},
}  # fmt: skip

ENDPOINTS = (
    Endpoint("GET", "/healthz", Verb.HEALTH, "health", "Whether the service lives"),
    Endpoint("GET", "/readyz", Verb.HEALTH, "ready", "Whether it can take work"),
    Endpoint("GET", "/metrics", Verb.METRICS, "metrics", "For Prometheus"),
    Endpoint("GET", "/openapi.json", Verb.ABOUT, "describe", "This API"),
    Endpoint("GET", "/v1/about", Verb.ABOUT, "about", "Version, epoch, port for agents"),
    Endpoint("GET", "/v1/whoami", Verb.WHOAMI, "whoami", "Who the caller is"),
    Endpoint("POST", "/v1/apps", Verb.SUBMIT, "submit", "Submit an app", _APP),
    Endpoint("GET", "/v1/apps", Verb.LIST, "list_apps", "All apps", query=_ENDED),
    Endpoint("GET", "/v1/apps/{app}", Verb.STATUS, "status", "One app"),
    Endpoint("GET", "/v1/apps/{app}/explain", Verb.EXPLAIN, "explain", "Why it waits"),
    Endpoint("POST", "/v1/apps/{app}/pause", Verb.PAUSE, "pause", "Take no new GPUs"),
    Endpoint("POST", "/v1/apps/{app}/resume", Verb.RESUME, "resume", "Go on after a pause"),
    Endpoint("POST", "/v1/apps/{app}/cancel", Verb.CANCEL, "cancel", "End an app"),
    Endpoint("GET", "/v1/apps/{app}/results", Verb.RESULTS, "results", "What came of its trials"),
    Endpoint(
        "GET", "/v1/apps/{app}/jobs/{job}/log", Verb.LOGS, "log", "What a job prints", query=_LOG
    ),
    Endpoint("POST", "/v1/apps/{app}/retry", Verb.RETRY, "retry", "Submit it once more"),
    Endpoint("POST", "/v1/apps/{app}/hold", Verb.HOLD, "hold", "Keep an app from running"),
    Endpoint("POST", "/v1/apps/{app}/release", Verb.RELEASE, "release", "Let it run again"),
    Endpoint("POST", "/v1/whatif", Verb.WHATIF, "whatif", "Ask when an app would finish", _WHATIF),
    Endpoint(
        "GET", "/v1/whatif/{question}", Verb.WHATIF, "foretold", "What is known so far",
        query=_SEEN,
    ),
    Endpoint("DELETE", "/v1/whatif/{question}", Verb.WHATIF, "forget", "Drop a question"),
    Endpoint("GET", "/v1/snapshot", Verb.SNAPSHOT, "snapshot", "The state, to ask offline"),
    Endpoint("GET", "/v1/nodes", Verb.NODES, "nodes", "Machines and their GPUs"),
    Endpoint("POST", "/v1/nodes/{node}/cordon", Verb.CORDON, "cordon", "No new leases there"),
    Endpoint("POST", "/v1/nodes/{node}/drain", Verb.DRAIN, "drain", "Nor renewals"),
    Endpoint("POST", "/v1/nodes/{node}/uncordon", Verb.UNCORDON, "uncordon", "Use it again"),
    Endpoint("POST", "/v1/nodes/{node}/remove", Verb.REMOVE_NODE, "remove", "It is gone for good"),
    Endpoint(
        "POST", "/v1/nodes/{node}/gpus/{index}/restore", Verb.RESTORE_GPU, "restore_gpu",
        "Take a GPU out of quarantine",
    ),
    Endpoint("GET", "/v1/owners", Verb.QUOTA_SHOW, "owners", "Quotas and weights"),
    Endpoint("PUT", "/v1/owners/{owner}/quota", Verb.QUOTA_SET, "quota", "GPUs at most", _QUOTA),
    Endpoint("PUT", "/v1/owners/{owner}/weight", Verb.WEIGHT_SET, "weight", "Its share", _WEIGHT),
    Endpoint("GET", "/v1/tokens", Verb.TOKEN_LIST, "list_tokens", "Tokens, without secrets"),
    Endpoint("POST", "/v1/tokens", Verb.TOKEN_CREATE, "create_token", "A new token", _TOKEN),
    Endpoint("DELETE", "/v1/tokens/{token}", Verb.TOKEN_REVOKE, "revoke_token", "End a token"),
    Endpoint("GET", "/v1/rounds", Verb.AUCTION_SHOW, "rounds", "The last rounds", query=_PAGE),
    Endpoint("GET", "/v1/rounds/{round}", Verb.AUCTION_SHOW, "round", "One round"),
    Endpoint("GET", "/v1/audit", Verb.AUDIT, "audit", "Who did what", query=_ROWS),
    Endpoint("GET", "/v1/config", Verb.CONFIG_SHOW, "config", "The configuration in force"),
    Endpoint("POST", "/v1/config/reload", Verb.CONFIG_RELOAD, "reload", "Read it again"),
    Endpoint("POST", "/v1/login-links", Verb.LOGIN, "link", "A link that logs a browser in"),
    Endpoint("GET", "/login/{code}", Verb.ABOUT, "login", "Use such a link"),
    Endpoint("POST", "/v1/logout", Verb.LOGOUT, "logout", "End the browser's session"),
    Endpoint("GET", "/", Verb.ABOUT, "page", "The dashboard", kind=AnswerKind.FILE),
    Endpoint("GET", "/static/{name}", Verb.ABOUT, "file", "Its files", kind=AnswerKind.FILE),
    Endpoint("GET", "/v1/board", Verb.DASHBOARD, "board", "What its pages show"),
    Endpoint("GET", "/v1/board/timeline", Verb.DASHBOARD, "timeline", "Who held which GPU when"),
    Endpoint("GET", "/v1/board/apps/{app}", Verb.STATUS, "board_app", "The page of an app"),
    Endpoint(
        "GET", "/v1/board/rounds", Verb.AUCTION_SHOW, "board_rounds", "The last rounds in short",
        query=_PAGE,
    ),
    Endpoint("GET", "/v1/board/runs", Verb.DASHBOARD, "board_runs", "Runs to compare"),
    Endpoint(
        "GET", "/v1/board/stream", Verb.DASHBOARD, "stream", "What changes, as it happens",
        query=_SINCE, kind=AnswerKind.STREAM,
    ),
)  # fmt: skip
