"""Settings of the HTTP API, from the process that it runs in."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from themis.config.keys import CallerLimits


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What the API must know of its surroundings; a reload of the configuration makes new ones."""

    hosts: frozenset[str] = frozenset()
    """Names with ports under which browsers reach the service."""
    tls: bool = False
    grpc_port: int | None = None
    """The port that agents call."""
    session: float = 12 * 3600.0
    """How long a browser stays logged in, in seconds."""
    limits: CallerLimits = field(default=CallerLimits())
    describe: Callable[[], dict[str, Any]] = dict
    """The configuration, for `config show`."""
    reload: Callable[[], Awaitable[dict[str, Any]]] | None = None
    trouble: Callable[[], str] = str
    """What is wrong with the engine as a whole; empty if nothing is."""
    wall: Callable[[], float] = time.time
