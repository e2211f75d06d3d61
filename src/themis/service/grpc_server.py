"""The gRPC door of the service, for nodes and agents.

    server = GrpcServer(service, vault, GrpcSettings())
    address = await server.start(Address("127.0.0.1", 0))
    await server.close(grace=5.0)

A message is taken as bytes, and read only once its caller is known: nothing that comes in can fail
inside gRPC, where it would look like our fault. Who calls follows from the credential alone.
"""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from themis.config.addresses import Address
from themis.config.keys import CallerLimits, Tls
from themis.core.model import OwnerId
from themis.errors import (
    ConfigError,
    DeniedError,
    LimitError,
    RefusedError,
    UnavailableError,
    UnknownCallerError,
)
from themis.ops.log_format import current_request, marked, report_id, request_id
from themis.protocol.agent_messages import (
    AgentReport,
    Hosted,
    HostedAsked,
    News,
    SheetAsked,
    SubmittedApp,
)
from themis.protocol.node_messages import NodeReport, Orders
from themis.rpc.methods import (
    EXCHANGE,
    HOSTED,
    LEAN,
    NODE_BYTES,
    REPORT,
    REQUEST_ID,
    RETRY_AFTER,
    RPCS,
    SAID_VERBS,
    SHEET,
    Rpc,
    code_of,
    cost_of,
)
from themis.rpc.wire import Bounds, from_message, parse, to_bytes
from themis.security.audit import CallOutcome, RefusalCounter, audited
from themis.security.bind_address import check_bind, listen
from themis.security.permissions import require
from themis.security.rate_limits import WRONG_CREDENTIALS, OpenStreams, RateBuckets, network_of
from themis.security.redaction import clean
from themis.security.tls import check_peer, grpc_server
from themis.security.tokens import (
    Identity,
    Role,
    TokenStore,
    VerifiedToken,
    check_bearer,
    check_host,
    note_use,
)
from themis.service.loop_throttle import LoopThrottle
from themis.service.service import Service

if TYPE_CHECKING:
    import grpc

_LOG = logging.getLogger(__name__)

_MOST_DETAILS = 2000
_FULL_WAIT = 1.0
"""Seconds after which somebody with too many calls under way may try again."""
_SILENCE = 60.0
"""Seconds after which a stream ends on which nothing was said."""
_STREAM_LASTS = 240.0
"""Seconds after which a stream ends that is used: its connection may be due to be made anew."""
_STREAMS_EACH = 4
"""Beside those that everybody may have, for each app: a stream may outlast its last call."""
_COUNT_EVERY = 1.0
"""Seconds for which the number of an owner's apps is believed."""

_OWN_HOST = "127.0.0.1"
_REFUSED_AGAIN = 3600.0
"""Seconds for which those who are refused again are only counted: machines try for ever."""
_FEWEST_STREAMS = 1024
_AT_A_TIME = 16
"""Messages that are taken in before the loop looks at its timers again: some milliseconds."""
_MOST_CALLS = 16_384
_PLENTY = 0.75
"""Of the streams for tenants; beyond it they are shared out."""
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", NODE_BYTES),
    ("grpc.max_send_message_length", NODE_BYTES),
    # Two services on one port would each get half of the nodes.
    ("grpc.so_reuseport", 0),
    # Who says nothing while a connection is made, or afterwards, does not keep it.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    # All connections are made anew from time to time, so that one that trickles cannot last; calls
    # and streams under way are let finish.
    ("grpc.max_connection_age_ms", 1_800_000),
    ("grpc.max_connection_age_grace_ms", 1_000 * round(_STREAM_LASTS + _SILENCE)),
    # Calls that came while the loop was busy wait for it. Of more than a thousand gRPC would cancel
    # some by lot, and who is cancelled calls again: when all agents are asked at once that is half
    # of all calls, those of nodes among them.
    ("grpc.server.max_pending_requests", _MOST_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * _MOST_CALLS),
    ("grpc.max_metadata_size", 8192),
    *LEAN,
    # Peers that are gone without a word are found out.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 3),
)


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """What the door must know of its surroundings."""

    tls: Tls = field(default=Tls())
    limits: CallerLimits = field(default=CallerLimits())
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    for_tenants: int = _MOST_CALLS * 3 // 4
    """Streams that all tenants together may have: nodes always find a place beside them."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, before they are believed."""

    address: str
    bearer: str | None
    certificate: bytes | None
    secure: bool = False
    """Whether TLS is between."""
    proof: VerifiedToken = field(default_factory=VerifiedToken, repr=False, compare=False)


