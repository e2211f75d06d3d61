"""Worlds in which the arbiter is tested: eight GPUs on two machines, watched by every checker."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.support.arbiter_invariants import Watch
from tests.support.scripted_world import ScriptedWorld
from themis.core.arbiter import Settings
from themis.core.model import Machine, Topology
from themis.core.policies import Policy, policy

MakeWorld = Callable[..., ScriptedWorld]


@pytest.fixture
def make_world() -> MakeWorld:
    """A world of two machines with two slots of two GPUs each, unless said otherwise."""

    def make(
        rule: str | Policy = "fifo",
        settings: Settings | None = None,
        *,
        machines: Iterable[Machine] = (
            Machine("m0", "r0", (2, 2)),
            Machine("m1", "r0", (2, 2)),
        ),
        **options: Any,
    ) -> ScriptedWorld:
        chosen = policy(rule) if isinstance(rule, str) else rule
        topology = Topology(tuple(machines))
        return ScriptedWorld(topology, chosen, settings, on_event=[Watch()], **options)

    return make
