"""How long a job takes to change hands, with real processes on this machine.

    measure_handovers(20)        # HandoverTimes(startups=(0.31, ...), checkpoints=(0.05, ...))

A node's engine starts a small program under a lease, waits for the first iteration that it reports,
asks it to save and exit, and waits until all its processes are gone; it repeats this, as an app
that moves does. This is the time of Themis itself: a shell starts at once, and its checkpoint is a
number. Container images, frameworks and models add their own.
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from themis.engines.base import Engine, ProgramExited
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.task import Task
from themis.errors import InvariantError

_TRAIN = """
cd "$THEMIS_CHECKPOINT_DIR"
n=$(cat n 2>/dev/null || echo 0)
trap 'echo "$n" > .n && mv .n n; exit 75' TERM
while :; do
    n=$((n + 1))
    echo "{\\"it\\": $n, \\"loss\\": 1}" >> "$THEMIS_METRICS"
    sleep 0.1 & wait $!
done
"""
_LEASE = 3600.0
_LOOK = 0.005
_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class HandoverTimes:
    """Seconds of each change of hands."""

    startups: tuple[float, ...]
    """From the order to start to the first iteration that the job reports."""
    checkpoints: tuple[float, ...]
    """From the request to save until all its processes are gone."""
    control: str
    """How the engine controls processes on this machine."""


def measure_handovers(times: int) -> HandoverTimes:
    """Let a job change hands this many times.

    Raises:
        ThemisError: Jobs cannot be started here.
    """
    # Below a folder that others may pass through: as root, jobs run as somebody else.
    with tempfile.TemporaryDirectory(prefix="themis-") as place:
        Path(place).chmod(0o711)
        return asyncio.run(_measure(Path(place) / "state", times))


async def _measure(state: Path, times: int) -> HandoverTimes:
    machine = PretendGpus("m0", slots=(1,))
    engine = await LocalEngine.open(state, machine, Owners.trusting())
    try:
        await engine.reattach()
        pairs = [await _change(engine, token) for token in range(1, times + 1)]
        control = engine.capabilities.control
    finally:
        await engine.close()
    startups, checkpoints = zip(*pairs, strict=True)
    return HandoverTimes(startups, checkpoints, control)


async def _change(engine: Engine, token: int) -> tuple[float, float]:
    job = "handed"
    began = boottime.now()
    argv = ("/bin/sh", "-c", _TRAIN)
    await engine.start(Task(job, "owner", token, (0,), argv, began + _LEASE))
    async with asyncio.timeout(_PATIENCE):
        while not await engine.measure(job):
            await asyncio.sleep(_LOOK)
        runs = boottime.now()
        await engine.checkpoint(job, token)
        ended = await _end(engine)
    gone = boottime.now()
    await engine.forget(job, token)
    if ended.outcome != "resumable":
        raise InvariantError(f"the job that changes hands {ended.outcome}: {ended.reason}")
    return runs - began, gone - runs


async def _end(engine: Engine) -> ProgramExited:
    async for event in engine.watch():
        if isinstance(event, ProgramExited):
            return event
    raise InvariantError("the engine was closed while its job ran")