@dataclass(slots=True)
class _Said:
    """Whether anything came on a stream."""

    anything: bool = False


class GrpcServer:
    """Listens, and hands what passes to the service."""

    def __init__(
        self, service: Service, vault: TokenStore, settings: GrpcSettings | None = None
    ) -> None:
        self._service = service
        self._vault = vault
        self._settings = settings or GrpcSettings()
        self._rates = RateBuckets(self._settings.limits)
        self._wrong_credentials = RateBuckets(self._settings.limits, WRONG_CREDENTIALS)
        self._streams = OpenStreams(self._settings.limits)
        self._tenants: Counter[str] = Counter()
        """Streams that tenants have, each of them."""
        self._pace = LoopThrottle(_AT_A_TIME)
        self._nodes_pace = LoopThrottle(_AT_A_TIME)
        """Nodes do not stand in line behind a crowd of agents: silence costs them their leases."""
        self._owners = _Owners(service)
        self._refusals = RefusalCounter(_REFUSED_AGAIN)
        self._server: grpc.aio.Server | None = None
        self.own: Address | None = None
        """Where agents that the service has started call: on this machine, and without TLS.

        The certificate has names that others call the service by, which may be none of this
        machine, and with `require_client` every owner would have to have one here.
        """
        self._silent: set[asyncio.Timeout] = set()
        """How long streams are waited for on which nothing is asked just now."""
        self._closing = False

    async def start(self, address: Address) -> Address:
        """Listen; returns where, with the port that was taken for 0.

        Raises:
            ConfigError: Others could read along there, or the address cannot be used.
        """
        import grpc  # noqa: PLC0415 - slow to import

        check_bind("grpc", address, self._settings.tls)
        # Tried first: of a port that is taken gRPC says no more than that.
        listen("grpc", address).close()
        # The agents of an owner's apps share one connection, on which each has its stream all the
        # time: one beyond what it takes would wait for minutes, and its app count as left alone.
        each = max(_FEWEST_STREAMS, min(_MOST_CALLS, 2 * self._settings.limits.apps))
        options = [*_OPTIONS, ("grpc.max_concurrent_streams", each)]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_MOST_CALLS)
        for rpc in RPCS:
            # No (de)serializer: bytes in, bytes out.
            handler = (
                grpc.stream_stream_rpc_method_handler(self._stream_handler(rpc))
                if rpc.streams
                # The same to who calls; but gRPC would wait for the message before it lets us look.
                else grpc.stream_unary_rpc_method_handler(self._handler(rpc))
            )
            handlers = {rpc.method: handler}
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(rpc.service, handlers),)
            )
        credentials = grpc_server(self._settings.tls)
        try:
            if credentials is None:
                port = own = server.add_insecure_port(str(address))
            else:
                port = server.add_secure_port(str(address), credentials)
                own = server.add_insecure_port(f"{_OWN_HOST}:0")
        except RuntimeError:
            port = own = 0
        if 0 in {port, own}:
            raise ConfigError("grpc", str(address), "an address of this host that is not in use")
        await server.start()
        self._server, self._closing = server, False
        self.own = Address(address.host if credentials is None else _OWN_HOST, own)
        return Address(address.host, port)

    async def close(self, grace: float = 1.0) -> None:
        """Take no more calls; those under way get so many seconds."""
        if self._server is not None:
            # Nothing more is waited for, not even where an answer is on its way.
            self._closing = True
            stopping = asyncio.create_task(self._server.stop(grace))
            await asyncio.sleep(0)
            for patience in list(self._silent):
                if not patience.expired():  # Nobody waits for an answer there.
                    patience.reschedule(0.0)
            await stopping
        for row in self._refusals.close(self._settings.wall()):
            self._service.queue.add(audit=row)

    def change(self, limits: CallerLimits) -> None:
        """Go by other limits from now on."""
        self._settings = replace(self._settings, limits=limits)
        self._rates.change(limits)
        self._wrong_credentials.change(limits)
        self._streams.change(limits)

    # One call

    def _handler(self, rpc: Rpc) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def handle(_: Any, context: Any) -> bytes:
            peer, request = _peer(context), _request(context)
            with marked(request=request):
                try:
                    context.set_trailing_metadata(((REQUEST_ID, request),))
                    raw = await self._only(context, peer)
                    with _told(rpc, peer):
                        return await self.answer(rpc, raw, peer)
                except asyncio.CancelledError:
                    raise
                except Exception as error:
                    self._note_refused(rpc, peer, error)
                    return await _abort(context, rpc, error)

        return handle

    def _stream_handler(self, rpc: Rpc) -> Callable[[Any, Any], Awaitable[None]]:
        async def handle(_: Any, context: Any) -> None:
            peer = _peer(context)
            with marked(request=_request(context)):
                try:
                    await self._serve(rpc, context, peer)
                except asyncio.CancelledError:
                    raise
                except Exception as error:
                    self._note_refused(rpc, peer, error)
                    await _abort(context, rpc, error)

        return handle

    def _note_refused(self, rpc: Rpc, peer: Peer, error: Exception) -> None:
        """Tell who runs the cluster of somebody who is not let in; of a flood only how many."""
        if not isinstance(error, UnknownCallerError | DeniedError):
            return
        wall = self._settings.wall()
        try:
            identity = check_bearer(self._vault, peer.bearer, now=wall)
        except UnknownCallerError:
            identity = None
        row = audited(
            *(identity, rpc.verb, peer.address),
            at=wall,
            outcome=CallOutcome.DENIED,
            details={"reason": error},
        )
        rows = self._refusals.note(row)
        if row in rows:
            _LOG.warning("%s from %s is refused: %s", rpc.verb, peer.address, clean(error))
        for item in rows:
            self._service.queue.add(audit=item)

    async def _serve(self, rpc: Rpc, context: Any, peer: Peer) -> None:
        """Answer what comes on a stream, each message as a call of its own.

        Raises:
            ThemisError: As `answer`, or it is one stream too many.
        """
        with self._counted_stream(self._identify(peer)) as said:
            stream, number = current_request(), 0
            context.set_trailing_metadata(((REQUEST_ID, stream),))
            await context.send_initial_metadata(((REQUEST_ID, stream),))  # Who calls is known.
            now = self._settings.monotonic
            ends = now() + _STREAM_LASTS
            while now() < ends:
                raw = await self._next(context)
                if raw is None:
                    return
                said.anything = True
                number += 1
                with marked(request=f"{stream}.{number}"), _told(rpc, peer):
                    answer = await self.answer(rpc, raw, peer)
                try:
                    async with asyncio.timeout(_SILENCE):
                        await context.write(answer)
                except TimeoutError:
                    return  # Who does not take what they are told is not waited for.

    async def _only(self, context: Any, peer: Peer) -> bytes:
        """The message of a call. Strangers are not waited for, and nobody for long.

        Raises:
            ThemisError: Who calls is unknown, has too many under way, or says nothing.
        """
        with self._counted_stream(self._identify(peer)) as said:
            raw = await self._next(context)
            said.anything = raw is not None or self._closing
        if raw is None:
            raise UnavailableError(
                "this service is stopping" if self._closing else "nothing was said"
            )
        return raw

    async def _next(self, context: Any) -> bytes | None:
        """The next message on a stream; None if it ends, nothing comes, or the door closes."""
        import grpc  # noqa: PLC0415 - slow to import

        if self._closing:
            return None
        patience = asyncio.timeout(_SILENCE)
        try:
            async with patience:
                self._silent.add(patience)
                raw = await context.read()
        except TimeoutError:
            return None
        finally:
            self._silent.discard(patience)
        return None if raw is grpc.aio.EOF else bytes(raw)

    async def answer(self, rpc: Rpc, raw: bytes, peer: Peer) -> bytes:
        """Answer one call, as bytes.

        Raises:
            ThemisError: Who calls is unknown or may not, or what they say is refused.
        """
        await (self._nodes_pace if rpc.takes is NodeReport else self._pace).turn()
        identity = self._identify(peer)
        limits = self._settings.limits
        bounds = Bounds(rpc.size or limits.message_bytes, limits.rows)
        message = self._counted_in(rpc, raw, bounds, identity)
        value: object = from_message(rpc.takes, message, bounds)
        match value:
            case NodeReport():
                return to_bytes(await self._report(identity, value))
            case AgentReport():
                return to_bytes(await self._exchange(identity, value))
            case HostedAsked():
                return to_bytes(await self._hosted(identity, value))
            case SheetAsked():
                return to_bytes(self._sheet(identity, value))
            case _:
                raise NotImplementedError(rpc.path)

    def _identify(self, peer: Peer) -> Identity:
        """By the token, together with the certificate where one is shown or wanted.

        Never by the certificate alone: it ends only with its date, and would go on speaking for
        somebody whose token was revoked.
        """
        settings = self._settings
        place, now = network_of(peer.address), settings.monotonic()
        try:
            identity = peer.proof.check(self._vault, peer.bearer, now=settings.wall())
            if settings.tls.cert is not None and not peer.secure:
                check_host(self._vault, identity)
            else:
                check_peer(identity, peer.certificate, required=settings.tls.require_client)
        except (UnknownCallerError, DeniedError):
            self._wrong_credentials.take(place, now)
            raise
        note_use(self._vault, identity.credential, now=settings.wall())
        return identity

    def _counted_in(self, rpc: Rpc, raw: bytes, bounds: Bounds, identity: Identity) -> Any:
        """The message, counted by what it says; one that makes no sense counts too."""
        now, share = self._settings.monotonic(), self._share(identity)
        try:
            message = parse(rpc.takes, raw, bounds)
            cost = cost_of(rpc, message)
        except RefusedError:
            self._rates.take(identity.credential, now, share)
            raise
        self._rates.take(identity.credential, now, cost * share)
        return message

    def _share(self, identity: Identity) -> float:
        """One credential may speak for many apps, and each of them has its share of calls."""
        return 1.0 / max(1, self._owners.apps_of(identity.subject, self._settings.monotonic()))

    async def _report(self, identity: Identity, report: NodeReport) -> Orders:
        require(identity, REPORT.verb, report.node)
        # The node knows it by the same name, whatever else it is called on its way.
        request = report_id(report.node, report.boot, report.number)
        with self._counted(f"{identity.credential} {report.node}"), marked(request=request):
            return await self._service.nodes.report(report)

    async def _exchange(self, identity: Identity, report: AgentReport) -> News:
        owner = self._service.owner_of(report.app)
        require(identity, EXCHANGE.verb, owner)
        for verb in dict.fromkeys(SAID_VERBS[type(said)] for said in report.said):
            require(identity, verb, owner)
        with self._counted(f"{identity.credential} {report.app}"):
            return await self._service.agents.exchange(report)

    async def _hosted(self, identity: Identity, asked: HostedAsked) -> Hosted:
        require(identity, HOSTED.verb, identity.subject)
        with self._counted(f"{identity.credential} hosted"):
            return await self._service.files.hosted_by(OwnerId(identity.subject), asked.revision)

    def _sheet(self, identity: Identity, asked: SheetAsked) -> SubmittedApp:
        owner = self._service.owner_of(asked.app)
        require(identity, SHEET.verb, owner)
        return self._service.files.file(asked.app)

    @contextmanager
    def _counted(self, who: str, more: int = 0) -> Iterator[None]:
        try:
            self._streams.open(who, more)
        except LimitError as error:
            raise LimitError(error.who, error.reason, _FULL_WAIT) from None
        try:
            yield
        finally:
            self._streams.close(who)

    @contextmanager
    def _counted_stream(self, identity: Identity) -> Iterator[_Said]:
        """Count a stream, and as a call if nothing is said on it."""
        who, said = identity.credential, _Said()
        self._rates.look(who, self._settings.monotonic(), self._share(identity))
        apps = self._owners.apps_of(identity.subject, self._settings.monotonic())
        # Not times what everybody may have: who has many apps would keep nodes from the door.
        with self._counted(who, _STREAMS_EACH * apps), self._counted_tenant(identity):
            try:
                yield said
            finally:
                if not said.anything:
                    with suppress(LimitError):
                        self._rates.take(who, self._settings.monotonic(), self._share(identity))

    @contextmanager
    def _counted_tenant(self, identity: Identity) -> Iterator[None]:
        if identity.role is not Role.TENANT:
            yield
            return
        self._check_room(identity.subject)
        self._tenants[identity.subject] += 1
        try:
            yield
        finally:
            self._tenants[identity.subject] -= 1
            if not self._tenants[identity.subject]:
                del self._tenants[identity.subject]

    def _check_room(self, tenant: str) -> None:
        """Once places run short, nobody has more than are left: so there are always some left."""
        most, taken = self._settings.for_tenants, self._tenants.total()
        if taken >= most:
            reason = f"tenants have {taken} streams open: the service is full"
            raise LimitError(tenant, reason, _FULL_WAIT)
        mine = self._tenants[tenant]
        # Streams end after a while, and who has many is not let in again: shares become equal.
        if taken >= _PLENTY * most and mine > most - taken:
            reason = f"{mine} of {taken} streams of tenants are yours: the service is nearly full"
            raise LimitError(tenant, reason, _FULL_WAIT)


