"""Limits on HTTP connections, before anything in them is understood: how many, and for how long.

    limiter = ConnectionLimiter(limits)
    listening = LimitedSocket(listen("http", address), limiter)
    uvicorn.Config(app, http=partial(LimitedProtocol, limiter))     # and serve([listening])

At any time either the caller waits for the service, or the service waits for the caller: for the
rest of a handshake or a request, for the next request, or until the caller has read an answer. The
service waits for a fixed time in all, not after each byte, so a caller that trickles is cut off.
When there is no room for one more connection, the one that the service has waited for longest is
closed: of the same address if that has its share, else of the address with the most connections. So
half-sent requests displace each other, and never a whole one.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from themis.config.keys import CallerLimits
from themis.security.rate_limits import network_of

Peer = tuple[Any, ...]
"""Address and port of a caller, as sockets give them."""


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection."""

    socket: socket.socket
    timer: asyncio.TimerHandle | None = None
    """Runs while the service waits for the caller."""


class ConnectionLimiter:
    """Counts connections, and closes those that the service has waited for too long."""

    def __init__(self, limits: CallerLimits) -> None:
        self._limits = limits
        # In the order in which the service began to wait for them.
        self._by_network: dict[str, dict[Peer, _Connection]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def change(self, limits: CallerLimits) -> None:
        """Use other limits from now on; open connections stay."""
        self._limits = limits

    def enter(self, connection: socket.socket, peer: Peer) -> bool:
        """Take in a connection, if need be in place of another; False if there is no room."""
        network = network_of(str(peer[0]))
        here = self._by_network.get(network, {})
        if len(here) >= self._limits.per_address and not self._drop_one(here):
            return False
        if self._count >= self._limits.connections and not self._drop_any():
            return False
        self._by_network.setdefault(network, {})[peer] = _Connection(connection)
        self._count += 1
        self.wait_for(peer)
        return True

    def leave(self, peer: Peer) -> None:
        """A connection has closed."""
        network = network_of(str(peer[0]))
        connection = self._by_network.get(network, {}).pop(peer, None)
        if connection is None:
            return
        self._count -= 1
        _stop(connection)
        if not self._by_network[network]:
            del self._by_network[network]

    def wait_for(self, peer: Peer) -> None:
        """From now on the service waits for the caller, up to the limit."""
        here = self._by_network.get(network_of(str(peer[0])), {})
        connection = here.pop(peer, None)
        if connection is None:
            return
        here[peer] = connection
        _stop(connection)
        loop = asyncio.get_running_loop()
        connection.timer = loop.call_later(self._limits.request_timeout, _hang_up, connection)

    def work_for(self, peer: Peer) -> None:
        """From now on the caller waits for the service."""
        connection = self._by_network.get(network_of(str(peer[0])), {}).get(peer)
        if connection is not None:
            _stop(connection)

    def _drop_any(self) -> bool:
        crowded = sorted(self._by_network.values(), key=len, reverse=True)
        return any(self._drop_one(here) for here in crowded)

    def _drop_one(self, here: dict[Peer, _Connection]) -> bool:
        """Close the connection that was waited for longest; False if there is none."""
        for peer, connection in here.items():
            if connection.timer is not None:
                _hang_up(connection)
                self.leave(peer)
                return True
        return False


def _stop(connection: _Connection) -> None:
    if connection.timer is not None:
        connection.timer.cancel()
        connection.timer = None


def _hang_up(connection: _Connection) -> None:
    """Close a connection at once, whatever is still to be sent."""
    with suppress(OSError):  # The caller has closed it.
        connection.socket.shutdown(socket.SHUT_RDWR)


class LimitedSocket(socket.socket):
    """A listening socket that refuses connections for which there is no room."""

    def __init__(self, listening: socket.socket, limiter: ConnectionLimiter) -> None:
        kind = listening.family, listening.type, listening.proto
        super().__init__(*kind, fileno=listening.detach())
        self._limiter = limiter

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises:
            ConnectionAbortedError: There is no room for it; the event loop asks again.
        """
        plain, peer = super().accept()
        connection = _Accepted(plain, lambda: self._limiter.leave(peer))
        if self._limiter.enter(connection, peer):
            return connection, peer
        connection.close()
        raise ConnectionAbortedError("there is no room for one more connection")


class _Accepted(socket.socket):
    """A connection that calls `left` when it is closed."""

    def __init__(self, plain: socket.socket, left: Callable[[], None]) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._left = left

    def close(self) -> None:
        """Close it."""
        self._left()
        super().close()


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 that tells the limiter which side waits."""

    def __init__(self, limiter: ConnectionLimiter, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._limiter = limiter
        self._peer: Peer = ("",)
        self._waiting: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin. The time that a handshake took counts against the caller."""
        self._peer = transport.get_extra_info("peername") or ("",)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._note_who_waits()

    def on_response_complete(self) -> None:
        """Continue after an answer."""
        super().on_response_complete()
        self._note_who_waits()

    def pause_writing(self) -> None:
        """The caller reads the answer more slowly than it is written."""
        super().pause_writing()
        self._waiting = None
        self._limiter.wait_for(self._peer)

    def resume_writing(self) -> None:
        """The caller has caught up."""
        super().resume_writing()
        self._note_who_waits()

    def _note_who_waits(self) -> None:
        """Tell the limiter if the other side waits now; more of one request changes nothing."""
        cycle: Any = self.cycle  # none before the first request
        sending = self.conn.their_state is h11.SEND_BODY
        answered = cycle is None or cycle.response_complete
        waiting = (cycle, sending, answered)
        if waiting == self._waiting:
            return
        self._waiting = waiting
        if sending or answered:
            self._limiter.wait_for(self._peer)
        else:
            self._limiter.work_for(self._peer)
