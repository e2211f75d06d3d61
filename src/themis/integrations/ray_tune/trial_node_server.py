"""The script's end of the connections of trial nodes: which trials have GPUs, and must leave them.

    server = TrialNodeServer("127.0.0.1")
    server.node("07")              # TrialNode(..., leaving_since=None), or None if it has none
    server.report("07", 12, {"loss": 0.3})
    server.let_go("07")            # the trial is saved and has left

Each connection has a thread of its own; methods may be called from any thread.
"""

import contextlib
import hmac
import json
import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from themis.integrations.ray_tune.trial_node import enable_keepalive

_LOG = logging.getLogger(__name__)
_MOST_LINE = 4096
_HELLO = 10.0
"""Seconds that a caller has to send its first line."""


@dataclass(frozen=True, slots=True)
class TrialNode:
    """The Ray nodes of a trial, one on each machine of its lease, seen as one."""

    key: int
    """Different for each start."""
    world: int
    """How many machines it is on."""
    gpus: int
    """All its GPUs."""
    widest: int
    """The most GPUs on one machine."""
    grace: float
    """Seconds that a trial has to save when its lease ends."""
    leaving_since: float | None = None


@dataclass(slots=True)
class _Caller:
    connection: socket.socket
    number: int
    run: int
    rank: int
    world: int
    gpus: int
    grace: float
    leaving_since: float | None = None


class TrialNodeServer:
    """The trial nodes of one script."""

    def __init__(self, host: str, port: int = 0) -> None:
        """Listen.

        Args:
            host: The address of this machine, as nodes reach it.
            port: The port; 0 for any that is free.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, port), family=family, backlog=128)
        self.secret = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._callers: dict[str, dict[int, _Caller]] = {}
        """Connections by trial and rank."""
        self._count = 0
        self._closed = self._dismissed = False
        threading.Thread(target=self._accept, name="nodes", daemon=True).start()

    @property
    def address(self) -> str:
        """HOST:PORT for nodes."""
        host, port = self._server.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def node(self, trial: str) -> TrialNode | None:
        """The node of a trial, if all its machines have called."""
        with self._lock:
            callers = self._callers.get(trial, {})
            if not callers or len(callers) < max(each.world for each in callers.values()):
                return None
            first = min(callers.values(), key=lambda each: each.rank)
            told = [t for each in callers.values() if (t := each.leaving_since) is not None]
            return TrialNode(
                first.number,
                len(callers),
                sum(each.gpus for each in callers.values()),
                max(each.gpus for each in callers.values()),
                min(each.grace for each in callers.values()),
                min(told, default=None),
            )

    def trials(self) -> tuple[str, ...]:
        """Trials with a connection."""
        with self._lock:
            return tuple(self._callers)

    def report(self, trial: str, iteration: float, values: Mapping[str, float]) -> None:
        """Send a result, for the node to report as the job's."""
        self._say(trial, {"it": iteration, "values": dict(values)}, first_only=True)

    def let_go(self, trial: str) -> None:
        """Tell a node that its trial has left."""
        self._say(trial, {"go": True})

    def dismiss(self) -> None:
        """Let nodes leave when their lease ends: no trial is left."""
        self._dismissed = True
        for trial in self.trials():
            node = self.node(trial)
            if node is not None and node.leaving_since is not None:
                self.let_go(trial)

    def close(self) -> None:
        """Close all connections: all nodes leave."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            callers = [each for ranks in self._callers.values() for each in ranks.values()]
        for each in callers:
            with contextlib.suppress(OSError):
                each.connection.shutdown(socket.SHUT_RDWR)

    def _say(self, trial: str, words: dict[str, Any], *, first_only: bool = False) -> None:
        with self._lock:
            callers = list(self._callers.get(trial, {}).values())
        for each in callers:
            if each.rank == 0 or not first_only:
                with contextlib.suppress(OSError):
                    each.connection.sendall(json.dumps(words).encode() + b"\n")

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        trial, caller = "", None
        with (
            connection,
            contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError),
        ):
            connection.settimeout(_HELLO)
            enable_keepalive(connection)
            with connection.makefile("rb") as lines:
                trial, caller = self._welcome(connection, lines.readline(_MOST_LINE))
                connection.settimeout(None)
                while line := lines.readline(_MOST_LINE):
                    if json.loads(line).get("leave") and caller.leaving_since is None:
                        caller.leaving_since = time.monotonic()
                        if self._dismissed:
                            self.let_go(trial)
        if caller is not None:
            with self._lock:
                ranks = self._callers.get(trial, {})
                if ranks.get(caller.rank) is caller:
                    del ranks[caller.rank]
                if not ranks:
                    self._callers.pop(trial, None)

    def _welcome(self, connection: socket.socket, line: bytes) -> tuple[str, _Caller]:
        said = json.loads(line)
        if not hmac.compare_digest(str(said["secret"]).encode(), self.secret.encode()):
            raise ValueError("wrong secret")
        grace = float(said["grace"])
        with self._lock:
            self._count += 1
            caller = _Caller(
                connection,
                self._count,
                int(said["run"]),
                int(said["rank"]),
                int(said["world"]),
                int(said["gpus"]),
                grace if math.isfinite(grace) else 0.0,
            )
            trial = str(said["trial"])
            callers = self._callers.get(trial, {})
            if any(each.run > caller.run for each in callers.values()):
                raise ValueError("an earlier run")
            # An earlier run's machine may have died unseen, or the others of that run have.
            for each in [each for each in callers.values() if each.run < caller.run]:
                del callers[each.rank]
                with contextlib.suppress(OSError):
                    each.connection.shutdown(socket.SHUT_RDWR)
            self._callers[trial] = {**callers, caller.rank: caller}
        _LOG.debug("trial %s has a node: %s GPUs, rank %s", trial, caller.gpus, caller.rank)
        return trial, caller
