"""Clients of the service's gRPC server: for nodes, agents and hosts of agents.

    connection = Connection(Address("127.0.0.1", 7420), Credentials(token_file=path))
    orders = await NodeClient(connection).report(report)

    async with AgentLink(AgentClient(connection), AppId("sweep")) as link:
        link.say(EndApp())
        async for item in link.news(): ...          # agent_host/session_client.py

Errors are the same as on the other side of the wire: `DeniedError`, `RefusedError`, ... and
`UnavailableError` for everything that may be tried again.
"""

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from themis.config.addresses import Address, is_loopback
from themis.core.model import AppId
from themis.errors import ConfigError, ThemisError, UnavailableError, UnknownCallerError
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
    EXCHANGES,
    HOSTED,
    LEAN,
    NODE_BYTES,
    REPORTS,
    SHEET,
    Rpc,
    error_of,
)
from themis.rpc.stream import CallStream
from themis.rpc.wire import Bounds, from_bytes, to_bytes
from themis.rpc.wire.convert import DOWN
from themis.security.tls import grpc_client
from themis.security.token_files import read_token
from themis.security.tokens import Secret

if TYPE_CHECKING:
    import grpc

CALL_SECONDS = 60.0
"""Longer than the service keeps any call."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", NODE_BYTES),
    ("grpc.max_send_message_length", NODE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Callers wait as they see fit; gRPC's own two minutes are longer than a lease may be.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # The service is named on purpose; a proxy for web pages is no way to it.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    *LEAN,
)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a caller. Files are read for each connection, so that they may change."""

    token_file: Path | None = None
    ca: Path | None = None
    """The CA of the service's certificate; without one, and on loopback only, there is no TLS."""
    cert: Path | None = None
    key: Path | None = None
    token: Secret | None = None
    """The token itself, instead of a file."""

    @property
    def secure(self) -> bool:
        """Whether TLS is used."""
        return self.ca is not None


class Backoff:
    """Waits between retries, with full jitter so that a crowd of callers spreads out."""

    def __init__(self, rng: random.Random, first: float = 0.2, most: float = 10.0) -> None:
        self._rng = rng
        self._first = first
        self._most = most
        self._failures = 0

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        span = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return self._rng.uniform(0.0, span)

    def succeeded(self) -> None:
        """Begin with short waits again."""
        self._failures = 0


