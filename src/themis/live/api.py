"""The HTTP API for people: every route names its verb, and the table of access decides.

    app = make_api(service, vault, ApiSettings(hosts=frozenset({"127.0.0.1:7421"})))
    uvicorn.run(app)

A request is read, its caller found and its verb decided before anything else is looked at. What
changes something is in the audit log, and durable, before the answer.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from themis import __version__
from themis.arbiter import events as ev
from themis.errors import LimitError, MissingError, RefusedError
from themis.live import openapi, views
from themis.live.access import Verb, decide, require, token_owner
from themis.live.audit import Outcome, audited
from themis.live.config import Limits
from themis.live.credentials import (
    Credential,
    Identity,
    Role,
    Vault,
    create_token,
    find,
    revoke_token,
    tokens,
)
from themis.live.gate import identify, problem_of
from themis.live.limits import Rates
from themis.live.rounds import RoundBook
from themis.live.sealing import anonymised
from themis.live.service import Service
from themis.live.sessions import (
    clear_cookie,
    cookie_name,
    csrf_of,
    end_session,
    make_link,
    redeem_link,
    set_cookie,
)
from themis.model import AppId, AppSpec, GpuId, OwnerId
from themis.model.ids import check_name
from themis.model.reasons import Reason
from themis.records.codec import decode, dumps, loads

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What the API must know of its surroundings."""

    hosts: frozenset[str] = frozenset()
    """Names with ports under which browsers reach it."""
    tls: bool = False
    session: float = 12 * 3600.0
    limits: Limits = field(default=Limits())
    describe: Callable[[], Data] = dict
    """The configuration, for `config show`."""
    reload: Callable[[], Awaitable[Data]] | None = None
    wall: Callable[[], float] = time.time


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

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"


