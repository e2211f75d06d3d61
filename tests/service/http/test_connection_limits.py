"""Limits on connections: callers that never finish, and too many callers."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.support.grpc_service import until
from themis.config.addresses import Address
from themis.config.keys import CallerLimits, Tls
from themis.security.certificate_authority import make_authority, make_server
from themis.service.http.connection_limits import ConnectionLimiter
from themis.service.http.server import open_http

LOOPBACK = Address("127.0.0.1", 0)
SHORT = CallerLimits(request_timeout=0.05)
LONG = CallerLimits(request_timeout=3600.0, per_address=4, connections=6)
HALF = b"GET /quick HTTP/1.1\r\nHost: x\r\n"
BODY = b"POST /quick HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"

Caller = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Place:
    """A door with something behind it."""

    def __init__(self, limits: CallerLimits) -> None:
        self.limiter = ConnectionLimiter(limits)
        self.address = LOOPBACK
        self.busy = 0
        self.go_on = asyncio.Event()
        self.cut_off = 0
        self.callers: list[Caller] = []

    def app(self) -> Starlette:
        async def quick(request: Request) -> Response:
            try:
                return PlainTextResponse(await request.body() or b"fine")
            except ClientDisconnect:
                self.cut_off += 1
                raise

        async def slow(_: Request) -> Response:
            self.busy += 1
            await self.go_on.wait()
            return PlainTextResponse("at last")

        async def large(_: Request) -> Response:
            return PlainTextResponse(b"x" * (64 << 20))

        routes = [Route("/quick", quick, methods=["GET", "POST"]), Route("/slow", slow)]
        return Starlette(routes=[*routes, Route("/large", large)])

    async def calls(self, *sent: bytes, source: str = "127.0.0.1") -> Caller:
        """Somebody who connects and sends this."""
        where = (self.address.host, self.address.port)
        reader, writer = await asyncio.open_connection(*where, local_addr=(source, 0))
        self.callers.append((reader, writer))
        for part in sent:
            writer.write(part)
            await writer.drain()
        return reader, writer

    async def go_home(self) -> None:
        """All who called hang up."""
        for _, writer in self.callers:
            writer.close()
        ends = [writer.wait_closed() for _, writer in self.callers]
        await asyncio.gather(*ends, return_exceptions=True)


def behind_the_door(
    limits: CallerLimits, work: Callable[[Place], Awaitable[None]], tls: Tls | None = None
) -> None:
    @asynccontextmanager
    async def place() -> AsyncIterator[Place]:
        found = Place(limits)
        async with open_http(found.app(), LOOPBACK, found.limiter, tls or Tls(), 1.0) as address:
            found.address = address
            try:
                yield found
            finally:
                await found.go_home()

    async def run() -> None:
        async with asyncio.timeout(60), place() as found:
            await work(found)

    asyncio.run(run())


async def answer_of(caller: Caller) -> bytes:
    """The last line of an answer that fits into one packet."""
    head = await caller[0].readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return await caller[0].readexactly(length)


async def is_cut_off(caller: Caller) -> bool:
    """Wait until a caller is hung up on."""
    try:
        return await caller[0].read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", HALF, BODY], ids=["nothing", "half a head", "half a body"])
def test_client_with_an_incomplete_request_is_disconnected(sent: bytes) -> None:
    async def work(place: Place) -> None:
        assert await is_cut_off(await place.calls(sent))
        await until(lambda: len(place.limiter) == 0)
        assert place.cut_off == (sent is BODY)

    behind_the_door(SHORT, work)


@pytest.mark.parametrize("sent", [HALF[:-2], BODY.replace(b"9", b"999999")])
def test_a_byte_now_and_then_does_not_prolong_it(sent: bytes) -> None:
    async def work(place: Place) -> None:
        reader, writer = await place.calls(sent)
        over = asyncio.create_task(reader.read())
        while not over.done():
            try:
                writer.write(b"x")
                await writer.drain()
            except ConnectionError:
                break
            await asyncio.sleep(0)
        await asyncio.gather(over, return_exceptions=True)

    behind_the_door(SHORT, work)


def test_a_handshake_that_is_never_made_is_hung_up_on(tmp_path: Path) -> None:
    now = time.time()
    make_authority(tmp_path, now=now)
    pair = make_server(tmp_path, ["127.0.0.1"], now=now)

    async def work(place: Place) -> None:
        assert await is_cut_off(await place.calls())
        assert await is_cut_off(await place.calls(b"\x16\x03\x01\x02\x00"))

    behind_the_door(SHORT, work, Tls(pair.cert, pair.key))


def test_client_not_reading_the_answer_is_disconnected() -> None:
    async def work(place: Place) -> None:
        caller = socket.create_connection((place.address.host, place.address.port))
        with caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.sendall(GET % b"large")
            await until(lambda: len(place.limiter) == 1)
            await until(lambda: len(place.limiter) == 0)

    behind_the_door(SHORT, work)


def test_a_call_that_takes_long_to_answer_is_waited_for() -> None:
    async def work(place: Place) -> None:
        first = await place.calls(GET % b"slow")
        await until(lambda: place.busy)
        # Who came later and says nothing is hung up on by now.
        assert await is_cut_off(await place.calls(HALF))
        place.go_on.set()
        assert await answer_of(first) == b"at last"

    behind_the_door(SHORT, work)


def test_a_connection_is_good_for_several_requests() -> None:
    async def work(place: Place) -> None:
        caller = await place.calls(GET % b"quick")
        assert await answer_of(caller) == b"fine"
        caller[1].write(BODY + b"12345678")
        assert await answer_of(caller) == b"{12345678"
        caller[1].write(GET % b"quick" + GET % b"quick")
        assert [await answer_of(caller), await answer_of(caller)] == [b"fine", b"fine"]
        # And then it is the caller's turn again.
        assert await is_cut_off(caller)

    behind_the_door(CallerLimits(request_timeout=0.5), work)


def test_half_sent_requests_block_only_each_other() -> None:
    async def work(place: Place) -> None:
        half = [await place.calls(HALF) for _ in range(12)]
        assert await answer_of(await place.calls(GET % b"quick")) == b"fine"
        assert len(place.limiter) == 4
        # The oldest went.
        assert all([await is_cut_off(caller) for caller in half[:8]])
        half[-1][1].write(b"\r\n")
        assert await answer_of(half[-1]) == b"fine"

    behind_the_door(LONG, work)


def test_one_address_does_not_take_the_room_of_another() -> None:
    async def work(place: Place) -> None:
        honest = await place.calls(HALF)
        for source in ("127.0.0.2", "127.0.0.3"):
            for _ in range(4):
                await place.calls(HALF, source=source)
        assert len(place.limiter) == 6
        # It was there first, but its address has fewest.
        honest[1].write(b"\r\n")
        assert await answer_of(honest) == b"fine"
        assert await answer_of(await place.calls(GET % b"quick")) == b"fine"

    behind_the_door(LONG, work)


def test_no_client_is_disconnected_during_its_request() -> None:
    async def work(place: Place) -> None:
        ours = [await place.calls(GET % b"slow") for _ in range(4)]
        await until(lambda: place.busy == 4)
        assert await is_cut_off(await place.calls(GET % b"quick"))
        other = await place.calls(GET % b"quick", source="127.0.0.2")
        assert await answer_of(other) == b"fine"
        place.go_on.set()
        assert [await answer_of(caller) for caller in ours] == [b"at last"] * 4

    behind_the_door(LONG, work)


def test_small_answers_are_not_held_back() -> None:
    async def work(place: Place) -> None:
        await place.calls(GET % b"slow")
        await until(lambda: place.busy)
        place.go_on.set()
        (visits,) = place.limiter._by_network.values()
        (visit,) = visits.values()
        assert visit.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    behind_the_door(LONG, work)


def test_changed_limits_apply_to_new_connections() -> None:
    async def work(place: Place) -> None:
        half = [await place.calls(HALF) for _ in range(4)]
        place.limiter.change(CallerLimits(request_timeout=3600.0, per_address=1))
        await place.calls(HALF)
        assert await is_cut_off(half[0])

    behind_the_door(LONG, work)
