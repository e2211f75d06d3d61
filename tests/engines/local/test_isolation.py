"""One owner's job against another owner, the node and its secrets. Needs root, as nodes have it."""

import os
import sqlite3
from pathlib import Path

import pytest

from tests.support.requirements import missing
from themis.engines.attempt.record_file import read_page
from themis.engines.base import Engine
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.supervisor import processes
from themis.engines.supervisor.control_probe import choose
from themis.testing.engines import FOREVER, READY, EngineStage, play, until

ANN, BOB = 64001, 64002
TRY = 'try() { if "$@" > /dev/null 2>&1; then echo "COULD $*"; else echo "could not $*"; fi; }; '
SECRET = "not-for-ann"


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        missing("root")


async def open_engine(state: Path, control: str) -> Engine:
    try:
        choose(control)
    except RuntimeError as error:
        pytest.skip(str(error))
    owners = Owners.mapped({"ann": f"{ANN}:{ANN}", "bob": f"{BOB}:{BOB}"})
    return await LocalEngine.open(state, PretendGpus("m0", slots=(4,)), owners, control=control)


def secrets(folder: Path) -> list[Path]:
    """What lies around on a node: its token, and a store."""
    folder.mkdir(0o755)
    token = folder / "token"
    token.touch(0o600)
    token.write_text("themis_admin_0123456789")
    store = folder / "store.sqlite"
    store.touch(0o600)
    connection = sqlite3.connect(store)
    connection.execute("create table leases (gpu)")
    connection.close()
    return [token, store]


@pytest.mark.parametrize("control", ["cgroup", "namespace", "tree"])
def test_a_job_reaches_nothing_of_another_owner_or_of_the_node(state: Path, control: str) -> None:
    async def scene() -> None:
        engine = await open_engine(state, control)
        bob = EngineStage(engine, "bob")
        await bob.start(
            READY
            + f"echo {SECRET}; cd $THEMIS_CHECKPOINT_DIR; echo {SECRET} > weights; "
            + FOREVER,
            job="bobs",
            gpus=(0,),
            env={"BOBS_KEY": SECRET, **dict([bob.mark.split("=")])},
        )
        await bob.report("bobs")
        (folder,) = state.glob("tasks/bobs-*")
        (metrics,) = state.glob("metrics/*/metrics.jsonl")
        page = read_page(str(folder / "status"))
        assert page is not None
        pids = [processes.identity(page[key])[0] for key in ("supervisor", "first")]
        files = [
            *secrets(state / "secrets"),
            folder / "log",
            folder / "task.json",
            folder / "lease",
            state / "checkpoints" / "bob" / "bobs" / "weights",
            metrics,
            Path(f"/proc/{bob.alive()[0]}/environ"),
            Path(f"/proc/{os.getpid()}/environ"),
        ]
        pids += [*bob.alive(), os.getpid()]
        attempts = [
            *(f"cat {path}" for path in files),
            *(f"sh -c 'echo x >> {path}'" for path in files),
            *(f"kill -0 {pid}" for pid in pids),
            *(f"ls {path}" for path in (folder, metrics.parent, state / "checkpoints" / "bob")),
            f"sh -c 'echo 0 > {choose().base or '/nowhere'}/cgroup.procs'",
            f"touch {state}/gpus/0",
        ]
        script = TRY + "; ".join(f"try {attempt}" for attempt in attempts)
        # It is no wonder that nothing works if nothing ever does.
        script += "; try touch $THEMIS_CHECKPOINT_DIR/mine; try cat $THEMIS_METRICS; try kill -0 $$"
        ann = EngineStage(engine, "ann")
        ann._events = bob._events
        await ann.start(script, job="anns", gpus=(1,), token=8)
        await ann.ending()
        lines = (await engine.tail("anns", 1 << 16)).splitlines()
        could = [line for line in lines if line.startswith("COULD")]
        assert len(lines) == len(attempts) + 3
        assert [line.split()[1] for line in could] == ["touch", "cat", "kill"], could
        assert bob.alive()
        await bob.clean()

    play(scene())


def test_a_job_has_its_owners_rights_and_cannot_gain_others(state: Path) -> None:
    async def scene() -> None:
        engine = await open_engine(state, "")
        stage = EngineStage(engine, "ann")
        await stage.start(
            "id -u; id -g; id -G; umask; grep NoNewPrivs /proc/self/status | cut -f2; "
            "grep CapEff /proc/self/status | cut -f2; ls /proc/self/fd | tr '\\n' ' '"
        )
        await stage.ending()
        lines = (await engine.tail("job-1")).splitlines()
        assert lines[:3] == [str(ANN)] * 3
        assert lines[3] in {"077", "0077"}
        assert lines[4:6] == ["1", "0" * 16]
        # Its three streams, and the folder that `ls` looks at.
        assert lines[6].split() == ["0", "1", "2", "3"]
        await stage.clean()

    play(scene())


def test_metrics_link_to_a_foreign_file_reveals_nothing(state: Path) -> None:
    async def scene() -> None:
        engine = await open_engine(state, "")
        target = state / "others.jsonl"
        target.write_text('{"it": 1000}\n')
        target.chmod(0o644)
        stage = EngineStage(engine, "ann")
        swap = f"rm $THEMIS_METRICS; ln -s {target} $THEMIS_METRICS; "
        hard = f"ln {target} $(dirname $THEMIS_METRICS)/hard 2> /dev/null; "
        await stage.start(READY + "tell; " + swap + hard + "echo swapped; exec sleep 600")
        while "swapped" not in await engine.tail("job-1"):
            await until(lambda: True)
        assert await engine.measure("job-1") == ()
        await stage.engine.kill("job-1", 7)
        await stage.ending()
        await stage.engine.forget("job-1", 7)
        assert target.exists()
        await stage.clean()

    play(scene())


def test_files_of_an_owner_are_closed_to_all_others(state: Path) -> None:
    async def scene() -> None:
        engine = await open_engine(state, "")
        stage = EngineStage(engine, "ann")
        await stage.start("touch $THEMIS_CHECKPOINT_DIR/weights")
        await stage.ending()
        modes = {
            str(path.relative_to(state)).split("/")[0]: (path.stat().st_uid, path.stat().st_mode)
            for path in (
                *state.glob("checkpoints/ann"),
                *state.glob("metrics/*"),
                *state.glob("tasks"),
                *state.glob("gpus"),
                *state.glob("ended"),
            )
        }
        assert {name: (uid, mode & 0o777) for name, (uid, mode) in modes.items()} == {
            "checkpoints": (ANN, 0o700),
            "metrics": (ANN, 0o700),
            "tasks": (0, 0o700),
            "gpus": (0, 0o700),
            "ended": (0, 0o700),
        }
        weights = state / "checkpoints" / "ann" / "job-1" / "weights"
        assert (weights.stat().st_uid, weights.stat().st_mode & 0o777) == (ANN, 0o600)
        assert weights.parent.stat().st_mode & 0o777 == 0o700
        (task,) = state.glob("tasks/*/task.json")
        assert task.stat().st_mode & 0o777 == 0o600
        await stage.clean()

    play(scene())
