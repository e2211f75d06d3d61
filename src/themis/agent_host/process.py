"""An agent host as a process: it ends on a signal, or with the service that started it."""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

from themis.agent_host.host import AgentHost
from themis.config.addresses import check_address
from themis.ops.log_format import start_logging
from themis.rpc.client import Connection, Credentials, HostClient


async def run_host(server: str, token_file: Path, log_level: str, log_format: str = "text") -> None:
    """Run the agents of the token's owner until a signal, or until standard input is closed.

    Raises:
        ConfigError: The address is invalid, or a file cannot be read.
    """
    start_logging(log_level, log_format)
    address = check_address(server, "node.server")
    connection = Connection(address, Credentials(token_file=token_file))
    connection.check()
    host = asyncio.create_task(AgentHost(lambda: HostClient(connection), random.Random()).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, host.cancel)

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin)
            host.cancel()

    loop.add_reader(sys.stdin, read)
    try:
        await host
    except asyncio.CancelledError:
        pass
    finally:
        await connection.close()
