"""A node without root: one owner, its own user, and still nothing outlives its lease."""

import os
from pathlib import Path

from tests.support.unprivileged import NOBODY, interpreter, run_as_nobody

SCENE = """
import asyncio, sys
from pathlib import Path
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.host.accounts import Owners
from themis.errors import RefusedError
from themis.testing.engines import ESCAPED, FOREVER, READY, STUBBORN, EngineStage, play, until

async def scene():
    owners = Owners.single("ann")
    engine = await LocalEngine.open(Path(sys.argv[1]), PretendGpus("m0"), owners)
    stage = EngineStage(engine, "ann")
    task = await stage.start(READY + STUBBORN + ESCAPED + "id -u; echo pid $$; " + FOREVER)
    await stage.report()
    await until(lambda: len(stage.alive()) >= 2)
    await engine.kill(task.job, task.token)
    await stage.ending()
    print(engine.capabilities.control, len(stage.alive()), *(await engine.tail("job-1")).split())
    try:
        await engine.start(stage.task("exit 0", job="bobs", owner="bob", token=8))
    except RefusedError as error:
        print(error)
    await stage.clean()

play(scene())
"""


def test_node_without_root_kills_whole_jobs_and_serves_one_owner(state: Path) -> None:
    program = interpreter()
    state.mkdir()
    if os.geteuid() == 0:
        os.chown(state, NOBODY, NOBODY)
    run = run_as_nobody(program, SCENE, str(state))
    assert run.returncode == 0, run.stderr[-2000:]
    first, second = run.stdout.splitlines()
    control, alive, uid, *_, pid = first.split()
    assert (alive, uid) == ("0", str(NOBODY if os.geteuid() == 0 else os.geteuid()))
    assert second == "bob: this node starts none of its jobs: it serves ann only"
    # In a namespace of its own the job is number two, after the one that minds it.
    assert control in {"cgroup", "namespace", "tree"}
    assert (pid == "2") == (control == "namespace")
