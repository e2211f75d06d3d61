"""The local engine against the contract, under each control, and what only it promises."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.requirements import missing
from themis.engines.attempt.layout import EngineLimits, StateFolder
from themis.engines.attempt.record_file import read_page
from themis.engines.base import CouldNotKill, Engine, ProgramStarted
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.supervisor import job_exec, processes
from themis.engines.supervisor.control_probe import choose
from themis.engines.supervisor.job_exec import expose_to_oom
from themis.engines.supervisor.process_control import kill_leftovers
from themis.engines.task import Task
from themis.errors import ConfigError, RefusedError, UnavailableError
from themis.testing.engines import (
    ESCAPED,
    FOREVER,
    READY,
    STUBBORN,
    EngineContract,
    EngineStage,
    KillContract,
    OpenEngine,
    play,
    until,
)

MACHINE = PretendGpus("m0", slots=(2, 2))


def opener(state: Path, owners: Owners, control: str = "", **limits: Any) -> OpenEngine:
    async def open_one() -> Engine:
        return await LocalEngine.open(
            state, MACHINE, owners, control=control, limits=EngineLimits(**limits)
        )

    return open_one


def require_control(name: str) -> None:
    try:
        choose(name)
    except RuntimeError as error:
        pytest.skip(str(error))


class TestBest(EngineContract):
    """With the control that this machine chooses."""

    @pytest.fixture
    def open_engine(self, state: Path, owners: Owners) -> OpenEngine:
        return opener(state, owners)


class TestNamespace(KillContract):
    @pytest.fixture
    def open_engine(self, state: Path, owners: Owners) -> OpenEngine:
        require_control("namespace")
        return opener(state, owners, "namespace")


class TestTree(KillContract):
    @pytest.fixture
    def open_engine(self, state: Path, owners: Owners) -> OpenEngine:
        return opener(state, owners, "tree")


async def on_stage(state: Path, owners: Owners, control: str = "", **limits: Any) -> EngineStage:
    return EngineStage(await opener(state, owners, control, **limits)(), "ann")


def supervisor_of(state: Path) -> tuple[int, int]:
    (file,) = state.glob("tasks/*/status")
    page = read_page(str(file))
    assert page is not None
    return processes.identity(page["supervisor"])


@pytest.mark.parametrize("control", ["cgroup", "namespace", "tree"])
def test_job_of_a_killed_supervisor_is_killed_and_reported_lost(
    state: Path, owners: Owners, control: str
) -> None:
    require_control(control)

    async def scene() -> None:
        stage = await on_stage(state, owners, control)
        await stage.start(READY + STUBBORN + ESCAPED + FOREVER)
        await stage.report()
        assert processes.send(*supervisor_of(state), signal.SIGKILL)
        ending = await stage.ending()
        assert ending.outcome == "lost"
        assert stage.alive() == []
        await stage.clean()

    play(scene())


@pytest.mark.parametrize("control", ["cgroup", "namespace", "tree"])
def test_leftovers_of_a_dead_supervisor_are_killed_at_node_start(
    state: Path, owners: Owners, control: str
) -> None:
    require_control(control)

    async def scene() -> None:
        first = await on_stage(state, owners, control)
        await first.start(READY + STUBBORN + ESCAPED + FOREVER)
        await first.report()
        await first.engine.close()
        pid, started = supervisor_of(state)
        assert processes.send(pid, started, signal.SIGKILL)
        await until(lambda: not processes.is_alive(pid, started))
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        second = await on_stage(state, owners, control)
        (found,) = await second.engine.reattach()
        assert (found.state, found.ended) == ("stopping", None)
        assert (await second.ending()).outcome == "lost"
        assert first.alive() == []
        await second.clean()

    play(scene())


def test_a_damaged_status_hides_no_process(state: Path, owners: Owners) -> None:
    async def scene() -> None:
        first = await on_stage(state, owners)
        await first.start(READY + STUBBORN + ESCAPED + FOREVER)
        await first.report()
        await first.engine.close()
        assert processes.send(*supervisor_of(state), signal.SIGKILL)
        (page,) = state.glob("tasks/*/status")
        page.write_bytes(b"?" * 4096)
        second = await on_stage(state, owners)
        (found,) = await second.engine.reattach()
        assert found.state == "exited"
        assert first.alive() == []
        await second.clean()

    play(scene())


def test_nothing_that_ran_before_the_machine_restarted_is_looked_for(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process ids belong to others by now."""

    async def scene() -> None:
        first = await on_stage(state, owners)
        task = await first.start(READY + FOREVER)
        await first.engine.close()
        with monkeypatch.context() as patch:
            patch.setattr("themis.engines.host.boottime.boot_id", lambda: "another")
            second = await on_stage(state, owners)
            (found,) = await second.engine.reattach()
        assert found.ended is not None
        assert (found.ended.outcome, found.ended.reason) == ("lost", "the machine has restarted")
        assert first.alive()
        await second.clean()
        processes.send(*supervisor_of(state), signal.SIGKILL)
        third = await on_stage(state, owners)
        await third.engine.reattach()
        await until(lambda: kill_leftovers(*leftovers_of(state)))
        await third.engine.forget(task.job, task.token)
        await third.clean()

    play(scene())