@dataclass
class Connection:
    """A channel to the service, made when first needed and anew after `reset`."""

    address: Address
    credentials: Credentials = field(default_factory=Credentials)
    _channel: "grpc.aio.Channel | None" = field(default=None, init=False)
    _token: Secret | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not self.credentials.secure and not is_loopback(self.address.host):
            allowed = "a service on this machine, or --ca with who signed its certificate"
            raise ConfigError("server", str(self.address), allowed)

    def check(self) -> None:
        """Read the files once, to report mistakes in them before any call.

        Raises:
            ConfigError: One is missing, or is something else.
        """
        self.metadata()
        if self.credentials.secure:
            grpc_client(self.credentials.ca, self.credentials.cert, self.credentials.key)

    def renew_token(self) -> None:
        """Read the token's file again, for the next call.

        Raises:
            ConfigError: There is no token in it.
        """
        self._token = None
        self.metadata()

    async def call(self, rpc: Rpc, message: bytes, timeout: float = CALL_SECONDS) -> bytes:  # noqa: ASYNC109 - gRPC's own deadline
        """Make one call; bytes in and out.

        Raises:
            ThemisError: As the service said, or `UnavailableError`.
        """
        import grpc  # noqa: PLC0415 - slow to import

        method = self._open().unary_unary(rpc.path)
        try:
            return bytes(await method(message, timeout=timeout, metadata=self.metadata()))
        except grpc.aio.AioRpcError as error:
            told = error_of(error.code().name, error.details() or "", error.trailing_metadata())
        except grpc.aio.UsageError as error:
            told = UnavailableError(str(error))  # closed meanwhile
        self.note(told)
        raise told

    def stream(self, rpc: Rpc) -> Any:
        """Open a stream of messages both ways, as bytes."""
        return self._open().stream_stream(rpc.path)(metadata=self.metadata())

    def note(self, error: ThemisError) -> None:
        """Note the error of a call."""
        if isinstance(error, UnknownCallerError):
            self._token = None  # Another may be in the file by now.

    async def reset(self) -> None:
        """Make the connection anew, with new credentials from the files."""
        channel, self._channel, self._token = self._channel, None, None
        if channel is not None:
            await channel.close()

    close = reset

    def _open(self) -> "grpc.aio.Channel":
        import grpc  # noqa: PLC0415 - slow to import

        if self._channel is None:
            given = self.credentials
            if given.secure:
                tls = grpc_client(given.ca, given.cert, given.key)
                self._channel = grpc.aio.secure_channel(str(self.address), tls, list(_OPTIONS))
            else:
                self._channel = grpc.aio.insecure_channel(str(self.address), list(_OPTIONS))
        return self._channel

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call."""
        if self.credentials.token_file is None and self.credentials.token is None:
            return ()
        if self._token is None:
            path = self.credentials.token_file
            self._token = self.credentials.token if path is None else read_token(path)
        assert self._token is not None
        return (("authorization", f"Bearer {self._token.reveal()}"),)


class _Client:
    """One call under way at a time: a later one takes the place of an earlier one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._under_way: asyncio.Task[bytes] | None = None

    async def _ask(self, rpc: Rpc | CallStream, value: object, kind: type[_Answer]) -> _Answer:
        raw = to_bytes(value)
        if self._under_way is not None:
            self._under_way.cancel()
        asking = (
            rpc.ask(raw, CALL_SECONDS)
            if isinstance(rpc, CallStream)
            else self.connection.call(rpc, raw, CALL_SECONDS)
        )
        call = self._under_way = asyncio.create_task(asking)
        try:
            answer = await call
        except asyncio.CancelledError:
            if not call.cancelled():  # The caller was cancelled.
                call.cancel()
                raise
            current: asyncio.Task[Any] | None = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise UnavailableError("a later call took the place of this one") from None
        finally:
            if self._under_way is call:
                self._under_way = None
        return from_bytes(kind, answer, Bounds(DOWN.size, DOWN.rows))


class NodeClient(_Client):
    """Calls for a node. It shares its connection with no other client."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._calls = CallStream(connection, REPORTS)

    async def report(self, report: NodeReport) -> Orders:
        """Send a report; returns with the orders that answer it.

        Raises:
            ThemisError: As the service said, or `UnavailableError`.
        """
        try:
            return await self._ask(self._calls, report, Orders)
        except UnavailableError:
            if self._under_way is None:
                # gRPC would wait before it tries again, and nodes have no time to lose.
                await self.connection.reset()
            raise


class AgentClient(_Client):
    """Calls for apps of one owner, one at a time."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._calls = CallStream(connection, EXCHANGES)

    async def exchange(self, report: AgentReport) -> News:
        """Send a report; returns with the news.

        Raises:
            ThemisError: As the service said, or `UnavailableError`.
        """
        return await self._ask(self._calls, report, News)


class HostClient(AgentClient):
    """Calls for the agent host of an owner."""

    async def hosted(self, revision: int) -> HostedApps:
        """The apps that need an agent; waits a while for another answer than the last.

        Raises:
            ThemisError: As the service said, or `UnavailableError`.
        """
        return await self._ask(HOSTED, HostedAppsRequest(revision), HostedApps)

    async def sheet(self, app: AppId) -> SubmittedApp:
        """The file of a submitted app.

        Raises:
            ThemisError: As the service said, or `UnavailableError`.
        """
        return await self._ask(SHEET, SubmittedAppRequest(app), SubmittedApp)


async def refused(address: Address, seconds: float = 2.0) -> bool:
    """Whether the machine at an address answers that no process listens there.

    Silence, and anything else that a network may do, is not a refusal.
    """
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
