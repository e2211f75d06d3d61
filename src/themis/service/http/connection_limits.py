"""Who is at the HTTP door, before anything they send is understood: how many, and for how long.

    door = GuardedDoor(listen("http", address), Guard(limits))
    uvicorn.Config(app, http=partial(GuardedProtocol, guard))     # and serve([door])

Whoever is connected either waits for our answer, or we wait for them: for the rest of a handshake
or a request, for the next one, for an answer to be taken. We wait for so many seconds in all, not
after each byte, so a caller who trickles does not stay. Where there is no room for one more, the
one whom we have waited for longest makes it: of the same address if that has its share, else of the
address that has most. So half-sent requests keep out each other, and nobody who sends a whole one.
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
"""Address and port of a caller, as sockets tell it."""


@dataclass(slots=True, eq=False)
class _Visit:
    """One connection."""

    socket: socket.socket
    place: str
    timer: asyncio.TimerHandle | None = None
    """Runs while we wait for the caller."""


class ConnectionLimiter:
    """Counts connections, and ends those that we have waited for long enough."""

    def __init__(self, limits: CallerLimits) -> None:
        self._limits = limits
        # Those we wait for are in the order in which the waiting began.
        self._places: dict[str, dict[Peer, _Visit]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def change(self, limits: CallerLimits) -> None:
        """Go by other limits from now on; who is here stays."""
        self._limits = limits

    def enter(self, visitor: socket.socket, peer: Peer) -> bool:
        """Let a connection in, if need be in place of another; False if there is no room."""
        place = network_of(str(peer[0]))
        here = self._places.get(place, {})
        if len(here) >= self._limits.per_address and not self._drop_one(here):
            return False
        if self._count >= self._limits.connections and not self._drop_any():
            return False
        self._places.setdefault(place, {})[peer] = _Visit(visitor, place)
        self._count += 1
        self.wait_for(peer)
        return True

    def leave(self, peer: Peer) -> None:
        """A connection is over."""
        place = network_of(str(peer[0]))
        visit = self._places.get(place, {}).pop(peer, None)
        if visit is None:
            return
        self._count -= 1
        _stop(visit)
        if not self._places[place]:
            del self._places[place]

    def wait_for(self, peer: Peer) -> None:
        """It is the caller's turn, and they have so long for it from now."""
        here = self._places.get(network_of(str(peer[0])), {})
        visit = here.pop(peer, None)
        if visit is None:
            return
        here[peer] = visit
        _stop(visit)
        loop = asyncio.get_running_loop()
        visit.timer = loop.call_later(self._limits.patience, _hang_up, visit)

    def work_for(self, peer: Peer) -> None:
        """It is our turn."""
        visit = self._places.get(network_of(str(peer[0])), {}).get(peer)
        if visit is not None:
            _stop(visit)

    def _drop_any(self) -> bool:
        crowded = sorted(self._places.values(), key=len, reverse=True)
        return any(self._drop_one(here) for here in crowded)

    def _drop_one(self, here: dict[Peer, _Visit]) -> bool:
        """End the connection there that we have waited for longest; False if there is none."""
        for peer, visit in here.items():
            if visit.timer is not None:
                _hang_up(visit)
                self.leave(peer)
                return True
        return False


def _stop(visit: _Visit) -> None:
    if visit.timer is not None:
        visit.timer.cancel()
        visit.timer = None


def _hang_up(visit: _Visit) -> None:
    """End a connection at once, whatever is still to be sent: its reader gets the end of it."""
    with suppress(OSError):  # The caller was quicker.
        visit.socket.shutdown(socket.SHUT_RDWR)


class LimitedSocket(socket.socket):
    """A socket that listens, and lets in whom the guard lets in."""

    def __init__(self, door: socket.socket, guard: ConnectionLimiter) -> None:
        super().__init__(door.family, door.type, door.proto, fileno=door.detach())
        self._guard = guard

    def accept(self) -> tuple[socket.socket, Any]:
        """The next visitor.

        Raises:
            ConnectionAbortedError: There is no room for them; the loop comes again for the next.
        """
        plain, peer = super().accept()
        visitor = _Visitor(plain, lambda: self._guard.leave(peer))
        if self._guard.enter(visitor, peer):
            return visitor, peer
        visitor.close()
        raise ConnectionAbortedError("there is no room for one more connection")


class _Visitor(socket.socket):
    """A connection that tells when it is closed."""

    def __init__(self, plain: socket.socket, left: Callable[[], None]) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._left = left

    def close(self) -> None:
        """Close it."""
        self._left()
        super().close()


class LimitedProtocol(H11Protocol):
    """HTTP that tells the guard whose turn it is."""

    def __init__(self, guard: ConnectionLimiter, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._guard = guard
        self._peer: Peer = ("",)
        self._turn: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin; what a handshake took is not given back."""
        self._peer = transport.get_extra_info("peername") or ("",)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        super().data_received(data)
        self._note_turn()

    def on_response_complete(self) -> None:
        """Go on after an answer."""
        super().on_response_complete()
        self._note_turn()

    def pause_writing(self) -> None:
        """The caller does not take the answer as quickly as it is made."""
        super().pause_writing()
        self._turn = None
        self._guard.wait_for(self._peer)

    def resume_writing(self) -> None:
        """It has taken what there was."""
        super().resume_writing()
        self._note_turn()

    def _note_turn(self) -> None:
        """Tell whose turn it is, if it changed: more of the same request is no new turn."""
        cycle: Any = self.cycle  # none before the first request
        sending = self.conn.their_state is h11.SEND_BODY
        answered = cycle is None or cycle.response_complete
        turn = (cycle, sending, answered)
        if turn == self._turn:
            return
        self._turn = turn
        if sending or answered:
            self._guard.wait_for(self._peer)
        else:
            self._guard.work_for(self._peer)
