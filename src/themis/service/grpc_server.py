"""The service's gRPC server, for nodes, agents and hosts of agents.

    server = GrpcServer(service, tokens, GrpcSettings())
    address = await server.start(Address("127.0.0.1", 0))
    await server.close(grace=5.0)

A message comes as bytes, and is read only once its caller is identified: no input can fail inside
gRPC, where it would look like an error of the service.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from themis.config.addresses import Address
from themis.config.keys import CallerLimits
from themis.core.model import OwnerId
from themis.errors import ConfigError, LimitError, UnavailableError
from themis.ops.log_format import current_request, marked, report_id, request_id
from themis.protocol.agent_messages import (
    AgentReport,
    HostedApps,
    HostedAppsRequest,
    News,
    SubmittedApp,
    SubmittedAppRequest,
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
)
from themis.rpc.wire import to_bytes
from themis.security.bind_address import check_bind, listen
from themis.security.permissions import require
from themis.security.redaction import clean
from themis.security.tls import grpc_server
from themis.security.tokens import Identity, TokenStore
from themis.service.call_admission import MOST_CALLS, CallAdmission, GrpcSettings, Peer
from themis.service.loop_throttle import LoopThrottle
from themis.service.service import Service

if TYPE_CHECKING:
    import grpc

_LOG = logging.getLogger(__name__)

_MOST_DETAILS = 2000
_SILENCE = 60.0
"""Seconds without a message after which a stream ends."""
_STREAM_LASTS = 240.0
"""Seconds after which a used stream ends: its connection may be due to be made anew."""
_OWN_HOST = "127.0.0.1"
_FEWEST_STREAMS = 1024
_AT_A_TIME = 16
"""Messages that are handled before the loop looks at its timers again: some milliseconds."""
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", NODE_BYTES),
    ("grpc.max_send_message_length", NODE_BYTES),
    # Two services on one port would each get half of the nodes.
    ("grpc.so_reuseport", 0),
    # Silent peers do not keep a connection, neither while it is made nor afterwards.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    # All connections are made anew from time to time, so that one that trickles cannot last; calls
    # and streams under way may finish.
    ("grpc.max_connection_age_ms", 1_800_000),
    ("grpc.max_connection_age_grace_ms", 1_000 * round(_STREAM_LASTS + _SILENCE)),
    # Calls that come while the loop is busy wait for it. Of more than a thousand gRPC would cancel
    # some by lot, and their callers retry: when all agents are asked at once that is half of all
    # calls, those of nodes among them.
    ("grpc.server.max_pending_requests", MOST_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * MOST_CALLS),
    ("grpc.max_metadata_size", 8192),
    *LEAN,
    # Finds peers that are gone without a word.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 3),
)


class GrpcServer:
    """Listens, and hands admitted calls to the service."""

    def __init__(
        self, service: Service, tokens: TokenStore, settings: GrpcSettings | None = None
    ) -> None:
        self._service = service
        self._settings = settings or GrpcSettings()
        self.admission = CallAdmission(service, tokens, self._settings)
        self._pace = LoopThrottle(_AT_A_TIME)
        self._nodes_pace = LoopThrottle(_AT_A_TIME)
        """Nodes do not queue behind a crowd of agents: silence costs them their leases."""
        self._answers: dict[type, Callable[[Identity, Any], Awaitable[object]]] = {
            NodeReport: self._report,
            AgentReport: self._exchange,
            HostedAppsRequest: self._hosted,
            SubmittedAppRequest: self._file,
        }
        self._server: grpc.aio.Server | None = None
        self.own: Address | None = None
        """Where agents that the service has started call: on this machine, and without TLS.

        The certificate has the names that other machines use, and with `require_client` every owner
        would need a certificate here.
        """
        self._silent: set[asyncio.Timeout] = set()
        """The timeouts of streams that wait for a message."""
        self._closing = False

    async def start(self, address: Address) -> Address:
        """Listen; returns where, with the port that was taken for 0.

        Raises:
            ConfigError: The address needs TLS, or cannot be used.
        """
        import grpc  # noqa: PLC0415 - in an extra

        check_bind("grpc", address, self._settings.tls)
        # Tried first: of a port that is taken gRPC says no more than that.
        listen("grpc", address).close()
        # The agents of an owner's apps share one connection, on which each has its stream all the
        # time: a stream beyond its limit would wait for minutes, and its app count as unreachable.
        each = max(_FEWEST_STREAMS, min(MOST_CALLS, 2 * self._settings.limits.apps))
        options = [*_OPTIONS, ("grpc.max_concurrent_streams", each)]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
        for rpc in RPCS:
            # No (de)serializer: bytes in, bytes out. A call with one message is served as a stream
            # of messages, or gRPC would wait for the message before the caller is identified.
            handler = (
                grpc.stream_stream_rpc_method_handler(self._handler(rpc, self._serve_stream))
                if rpc.streams
                else grpc.stream_unary_rpc_method_handler(self._handler(rpc, self._serve_call))
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
        """Accept no more calls; those under way get so many seconds."""
        if self._server is not None:
            # No stream waits for another message, not even where an answer is on its way.
            self._closing = True
            stopping = asyncio.create_task(self._server.stop(grace))
            await asyncio.sleep(0)
            for silence in list(self._silent):
                if not silence.expired():
                    silence.reschedule(0.0)
            await stopping
        self.admission.close()

    def change(self, limits: CallerLimits) -> None:
        """Use other limits from now on."""
        self.admission.change(limits)

    # One call

    def _handler(
        self, rpc: Rpc, serve: Callable[[Rpc, Any, Peer], Awaitable[bytes | None]]
    ) -> Callable[[Any, Any], Awaitable[bytes | None]]:
        async def handle(_: Any, context: Any) -> bytes | None:
            peer = _peer(context)
            with marked(request=_request(context)):
                try:
                    return await serve(rpc, context, peer)
                except asyncio.CancelledError:
                    raise
                except Exception as error:
                    self.admission.note_refused(rpc, peer, error)
                    await _abort(context, rpc, error)
                    raise AssertionError("abort raises") from error

        return handle

    async def _serve_stream(self, rpc: Rpc, context: Any, peer: Peer) -> None:
        """Answer the messages of a stream, each as a call of its own.

        Raises:
            ThemisError: As `answer`, or it is one stream too many.
        """
        with self.admission.stream(self.admission.identify(peer)) as opened:
            stream, number = current_request(), 0
            context.set_trailing_metadata(((REQUEST_ID, stream),))
            await context.send_initial_metadata(((REQUEST_ID, stream),))  # The caller is let in.
            now = self._settings.monotonic
            ends = now() + _STREAM_LASTS
            while now() < ends:
                raw = await self._next(context)
                if raw is None:
                    return
                opened.used = True
                number += 1
                with marked(request=f"{stream}.{number}"), _timed(rpc, peer):
                    answer = await self.answer(rpc, raw, peer)
                try:
                    async with asyncio.timeout(_SILENCE):
                        await context.write(answer)
                except TimeoutError:
                    return  # The caller does not read its answers.

    async def _serve_call(self, rpc: Rpc, context: Any, peer: Peer) -> bytes:
        """Answer a call with one message, which must come soon.

        Raises:
            ThemisError: As `answer`, it is one call too many, or no message comes.
        """
        context.set_trailing_metadata(((REQUEST_ID, current_request()),))
        with self.admission.stream(self.admission.identify(peer)) as opened:
            raw = await self._next(context)
            opened.used = raw is not None or self._closing
        if raw is None:
            raise UnavailableError(
                "this service is stopping" if self._closing else "no message came"
            )
        with _timed(rpc, peer):
            return await self.answer(rpc, raw, peer)

    async def _next(self, context: Any) -> bytes | None:
        """The next message; None if the stream ends, none comes, or the server closes."""
        import grpc  # noqa: PLC0415 - in an extra

        if self._closing:
            return None
        silence = asyncio.timeout(_SILENCE)
        try:
            async with silence:
                self._silent.add(silence)
                raw = await context.read()
        except TimeoutError:
            return None
        finally:
            self._silent.discard(silence)
        return None if raw is grpc.aio.EOF else bytes(raw)

    async def answer(self, rpc: Rpc, raw: bytes, peer: Peer) -> bytes:
        """Answer one call, as bytes.

        Raises:
            ThemisError: The caller is unknown or may not, or the message is refused.
        """
        await (self._nodes_pace if rpc.takes is NodeReport else self._pace).turn()
        identity = self.admission.identify(peer)
        message = self.admission.parse(rpc, raw, identity)
        return to_bytes(await self._answers[rpc.takes](identity, message))

    async def _report(self, identity: Identity, report: NodeReport) -> Orders:
        require(identity, REPORT.verb, report.node)
        # The node's log has it by the same id, whatever else it is called on its way.
        request = report_id(report.node, report.boot, report.number)
        call = f"{identity.credential} {report.node}"
        with self.admission.counted(call), marked(request=request):
            return await self._service.nodes.report(report)

    async def _exchange(self, identity: Identity, report: AgentReport) -> News:
        owner = self._service.owner_of(report.app)
        require(identity, EXCHANGE.verb, owner)
        for verb in dict.fromkeys(SAID_VERBS[type(said)] for said in report.requests):
            require(identity, verb, owner)
        with self.admission.counted(f"{identity.credential} {report.app}"):
            return await self._service.agents.exchange(report)

    async def _hosted(self, identity: Identity, asked: HostedAppsRequest) -> HostedApps:
        require(identity, HOSTED.verb, identity.subject)
        owner = OwnerId(identity.subject)
        with self.admission.counted(f"{identity.credential} hosted"):
            return await self._service.files.hosted_by(owner, asked.revision)

    async def _file(self, identity: Identity, asked: SubmittedAppRequest) -> SubmittedApp:
        require(identity, SHEET.verb, self._service.owner_of(asked.app))
        return self._service.files.file(asked.app)


def _peer(context: Any) -> Peer:
    bearers = [
        value for key, value in context.invocation_metadata() or () if key == "authorization"
    ]
    bearer = bearers[0] if len(bearers) == 1 and isinstance(bearers[0], str) else None
    if bearers and bearer is None:
        bearer = ""  # Something was sent, and it is no token.
    shown = context.auth_context()
    certificates = shown.get("x509_pem_cert") or ()
    secure = b"ssl" in (shown.get("transport_security_type") or ())
    # ipv4:10.0.0.7:4711, ipv6:%5B::1%5D:4711; without the port, as connections are cheap.
    address = unquote(str(context.peer())).rpartition(":")[0].partition(":")[2].strip("[]")
    return Peer(address, bearer, certificates[0] if certificates else None, secure)


def _request(context: Any) -> str:
    """The id of a call: the caller's own if it has one that is harmless."""
    given = [value for key, value in context.invocation_metadata() or () if key == REQUEST_ID]
    return request_id(given[0] if len(given) == 1 else None)


@contextmanager
def _timed(rpc: Rpc, peer: Peer) -> Iterator[None]:
    """A debug line about a call."""
    began = time.monotonic()
    try:
        yield
    finally:
        if _LOG.isEnabledFor(logging.DEBUG):
            seconds = time.monotonic() - began
            _LOG.debug("%s from %s: %.3f s", rpc.path, clean(peer.address), seconds)


async def _abort(context: Any, rpc: Rpc, error: Exception) -> None:
    """End a call with the status of an error; raises."""
    import grpc  # noqa: PLC0415 - in an extra

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
