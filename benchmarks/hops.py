"""How many modules a submission, a bid and a heartbeat pass through in the live system.

A service with its HTTP and gRPC servers, a node with the local engine and an agent host run in this
process; every module of Themis that is entered between two named events counts once. `--names`
lists them. Prints one JSON line and exits 1 when a path is over its bar.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

import themis
from tests.support.grpc_service import World, until
from themis.agent_host.host import AgentHost
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.arbiter import Arbiter
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.node.core.commands import Send
from themis.node.core.events import OrdersCame
from themis.node.core.node_core import NodeCore
from themis.node.disk import NodeDisk
from themis.node.node import Node
from themis.rpc.client import HostClient
from themis.security.tokens import Role, create_token
from themis.service.http.app import make_app
from themis.service.http.context import ApiContext
from themis.service.http.settings import ApiSettings

BARS = {"submission": 35, "bid": 20, "heartbeat": 15}
SOURCE = str(Path(themis.__file__).parent)
HOST = "127.0.0.1:7421"
APP = {
    "name": "sweep",
    "command": ["sleep", "60"],
    "workdir": "/",
    "iteration_seconds": 1.0,
    "stop": {"method": "none", "max_iterations": 60},
}


class Paths:
    """Modules entered between the beginning and the end of each path."""

    def __init__(self) -> None:
        self.done: dict[str, set[str]] = {}
        self._open: dict[str, set[str]] = {}

    def begin(self, path: str) -> None:
        """Count from here on, unless it is counted already."""
        if path not in self.done:
            self._open[path] = set()

    def again(self, path: str) -> None:
        """Count it anew when it next begins."""
        self.done.pop(path, None)

    def end(self, path: str) -> None:
        """The path is at its end."""
        if path in self._open:
            self.done[path] = self._open.pop(path)

    def entered(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` calls."""
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCE) and frame.f_code.co_name != "<module>":
            module = file[len(SOURCE) + 1 : -3].removesuffix("/__init__")
            for entered in self._open.values():
                entered.add(module)


def watch(paths: Paths) -> None:
    """Begin and end paths at the events that name them."""
    handle_arbiter: Callable[..., Any] = Arbiter.handle
    handle_node: Callable[..., Any] = NodeCore.handle
    start_job: Callable[..., Any] = LocalEngine.start

    def arbiter(self: Arbiter, event: Any) -> Any:
        if isinstance(event, ev.BidReceived):
            paths.end("bid")
        commands = handle_arbiter(self, event)
        if any(isinstance(command, cmd.Ask) for command in commands):
            paths.begin("bid")
        return commands

    def node(self: NodeCore, event: Any) -> Any:
        if isinstance(event, OrdersCame):
            paths.end("heartbeat")
        commands = handle_node(self, event)
        if any(isinstance(command, Send) for command in commands):
            paths.begin("heartbeat")
        return commands

    async def start(self: LocalEngine, task: Any) -> Any:
        paths.end("submission")
        return await start_job(self, task)

    Arbiter.handle, NodeCore.handle, LocalEngine.start = arbiter, node, start  # type: ignore[method-assign] # watched


async def run(folder: Path, paths: Paths) -> None:
    """Submit one app and follow it to its first process; then count an idle heartbeat."""
    world = World(folder, rule="themis")
    await world.start()
    owners = Owners.trusting("nobody") if os.geteuid() == 0 else Owners.single("ann")
    disk = NodeDisk.open(folder / "node", "m0")
    engine = await LocalEngine.open(disk.engine, PretendGpus("m0", (2,)), owners)
    (found,) = await engine.discover()
    node = Node(found.machine, engine, world.node("m0"), disk)
    host = AgentHost(lambda: HostClient(world.connection(Role.TENANT, "ann")), random.Random(1))
    tasks = [asyncio.create_task(node.run()), asyncio.create_task(host.run())]
    api = ApiContext(world.service, world.token_store, ApiSettings(frozenset({HOST})))
    token = create_token(world.token_store, Role.TENANT, "ann", now=0.0).token.reveal()
    transport = httpx.ASGITransport(make_app(api))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        await until(lambda: world.service.steward.arbiter.world.topology.machines)
        await asyncio.sleep(5 * world.settings.heartbeat)  # until connections are open
        paths.again("heartbeat")
        await until(lambda: "heartbeat" in paths.done)
        paths.begin("submission")
        headers = {"authorization": f"Bearer {token}"}
        body = {"app": APP, "key": "1", "seed": 1, "dry_run": False}
        answer = await client.post("/v1/apps", json=body, headers=headers)
        answer.raise_for_status()
        await until(lambda: {"submission", "bid"} <= set(paths.done))
        (await client.post("/v1/apps/sweep/cancel", headers=headers)).raise_for_status()
        await until(lambda: not node.live)
    node.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await engine.close()
    disk.close()
    await world.stop()


def main() -> int:
    """Measure, print, and judge by the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", action="store_true", help="list the modules of each path")
    arguments = parser.parse_args()
    paths = Paths()
    watch(paths)
    threading.setprofile(paths.entered)
    sys.setprofile(paths.entered)
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            asyncio.run(run(Path(folder), paths))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    counts = {path: len(paths.done[path]) for path in BARS}
    within = all(counts[path] <= BARS[path] for path in BARS)
    print(json.dumps({"benchmark": "hops", **counts, "bars": BARS, "within_bars": within}))
    if arguments.names:
        for path in BARS:
            print(path, *sorted(paths.done[path]), sep="\n  ")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
