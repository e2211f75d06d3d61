"""The HTTP door of the service: uvicorn behind a guard, in our loop and with our signals.

async with open_http(make_api(api), Address("127.0.0.1", 0), Guard(limits), Tls()) as address:
    ...
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import uvicorn

from themis.config.addresses import Address
from themis.config.keys import Tls
from themis.errors import UnavailableError
from themis.security.bind_address import listen
from themis.security.tls import uvicorn_options
from themis.service.http.connection_limits import ConnectionLimiter, LimitedProtocol, LimitedSocket


@asynccontextmanager
async def open_http(
    app: Any, address: Address, guard: ConnectionLimiter, tls: Tls, patience: float = 3.0
) -> AsyncIterator[Address]:
    """Answer at an address; yields it with the port that was taken for 0.

    Args:
        app: What answers (ASGI).
        address: Where.
        guard: Who may be connected, and for how long.
        tls: Certificates, if any.
        patience: Seconds that calls under way get at the end.

    Raises:
        ConfigError: The address cannot be used.
        UnavailableError: Nothing listens there, for whatever reason.
    """
    options = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(patience),
        http=partial(LimitedProtocol, guard),  # type: ignore[arg-type]  # it makes one
        # Who calls from this machine need not be a proxy, and would choose their address freely.
        proxy_headers=False,
        # Nobody asks for them, and they would be out of the guard's sight.
        ws="none",
        h11_max_incomplete_event_size=64 * 1024,
        **uvicorn_options(tls),
    )
    # Bound here and not by uvicorn, which would end the process with a line of its own.
    door = LimitedSocket(listen("http", address), guard)
    server = _Uvicorn(options)
    task = asyncio.create_task(server.serve([door]))
    try:
        while not server.started:
            if task.done():
                await task
                raise UnavailableError(f"http: nothing listens on {address}")
            await asyncio.sleep(0.01)
        yield Address(address.host, int(door.getsockname()[1]))
    finally:
        server.should_exit = True
        with suppress(SystemExit):
            await task
        door.close()


class _Uvicorn(uvicorn.Server):
    """Leaves signals to us."""

    def capture_signals(self) -> Any:
        return nullcontext()
