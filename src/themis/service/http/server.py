"""The HTTP server: uvicorn in the service's event loop, with limits on connections.

limiter = ConnectionLimiter(limits)
async with open_http(make_app(api), Address("127.0.0.1", 0), limiter, Tls()) as address:
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
    app: Any, address: Address, limiter: ConnectionLimiter, tls: Tls, patience: float = 3.0
) -> AsyncIterator[Address]:
    """Serve an application; yields the address, with the port that was chosen for 0.

    Args:
        app: An ASGI application.
        address: Where to listen.
        limiter: Limits on connections.
        tls: Certificates, if any.
        patience: Seconds that open requests get at the end.

    Raises:
        ConfigError: The address cannot be used.
        UnavailableError: The server did not start.
    """
    options = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(patience),
        http=partial(LimitedProtocol, limiter),  # type: ignore[arg-type]  # it makes one
        # A caller on this machine need not be a proxy, and could claim any address.
        proxy_headers=False,
        # The API has none, and the limiter would not see them.
        ws="none",
        h11_max_incomplete_event_size=64 * 1024,
        **uvicorn_options(tls),
    )
    # Bound here: uvicorn would end the process if it could not bind.
    listening = LimitedSocket(listen("http", address), limiter)
    server = _Uvicorn(options)
    task = asyncio.create_task(server.serve([listening]))
    try:
        while not server.started:
            if task.done():
                await task
                raise UnavailableError(f"http: nothing listens on {address}")
            await asyncio.sleep(0.01)
        yield Address(address.host, int(listening.getsockname()[1]))
    finally:
        server.should_exit = True
        with suppress(SystemExit):
            await task
        listening.close()


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the service."""

    def capture_signals(self) -> Any:
        return nullcontext()