_TEXT = {"type": "string", "maxLength": 200}
_APP = {
    "type": "object",
    "required": ["spec", "key"],
    "properties": {"spec": {"type": "object"}, "key": _TEXT},
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
    "properties": {"weight": {"type": "number", "exclusiveMinimum": 0}},
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

ENDPOINTS = (
    Endpoint("GET", "/healthz", Verb.HEALTH, "health", "Whether the service lives"),
    Endpoint("GET", "/readyz", Verb.HEALTH, "ready", "Whether it can take work"),
    Endpoint("GET", "/openapi.json", Verb.ABOUT, "describe", "This API"),
    Endpoint("GET", "/v1/about", Verb.ABOUT, "about", "Version and epoch"),
    Endpoint("GET", "/v1/whoami", Verb.WHOAMI, "whoami", "Who the caller is"),
    Endpoint("POST", "/v1/apps", Verb.SUBMIT, "submit", "Submit an app", _APP),
    Endpoint("GET", "/v1/apps", Verb.LIST, "list_apps", "All apps"),
    Endpoint("GET", "/v1/apps/{app}", Verb.STATUS, "status", "One app"),
    Endpoint("POST", "/v1/apps/{app}/pause", Verb.PAUSE, "pause", "Take no new GPUs"),
    Endpoint("POST", "/v1/apps/{app}/resume", Verb.RESUME, "resume", "Go on after a pause"),
    Endpoint("POST", "/v1/apps/{app}/cancel", Verb.CANCEL, "cancel", "End an app"),
    Endpoint("POST", "/v1/apps/{app}/hold", Verb.HOLD, "hold", "Keep an app from running"),
    Endpoint("POST", "/v1/apps/{app}/release", Verb.RELEASE, "release", "Let it run again"),
    Endpoint("GET", "/v1/nodes", Verb.NODES, "nodes", "Machines and their GPUs"),
    Endpoint("POST", "/v1/nodes/{node}/cordon", Verb.CORDON, "cordon", "No new leases there"),
    Endpoint("POST", "/v1/nodes/{node}/drain", Verb.DRAIN, "drain", "Nor renewals"),
    Endpoint("POST", "/v1/nodes/{node}/uncordon", Verb.UNCORDON, "uncordon", "Use it again"),
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
    Endpoint("GET", "/v1/rounds", Verb.AUCTION_SHOW, "rounds", "The last rounds"),
    Endpoint("GET", "/v1/rounds/{round}", Verb.AUCTION_SHOW, "round", "One round"),
    Endpoint("GET", "/v1/audit", Verb.AUDIT, "audit", "Who did what"),
    Endpoint("GET", "/v1/config", Verb.CONFIG_SHOW, "config", "The configuration in force"),
    Endpoint("POST", "/v1/config/reload", Verb.CONFIG_RELOAD, "reload", "Read it again"),
    Endpoint("POST", "/v1/login-links", Verb.LOGIN, "link", "A link that logs a browser in"),
    Endpoint("GET", "/login/{code}", Verb.ABOUT, "login", "Use such a link"),
    Endpoint("POST", "/v1/logout", Verb.LOGOUT, "logout", "End the browser's session"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One request whose caller is known."""

    request: Request
    endpoint: Endpoint
    identity: Identity | None
    body: Data
    wall: float

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])


class Api:
    """The handlers. Each decides for itself whose its object is, by `allow`."""

    def __init__(
        self, service: Service, vault: Vault, book: RoundBook, settings: ApiSettings
    ) -> None:
        self._service = service
        self._vault = vault
        self._book = book
        self._settings = settings
        self._rates = Rates(settings.limits)

    def change(self, settings: ApiSettings) -> None:
        """Go by other settings from now on."""
        self._settings = settings
        self._rates.change(settings.limits)

    # The frame

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        """Answer one request, whatever happens."""
        identity: Identity | None = None
        wall = self._settings.wall()
        try:
            identity = identify(
                self._vault,
                request.headers,
                request.cookies,
                writes=endpoint.writes,
                hosts=self._settings.hosts,
                tls=self._settings.tls,
                now=wall,
            )
            client = request.client.host if request.client else "nobody"
            self._rates.take(identity.credential if identity else client, self._service.now())
            # Before the body is read: who may do this to nothing at all sends it in vain.
            if not any(decide(identity, endpoint.verb, who).allowed for who in _own(identity)):
                require(identity, endpoint.verb)
            call = Call(request, endpoint, identity, await self._body(endpoint, request), wall)
            handler = getattr(self, endpoint.handler)
            found: Data | Response = await handler(call)
        except Exception as error:  # told as one shape; what is unexpected goes to the log
            return self._problem(endpoint, identity, wall, error)
        await self._service.settled()
        return found if isinstance(found, Response) else _json(found)

    def _problem(
        self, endpoint: Endpoint, identity: Identity | None, wall: float, error: Exception
    ) -> Response:
        problem = problem_of(error)
        if endpoint.writes and identity is not None:
            outcome = Outcome.DENIED if problem.status == 403 else Outcome.REFUSED
            if problem.status >= 500:  # The service's doing, not the caller's.
                outcome = Outcome.FAILED
            row = audited(identity, endpoint.verb, problem.who, at=wall, outcome=outcome)
            self._service.writer.add(audit=row)
        headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
        if isinstance(error, LimitError):
            headers["Retry-After"] = "1"
        return _json(problem.data(), problem.status, headers)

    async def _body(self, endpoint: Endpoint, request: Request) -> Data:
        if not endpoint.writes:
            return {}
        most = self._settings.limits.message_bytes
        text = b""
        async for part in request.stream():
            text += part
            if len(text) > most:
                raise RefusedError("body", f"more than {most} bytes")
        if not text:
            data: Any = {}
        else:
            try:
                data = loads(text.decode())
            except UnicodeDecodeError:
                raise RefusedError("body", "it is not UTF-8") from None
        if not isinstance(data, dict):
            raise RefusedError("body", "it must be a JSON object")
        openapi.check(endpoint.body or {"type": "object", "additionalProperties": False}, data)
        return data

    def _allow(self, call: Call, owner: str | None = None) -> bool:
        """Let the call pass or raise; returns whether names of others must be left out."""
        return require(call.identity, call.endpoint.verb, owner).anonymous

    def _row(self, call: Call, target: str, **details: object) -> Any:
        return audited(call.identity, call.endpoint.verb, target, at=call.wall, details=details)

    async def _carry_out(self, call: Call, event: Any, target: str, **details: object) -> Data:
        await self._service.carry_out(event, self._row(call, target, **details))
        return {"done": True}

    # The service itself

    async def health(self, _: Call) -> Data:
        return {"alive": True}

    async def ready(self, _: Call) -> Data:
        await self._service.settled()
        return {"ready": True}

    async def describe(self, _: Call) -> Data:
        return openapi.document(ENDPOINTS)

    async def about(self, _: Call) -> Data:
        return {"version": __version__, "epoch": self._service.steward.epoch}

    async def whoami(self, call: Call) -> Data:
        self._allow(call, call.identity.subject if call.identity else None)
        identity = call.identity
        assert identity is not None, "the table lets nobody else pass"
        told: Data = {"role": identity.role, "subject": identity.subject}
        cookie = call.request.cookies.get(cookie_name(tls=self._settings.tls))
        if cookie is not None and "authorization" not in call.request.headers:
            told["csrf"] = csrf_of(cookie).reveal()
        return told

    # Apps

    def _app(self, call: Call) -> AppId:
        """The app in the path, if the caller may do this to it."""
        name = AppId(call.path("app"))
        state = self._service.steward.arbiter.world.apps.get(name)
        self._allow(call, state.spec.owner if state is not None else None)
        if state is None:
            raise MissingError(name, "there is no such app, or it has ended")
        return name

    async def submit(self, call: Call) -> Data:
        spec = decode(AppSpec, call.body["spec"])
        self._allow(call, spec.owner)
        if not call.body["key"]:
            raise RefusedError("key", "a text that this submission, sent again, has again")
        row = self._row(call, spec.id, owner=spec.owner)
        return {"app": await self._service.submit(spec, str(call.body["key"]), row)}

    async def list_apps(self, call: Call) -> Data:
        steward = self._service.steward
        lines = []
        for _, state in sorted(steward.arbiter.world.apps.items()):
            decision = decide(call.identity, call.endpoint.verb, state.spec.owner)
            if decision.anonymous:
                lines.append(views.sealed_line(steward, state))
            elif decision.allowed:
                lines.append(views.app_line(steward, state))
        now = self._service.now()
        return {"apps": lines, "gpus": views.gpu_counts(steward), "now": now}

    async def status(self, call: Call) -> Data:
        sheet = views.app_sheet(self._service.steward, self._app(call))
        return {**sheet, "now": self._service.now()}

    async def _suspend(self, call: Call, reason: Reason) -> Data:
        app = self._app(call)
        return await self._carry_out(call, ev.AppSuspended(self._service.now(), app, reason), app)

    async def _let_go(self, call: Call, reason: Reason) -> Data:
        app = self._app(call)
        return await self._carry_out(call, ev.AppResumed(self._service.now(), app, reason), app)

    async def pause(self, call: Call) -> Data:
        return await self._suspend(call, Reason.PAUSED_BY_USER)

    async def resume(self, call: Call) -> Data:
        return await self._let_go(call, Reason.PAUSED_BY_USER)

    async def hold(self, call: Call) -> Data:
        return await self._suspend(call, Reason.HELD_BY_ADMIN)

    async def release(self, call: Call) -> Data:
        return await self._let_go(call, Reason.HELD_BY_ADMIN)

    async def cancel(self, call: Call) -> Data:
        app = self._app(call)
        event = ev.AppEnded(self._service.now(), app, "cancelled")
        return await self._carry_out(call, event, app)

    # Machines

    async def nodes(self, call: Call) -> Data:
        own = call.identity.subject if call.identity else None
        sealed = self._allow(call, own)
        steward = self._service.steward
        lines = [
            views.node_line(steward, node, sealed=sealed)
            for name, node in sorted(steward.nodes.items())
            if decide(call.identity, call.endpoint.verb, name).allowed
        ]
        return {"nodes": lines, "now": self._service.now()}

    def _node(self, call: Call) -> str:
        name = call.path("node")
        self._allow(call, name)
        if name not in self._service.steward.arbiter.world.topology.number_of:
            raise MissingError(name, "there is no such machine")
        return name

    async def cordon(self, call: Call) -> Data:
        node = self._node(call)
        return await self._carry_out(call, ev.MachineCordoned(self._service.now(), node), node)

    async def drain(self, call: Call) -> Data:
        node = self._node(call)
        event = ev.MachineCordoned(self._service.now(), node, drain=True)
        return await self._carry_out(call, event, node)

    async def uncordon(self, call: Call) -> Data:
        node = self._node(call)
        return await self._carry_out(call, ev.MachineUncordoned(self._service.now(), node), node)

    async def restore_gpu(self, call: Call) -> Data:
        node, index = self._node(call), call.path("index")
        world = self._service.steward.arbiter.world
        gpus = world.topology.gpus_of[world.topology.number_of[node]]
        if not index.isdecimal() or len(index) > 6 or int(index) >= len(gpus):
            raise MissingError(f"{node} GPU {index[:20]}", f"it has GPUs 0 to {len(gpus) - 1}")
        event = ev.GpuRestored(self._service.now(), GpuId(gpus[int(index)]))
        return await self._carry_out(call, event, f"{node} GPU {index}")

    # Owners

    async def owners(self, call: Call) -> Data:
        world = self._service.steward.arbiter.world
        known = {*world.quotas, *world.owner_weights}
        known |= {state.spec.owner for state in world.apps.values()}
        shown = [
            owner for owner in known if decide(call.identity, call.endpoint.verb, owner).allowed
        ]
        return {"owners": views.owner_lines(shown, world.quotas, world.owner_weights)}

    def _owner(self, call: Call) -> OwnerId:
        self._allow(call, None)
        return OwnerId(check_name("owner", call.path("owner")))

    async def quota(self, call: Call) -> Data:
        owner, gpus = self._owner(call), call.body["gpus"]
        event = ev.QuotaChanged(self._service.now(), owner, gpus)
        return await self._carry_out(call, event, owner, gpus=gpus)

    async def weight(self, call: Call) -> Data:
        owner, weight = self._owner(call), float(call.body["weight"])
        event = ev.WeightChanged(self._service.now(), weight, owner=owner)
        return await self._carry_out(call, event, owner, weight=weight)

    # Tokens

    async def list_tokens(self, call: Call) -> Data:
        shown = [
            item
            for item in tokens(self._vault)
            if decide(call.identity, call.endpoint.verb, token_owner(item)).allowed
        ]
        return {"tokens": [_token_line(item) for item in shown]}

    async def create_token(self, call: Call) -> Data:
        self._allow(call)
        body = call.body
        days = body.get("days")
        issued = create_token(
            self._vault,
            Role(body["role"]),
            str(body["subject"]),
            now=call.wall,
            lifetime=None if days is None else float(days) * 86400.0,
            note=str(body.get("note", "")),
        )
        details = {"role": issued.credential.role, "subject": issued.credential.subject}
        self._service.writer.add(audit=self._row(call, issued.credential.id, **details))
        return {**_token_line(issued.credential), "token": issued.token.reveal()}

    async def revoke_token(self, call: Call) -> Data:
        found = find(self._vault, call.path("token"))
        self._allow(call, token_owner(found) if found else None)
        credential = revoke_token(self._vault, call.path("token"), now=call.wall)
        self._service.writer.add(audit=self._row(call, credential.id))
        return _token_line(credential)

    # Rounds, audit, configuration

    async def rounds(self, call: Call) -> Data:
        self._allow(call)
        return {"rounds": [self._sheet(call, number) for number in self._book.numbers()]}

    async def round(self, call: Call) -> Data:
        self._allow(call)
        number = call.path("round")
        if not number.isdecimal() or len(number) > 15 or int(number) not in self._book.numbers():
            kept = self._book.numbers()
            span = f"{kept[0]} to {kept[-1]} are kept" if kept else "there was none yet"
            raise MissingError(f"round {number[:20]}", span)
        return self._sheet(call, int(number))

    def _sheet(self, call: Call, number: int) -> Data:
        record, before = self._book.round(number)
        owners = self._book.owners(number)
        sheet: Any = loads(dumps(anonymised(record, call.identity, owners, before)))
        return dict(sheet)

    async def audit(self, call: Call) -> Data:
        self._allow(call)
        first = _whole(call, "first", 1, "the number of a row")
        last = _whole(call, "last", 0, "how many of the newest rows")
        await self._service.settled()
        store = self._service.store
        rows: Any = await self._service.writer.run(
            lambda: store.audit(first, min(last, 1000), newest=True) if last else store.audit(first)
        )
        return {"rows": [{"number": number, **loads_row(row)} for number, row in rows]}

    async def config(self, call: Call) -> Data:
        self._allow(call)
        return self._settings.describe()

    async def reload(self, call: Call) -> Data:
        self._allow(call)
        if self._settings.reload is None:
            raise RefusedError("reload", "this service was started without a file")
        told = await self._settings.reload()
        self._service.writer.add(audit=self._row(call, "configuration"))
        return told

    # Browsers

    async def link(self, call: Call) -> Data:
        self._allow(call, call.identity.subject if call.identity else None)
        assert call.identity is not None, "the table lets nobody else pass"
        code = make_link(self._vault, call.identity, now=call.wall)
        return {"path": f"/login/{code.reveal()}"}

    async def login(self, call: Call) -> Response:
        settings = self._settings
        session = redeem_link(
            self._vault, call.path("code"), now=call.wall, lifetime=settings.session
        )
        cookie = set_cookie(session, tls=settings.tls, now=call.wall)
        headers = {"Set-Cookie": cookie, "Referrer-Policy": "no-referrer"}
        return RedirectResponse("/v1/whoami", 303, headers)

    async def logout(self, call: Call) -> Response:
        self._allow(call, call.identity.subject if call.identity else None)
        end_session(self._vault, call.request.cookies.get(cookie_name(tls=self._settings.tls)))
        return _json({"done": True}, headers={"Set-Cookie": clear_cookie(tls=self._settings.tls)})


def make_api(api: Api) -> Starlette:
    """The application that a server runs."""
    routes = [
        Route(item.path, _handler(api, item), methods=[item.method], name=item.handler)
        for item in ENDPOINTS
    ]
    handlers: Any = {404: _nothing, 405: _nothing}
    return Starlette(routes=routes, exception_handlers=handlers)


def _handler(api: Api, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await api.answer(endpoint, request)

    return handle


async def _nothing(request: Request, error: Any) -> Response:
    told = {"error": "missing", "who": request.url.path[:200], "reason": "there is no such page"}
    return _json(told, error.status_code)


def _whole(call: Call, name: str, default: int, what: str) -> int:
    """A whole number in the query."""
    text = call.request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 15:
        raise RefusedError(name, what)
    return max(default, int(text))


def _own(identity: Identity | None) -> tuple[str | None, ...]:
    return (None,) if identity is None else (identity.subject, None)


def _token_line(item: Credential) -> Data:
    line = {
        "id": item.id,
        "role": item.role,
        "subject": item.subject,
        "created": item.created,
        "expires": item.expires,
        "revoked": item.revoked,
        "used": item.used,
        "note": item.note,
    }
    return dict(line)


def loads_row(row: object) -> Data:
    """A value of ours as plain data."""
    data: Any = loads(dumps(row))
    return dict(data)


def _json(
    data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    safe = {
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    }
    return JSONResponse(data, status, {**safe, **(headers or {})})
