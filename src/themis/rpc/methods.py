"""The RPCs: what each takes, which verb it is, and what errors look like on the wire.

A new RPC is a row in `RPCS`; a test fails while one of the .proto has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from themis.errors import (
    ConfigError,
    DeniedError,
    DuplicateError,
    LimitError,
    RefusedError,
    StaleAnswerError,
    ThemisError,
    UnavailableError,
    UnknownAppError,
    UnknownCallerError,
)
from themis.protocol.agent_messages import (
    AgentReport,
    BidReply,
    EndApp,
    HostedApps,
    HostedAppsRequest,
    News,
    PhaseStart,
    Reached,
    ReleaseRequest,
    RunRequest,
    StopRequest,
    SubmittedApp,
    SubmittedAppRequest,
    TargetChange,
    TrialParams,
)
from themis.protocol.node_messages import MOST_REPORTED, NodeReport, Orders
from themis.security.permissions import Verb

NODE_BYTES = 4 << 20
"""The longest report of a node, and the longest answer to any caller."""
LEAN: tuple[tuple[str, int], ...] = (
    # No pings to measure the bandwidth: messages are small, and there would be a ping for nearly
    # each of them, a fifth of what a call costs. The window stays at 64 KiB, which also bounds what
    # an unknown caller can make a service keep.
    ("grpc.http2.bdp_probe", 0),
)
"""Options of both ends of a connection."""
MOST_SAID = 256
"""Things said in one message: each is an event, and the loop does nothing else meanwhile."""
_SAID_AS_A_CALL = 4.0
"""This many things said take about as long as a call that says nothing."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """One call."""

    service: str
    method: str
    takes: type
    gives: type
    verb: Verb
    size: int | None = None
    """Bytes that it takes at most; None: `limits.message_bytes`."""
    streams: bool = False
    """Whether it is many calls on one stream, each answered before the next is read."""

    @property
    def path(self) -> str:
        """As it is called on the wire."""
        return f"/{self.service}/{self.method}"


REPORT = Rpc("themis.v1.Nodes", "Report", NodeReport, Orders, Verb.NODE_REPORT, NODE_BYTES)
EXCHANGE = Rpc("themis.v1.Agents", "Exchange", AgentReport, News, Verb.AGENT_POLL)
REPORTS = replace(REPORT, method="Talk", streams=True)
EXCHANGES = replace(EXCHANGE, method="Talk", streams=True)
HOSTED = Rpc("themis.v1.Agents", "ListHosted", HostedAppsRequest, HostedApps, Verb.AGENT_POLL)
SHEET = Rpc(
    "themis.v1.Agents", "GetSubmittedApp", SubmittedAppRequest, SubmittedApp, Verb.AGENT_POLL
)
RPCS = (REPORT, EXCHANGE, REPORTS, EXCHANGES, HOSTED, SHEET)

SAID_VERBS: Mapping[type, Verb] = {
    BidReply: Verb.AGENT_BID,
    RunRequest: Verb.AGENT_JOBS,
    StopRequest: Verb.AGENT_JOBS,
    ReleaseRequest: Verb.AGENT_GIVE_BACK,
    PhaseStart: Verb.AGENT_PHASE,
    TargetChange: Verb.AGENT_PHASE,
    TrialParams: Verb.AGENT_PHASE,
    Reached: Verb.AGENT_PHASE,
    EndApp: Verb.AGENT_FINISH,
}
"""Each thing that an agent says in an exchange needs a verb of its own."""

REQUEST_ID = "x-request-id"
"""Metadata of a call: an id that the caller may give, and the one in the service's log."""
RETRY_AFTER = "retry-after-ms"
"""Trailing metadata of a call beyond a limit."""

_CODES: tuple[tuple[type[ThemisError], str], ...] = (
    (UnknownCallerError, "UNAUTHENTICATED"),
    (DeniedError, "PERMISSION_DENIED"),
    (LimitError, "RESOURCE_EXHAUSTED"),
    (UnknownAppError, "NOT_FOUND"),
    (DuplicateError, "ALREADY_EXISTS"),
    (StaleAnswerError, "FAILED_PRECONDITION"),
    (RefusedError, "INVALID_ARGUMENT"),
    (ConfigError, "INVALID_ARGUMENT"),
    (UnavailableError, "UNAVAILABLE"),
)
_ERRORS: Mapping[str, type[RefusedError]] = {
    name: kind for kind, name in _CODES if issubclass(kind, RefusedError)
}


def cost_of(rpc: Rpc, message: Any) -> float:
    """How many calls a message counts for; checked before any of it is used.

    A node reports all of its runs: as many as it has GPUs, and as many ends that are not
    acknowledged yet. Of their points it reports no more at a time than are quickly read.

    Raises:
        RefusedError: It says more than one message may.
    """
    if rpc in {HOSTED, SHEET}:
        return 1.0
    agents = rpc.takes is AgentReport
    if agents:
        name, said, most = "requests", len(message.requests), MOST_SAID
    else:
        name, said = "runs", len(message.runs)
        most = MOST_SAID + 2 * len(message.slots)
    if said > most:
        reason = f"{said} entries, allowed: at most {most} in one message"
        raise RefusedError(f"{rpc.takes.__name__}.{name}", reason)
    if agents:
        return max(1.0, said / _SAID_AS_A_CALL)
    _check_points(message.runs)
    return 1.0


def _check_points(runs: Any) -> None:
    count = sum(len(run.points) for run in runs)
    if count <= MOST_REPORTED:  # Else it would take long to look at each.
        count = sum(max(1, len(point.values)) for run in runs for point in run.points)
    if count > MOST_REPORTED:
        reason = f"{count} values or more, allowed: at most {MOST_REPORTED} in one message"
        raise RefusedError("NodeReport.runs.points", reason)


def code_of(error: Exception) -> str | None:
    """The name of the status code for an error; None for an unexpected one."""
    return next((name for kind, name in _CODES if isinstance(error, kind)), None)


def error_of(code: str, details: str, metadata: Any = ()) -> ThemisError:
    """The error that a status stands for, on the caller's side.

    Every status that the service does not send itself is safe to retry.
    """
    kind = _ERRORS.get(code)
    who, colon, reason = details.partition(": ")
    if kind is None or not colon:
        who, reason = "service", details
    if kind is None:
        return UnavailableError(f"{code.lower().replace('_', ' ')}: {details}")
    if kind is LimitError:
        waits = [value for key, value in metadata or () if key == RETRY_AFTER]
        wait = float(waits[0]) / 1000.0 if waits and str(waits[0]).isdigit() else None
        return LimitError(who, reason, wait)
    return kind(who, reason)