def leftovers_of(state: Path) -> tuple[str, tuple[int, int], str]:
    (file,) = state.glob("tasks/*/task.json")
    body = json.loads(file.read_text())
    page = read_page(str(file.parent / "status"))
    assert page is not None
    return body["group"], processes.identity(page["first"]), body["run"]


def test_a_supervisor_that_is_stopped_does_not_keep_its_job_alive(
    state: Path, owners: Owners
) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners, patience=0.2)
        task = await stage.start(READY + STUBBORN + ESCAPED + FOREVER)
        processes.send(*supervisor_of(state), signal.SIGSTOP)
        await stage.engine.kill(task.job, task.token)
        ending = await stage.ending()
        assert ending.outcome == "resumable"
        assert stage.alive() == []
        await stage.clean()

    play(scene())


def test_a_job_that_fills_its_log_neither_blocks_nor_fills_the_disk(
    state: Path, owners: Owners
) -> None:
    limit = 1 << 18

    async def scene() -> None:
        stage = await on_stage(state, owners, log=limit)
        line = "head -c 20000 /dev/zero | tr '\\0' x; echo; "
        lines = f"i=0; while [ $i -lt 200 ]; do i=$((i+1)); {line} done; "
        task = await stage.start("echo first; " + lines + READY + "echo last; tell; " + FOREVER)
        await stage.report()
        (log,) = state.glob("tasks/*/log")
        await until(lambda: log.stat().st_size <= limit)
        head = log.with_name("log.head").read_bytes()
        assert head.startswith(b"first\nxxx")
        # It may be read while the supervisor is just cutting it.
        for _ in range(200):
            if (await stage.engine.tail(task.job)).endswith("last\n"):
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("the end of the log is lost")
        kept = sum(path.stat().st_size for path in log.parent.glob("log*"))
        assert kept <= 2 * limit
        await stage.clean()

    play(scene())


def test_unkillable_leftover_is_reported_and_its_end_reported_too(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process deep in a driver does not die of SIGKILL. Here the killing is what is broken."""
    survivors = iter([False] * 50)
    monkeypatch.setattr(
        "themis.engines.attempt.attempt.kill_leftovers",
        lambda *_: next(survivors, True),
        raising=True,
    )

    async def scene() -> None:
        stage = await on_stage(state, owners, "namespace", patience=0.1)
        task = await stage.start(READY + FOREVER)
        processes.send(*supervisor_of(state), signal.SIGKILL)
        event = await stage.next()
        assert event == CouldNotKill(task.job, task.token, event.reason)  # type: ignore[union-attr]
        assert (await stage.ending()).outcome == "lost"
        await stage.clean()

    play(scene())


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A group of cgroup version 1 whose processes do not die while it is frozen."""
    group = Path("/sys/fs/cgroup/freezer") / f"themis-test-{uuid.uuid4().hex}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no freezer of cgroup version 1 here")
    if not (group / "freezer.state").exists():
        group.rmdir()
        pytest.skip("no freezer of cgroup version 1 here")
    yield group
    (group / "freezer.state").write_text("THAWED")
    group.rmdir()


def test_unkillable_process_is_reported_until_it_dies(
    state: Path, owners: Owners, freezer: Path
) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners, patience=0.2)
        task = await stage.start(READY + FOREVER)
        await stage.report()
        for pid in stage.alive():
            with contextlib.suppress(ProcessLookupError):
                (freezer / "cgroup.procs").write_text(str(pid))
        (freezer / "freezer.state").write_text("FROZEN")
        await stage.engine.kill(task.job, task.token)
        event = await stage.next()
        assert isinstance(event, CouldNotKill)
        assert stage.alive()
        with pytest.raises(RefusedError, match="GPU 0 is in use"):
            await stage.engine.start(stage.task("exit 0", job="job-2", token=8))
        (freezer / "freezer.state").write_text("THAWED")
        assert (await stage.ending()).outcome == "resumable"
        assert stage.alive() == []
        await stage.clean()

    play(scene())


