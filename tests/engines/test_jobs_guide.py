"""The program in the guide does what the guide says a program has to do."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import themis
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.testing.engines import EngineStage, play

ROOT = Path(__file__).parents[2]
PACKAGES = Path(themis.__file__).parents[1]


def example() -> str:
    guide = (ROOT / "docs" / "guides" / "jobs.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    return found[1]


def interpreter(owners: Owners) -> str:
    """A Python that the jobs' user may run."""
    account = owners.account("ann")
    user = account.uid if account else None
    for program in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        line = [program, "-c", f"import sys; sys.path.append({str(PACKAGES)!r}); import themis"]
        try:
            if (
                shutil.which(program)
                and subprocess.run(line, user=user, check=False).returncode == 0
            ):
                return program
        except PermissionError:
            continue
    pytest.skip("no Python here that another user may run")


def test_guide_program_saves_when_asked_and_resumes(state: Path, owners: Owners) -> None:
    program = interpreter(owners)

    async def scene() -> None:
        engine = await LocalEngine.open(state, PretendGpus("m0"), owners)
        stage = EngineStage(engine, "ann")
        # Slowed down, or it would be done before anybody can ask.
        slow = example().replace("# train here", "; __import__('time').sleep(0.005)")
        env = {"PYTHONPATH": str(PACKAGES), **dict([stage.mark.split("=")])}
        task = {"argv": (program, "-c", slow), "env": env}
        await stage.start("", **task, max_iterations=10**6)
        await stage.report()
        await engine.checkpoint("job-1", 7)
        ending = await stage.ending()
        assert (ending.outcome, ending.code) == ("resumable", 75)
        saved = state / "checkpoints" / "ann" / "job-1" / "state.json"
        reached = json.loads(saved.read_text())[0]
        await stage.start("", **task, max_iterations=reached + 3)
        ending = await stage.ending()
        assert (ending.outcome, ending.code) == ("finished", 0)
        samples = await engine.measure("job-1")
        assert [sample.iteration - reached for sample in samples] == [1, 2, 3]
        assert all(sample.loss is not None for sample in samples)
        last = samples[-1]
        await stage.start("", **task, max_iterations=reached + 3)
        await stage.ending()
        (again,) = await engine.measure("job-1")
        assert (again.iteration, again.loss) == (last.iteration, last.loss)
        assert again.time is not None, "it says so itself"
        await stage.clean()

    play(scene())