class _Owners:
    """How many apps everybody has."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._counts: Mapping[str, int] = {}
        self._counted_at = float("-inf")

    def apps_of(self, owner: str, now: float) -> int:
        """How many apps an owner has, about."""
        if now >= self._counted_at + _COUNT_EVERY:
            counts: dict[str, int] = {}
            for state in self._service.steward.arbiter.world.apps.values():
                counts[state.spec.owner] = counts.get(state.spec.owner, 0) + 1
            self._counts, self._counted_at = counts, now
        return self._counts.get(owner, 0)


def _peer(context: Any) -> Peer:
    bearers = [
        value for key, value in context.invocation_metadata() or () if key == "authorization"
    ]
    bearer = bearers[0] if len(bearers) == 1 and isinstance(bearers[0], str) else None
    if bearers and bearer is None:
        bearer = ""  # Something was said, and it is no token.
    shown = context.auth_context()
    certificates = shown.get("x509_pem_cert") or ()
    secure = b"ssl" in (shown.get("transport_security_type") or ())
    # ipv4:10.0.0.7:4711, ipv6:%5B::1%5D:4711; without the port, as connections are cheap.
    address = unquote(str(context.peer())).rpartition(":")[0].partition(":")[2].strip("[]")
    return Peer(address, bearer, certificates[0] if certificates else None, secure)


def _request(context: Any) -> str:
    """The id of a call: the caller's own if they have one that is harmless."""
    given = [value for key, value in context.invocation_metadata() or () if key == REQUEST_ID]
    return request_id(given[0] if len(given) == 1 else None)


@contextmanager
def _told(rpc: Rpc, peer: Peer) -> Iterator[None]:
    """A line of the log about a call, for who looks closely."""
    began = time.monotonic()
    try:
        yield
    finally:
        if _LOG.isEnabledFor(logging.DEBUG):
            seconds = time.monotonic() - began
            _LOG.debug("%s from %s: %.3f s", rpc.path, clean(peer.address), seconds)


async def _abort(context: Any, rpc: Rpc, error: Exception) -> bytes:
    import grpc  # noqa: PLC0415 - slow to import

    name, details = code_of(error), str(error)
    if name is None:
        # As over HTTP: the caller's own id stands beside it in the log.
        reference = secrets.token_hex(6)
        _LOG.error("unexpected error %s in %s", reference, rpc.path, exc_info=error)
        name, details = "INTERNAL", f"the service's log has more under {reference}"
    trailing: tuple[tuple[str, str], ...] = ((REQUEST_ID, current_request()),)
    if isinstance(error, LimitError) and error.retry_after is not None:
        trailing = (*trailing, (RETRY_AFTER, str(round(1000.0 * error.retry_after))))
    await context.abort(grpc.StatusCode[name], details[:_MOST_DETAILS], trailing)
    raise AssertionError("abort raises")