def test_a_start_that_no_supervisor_took_up_is_called_off(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node died between writing the task and starting its supervisor."""
    sleeper = ["/bin/sh", "-c", "exec sleep 600"]

    def spawn_another(*_: str, **__: str) -> int:
        return os.posix_spawn(sleeper[0], sleeper, {})

    async def scene() -> None:
        first = await on_stage(state, owners)
        with monkeypatch.context() as patch:
            patch.setattr("themis.engines.local.engine.spawn", spawn_another)
            await first.engine.start(first.task("exit 0"))
        pid = first.engine._starts.find("job-1", 7).pid  # type: ignore[attr-defined]
        await first.engine.close()
        second = await on_stage(state, owners)
        (found,) = await second.engine.reattach()
        assert found.ended is not None
        assert found.ended.outcome == "never-ran"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        # Should the supervisor come up after all, it finds nothing to do.
        (file,) = state.glob("tasks/*/task.json")
        process = await asyncio.create_subprocess_exec(
            *supervisor_command(file), stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        assert process.returncode == 78
        assert b"its node has given it up" in said
        await second.clean()

    play(scene())


HOLD = """
import fcntl, os, sys, time
lock = os.open(sys.argv[1] + "/lock", os.O_RDWR | os.O_CREAT)
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def test_supervisor_that_hangs_at_its_start_does_not_hang_the_node(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.engines.attempt.attempt._NAME_WAIT", 0.1)
    folder = StateFolder(state, EngineLimits())
    folder.prepare()
    task = Task("job-1", "ann", 7, (0,), ("true",), boottime.now() + 600, control="tree")
    attempt = folder.create(task, owners.account("ann"))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(attempt.folder)], stdout=subprocess.PIPE
    ) as hung:
        assert hung.stdout is not None
        assert hung.stdout.readline() == b"held\n"

        async def scene() -> None:
            stage = await on_stage(state, owners, "tree")
            (found,) = await stage.engine.reattach()
            assert found.ended is not None
            assert found.ended.outcome == "never-ran"
            await stage.clean()

        play(scene())
        assert hung.wait() == -signal.SIGKILL


def test_a_state_folder_that_owners_cannot_enter_is_the_nodes_fault(
    state: Path, owners: Owners
) -> None:
    if os.geteuid() != 0:
        missing("root")

    async def scene() -> None:
        stage = await on_stage(state, owners, "tree")
        state.chmod(0o700)
        await stage.engine.start(stage.task("exit 0"))
        ending = await stage.ending()
        assert (ending.outcome, ending.counts_as) == ("never-ran", 75)
        assert "metrics file: [Errno 13] Permission denied" in ending.reason
        await stage.clean()

    play(scene())


def supervisor_command(file: Path) -> list[str]:
    from themis.engines.supervisor.spawn import command  # noqa: PLC0415 - only here

    return command("themis.engines.supervisor.supervisor", str(file))


def test_a_supervisor_that_cannot_start_says_why(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.engines.supervisor.spawn._PACKAGES", "/nowhere")

    async def scene() -> None:
        stage = await on_stage(state, owners, "tree")
        await stage.engine.start(stage.task("exit 0"))
        ending = await stage.ending()
        assert ending.outcome == "lost"
        assert "No module named 'themis'" in ending.reason
        await stage.clean()

    play(scene())


def test_jobs_and_gpus_that_are_not_there_are_refused(state: Path, owners: Owners) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners, "tree")
        with pytest.raises(RefusedError, match="no GPU 4"):
            await stage.engine.start(stage.task("exit 0", gpus=(4,)))
        with pytest.raises(RefusedError, match="does not run here"):
            await stage.engine.renew("job-1", 7, boottime.now() + 1)
        await stage.clean()

    play(scene())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"argv": ()}, id="no program"),
        pytest.param({"argv": ("sh", "a\0b")}, id="a NUL in an argument"),
        pytest.param({"env": {"A=B": "1"}}, id="a variable that is none"),
        pytest.param({"env": {"THEMIS_GPUS": "7"}}, id="a variable of ours"),
        pytest.param({"env": {"CUDA_VISIBLE_DEVICES": "7"}}, id="somebody else's GPU"),
        pytest.param({"env": {"A": "x" * 200_000}}, id="too much of it"),
        pytest.param({"workdir": "here"}, id="a relative folder"),
        pytest.param({"gpus": (1, 1)}, id="a GPU twice"),
        pytest.param({"end": float("nan")}, id="no end"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(
    state: Path, owners: Owners, changes: dict[str, Any]
) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners, "tree")
        with pytest.raises(ConfigError):
            await stage.engine.start(stage.task("exit 0", **changes))
        await stage.clean()

    play(scene())


def test_a_full_disk_at_the_start_is_no_fault_of_the_job(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def scene() -> None:
        stage = await on_stage(state, owners, "tree")
        with monkeypatch.context() as patch:
            patch.setattr("themis.engines.attempt.layout.create_page", full)
            with pytest.raises(UnavailableError, match="No space left"):
                await stage.engine.start(stage.task("exit 0"))
        await stage.start("exit 0")  # and nothing stands in the way of another try
        await stage.ending()
        await stage.clean()

    play(scene())


@pytest.fixture
def small_disk(state: Path) -> Iterator[Path]:
    state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(state)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    yield state
    # Lazily: a job of a failed test may still have its log there.
    subprocess.run(["umount", "-l", str(state)], check=True)


def test_full_disk_does_not_stop_renewals_and_end_reports(small_disk: Path, owners: Owners) -> None:
    async def scene() -> None:
        stage = await on_stage(small_disk, owners)
        task = await stage.start("exec sleep 600", grace=0.1)
        with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(OSError, match="No space left"):
            (small_disk / "more").write_bytes(b"x")
        end = boottime.now() + 1.0
        await stage.engine.renew(task.job, task.token, end)
        await stage.engine.renew(task.job, task.token, boottime.now() + 600)
        with pytest.raises(UnavailableError, match="No space left"):
            await stage.engine.start(stage.task("exit 0", job="job-2", gpus=(1,)))
        await until(lambda: boottime.now() > end + 0.3)
        assert stage.alive()
        await stage.engine.kill(task.job, task.token)
        assert (await stage.ending()).outcome == "resumable"
        await stage.clean()

    play(scene())


def test_without_notices_of_the_kernel_it_looks_by_itself(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("themis.engines.supervisor.libc.inotify", none_left)

    async def scene() -> None:
        stage = await on_stage(state, owners, "tree")
        await stage.engine.start(stage.task(READY + FOREVER))
        assert isinstance(await stage.next(), ProgramStarted)
        await stage.engine.kill("job-1", 7)
        await stage.ending()
        await stage.clean()

    play(scene())


def test_old_logs_make_room_for_new_ones(state: Path, owners: Owners) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners, "tree", kept_logs=2)
        for number in range(4):
            job = f"job {number}"
            await stage.start(f"echo {number}", job=job, token=number)
            await stage.ending()
            await stage.engine.forget(job, number)
        assert [await stage.engine.tail(f"job {n}") for n in range(4)] == ["", "", "2\n", "3\n"]
        assert list(state.glob("tasks/*")) == []
        assert list(state.glob("metrics/*")) == []
        await stage.clean()

    play(scene())


def test_failed_start_ends_only_when_its_process_is_dead(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(pid: int) -> int:
        raise OSError(24, "Too many open files")

    async def scene() -> None:
        async with KillContract().stage(opener(state, owners)) as stage:
            task = stage.task(FOREVER)
            with monkeypatch.context() as patch:
                patch.setattr("os.pidfd_open", none_left)
                await stage.engine.start(task)
            (file,) = state.glob("tasks/*/task.json")
            run = json.loads(file.read_text())["run"]
            with pytest.raises(RefusedError, match="in use by job-1"):
                await stage.engine.start(task.replace(job="job-2"))
            ending = await stage.ending()
            assert (ending.job, ending.outcome) == (task.job, "resumable")
            assert "Too many open files" in ending.reason
            assert not processes.marked(f"THEMIS_RUN={run}")

    play(scene())


def test_job_does_not_inherit_its_nodes_oom_protection(state: Path, owners: Owners) -> None:
    own = Path("/proc/self/oom_score_adj")
    before = own.read_text()
    try:
        own.write_text("-7")
    except OSError:
        pytest.skip("this process may not lower its OOM score: no CAP_SYS_RESOURCE")

    async def scene() -> None:
        async with KillContract().stage(opener(state, owners)) as stage:
            task = await stage.start("cat /proc/self/oom_score_adj")
            await stage.ending()
            assert await stage.engine.tail(task.job) == "0\n"

    try:
        play(scene())
    finally:
        own.write_text(before)


@pytest.mark.parametrize(("before", "after"), [("-900\n", "0"), ("300\n", "300"), ("0\n", "0")])
def test_only_protection_is_taken_from_a_job(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "oom_score_adj"
    file.write_text(before)
    expose_to_oom(str(file))
    # The kernel's file takes each write as a whole; an ordinary one keeps what is behind it.
    assert file.read_text().startswith(after)
    expose_to_oom(str(tmp_path / "nothing"))


def test_protection_is_taken_from_every_job_before_it_is_its_owners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where nobody may protect anything, as in most containers, the test above is skipped."""

    def seen() -> None:
        raise RuntimeError(f"taken as uid {os.geteuid()}")

    monkeypatch.setattr(job_exec, "expose_to_oom", seen)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        task = Task("job-1", "ann", 7, (), ("/bin/true",), 0.0, account=(65534, 65534))
        job_exec.become_job(task, os.open("/dev/null", os.O_WRONLY), write, None)
        os._exit(99)  # it does not return
    os.close(write)
    told = os.read(read, 1000).decode()
    os.close(read)
    os.waitpid(pid, 0)
    assert f"taken as uid {os.geteuid()}" in told
