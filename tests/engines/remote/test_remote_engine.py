"""Engines of clusters against the contract, with a scheduler that is pretended."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fake_scheduler import QUICK, PretendCluster, PretendLauncher, PretendScheduler
from themis.engines.base import Engine, ProgramExited, ProgramStarted
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.remote.engine import RemoteEngine
from themis.engines.remote.launcher import LaunchStage
from themis.engines.task import Task
from themis.testing.engines import (
    FOREVER,
    LONG,
    READY,
    EngineContract,
    EngineStage,
    KillContract,
    OpenEngine,
    play,
    until,
)

AHEAD = 1e6
"""Seconds by which the clock of the bridge's machine is ahead of the jobs' one."""


@pytest.fixture
def scheduler() -> Iterator[PretendScheduler]:
    scheduler = PretendScheduler({"m0": 4})
    yield scheduler
    scheduler.end()


class TestRemote(EngineContract):
    @pytest.fixture
    def open_engine(self, state: Path, owners: Owners, scheduler: PretendScheduler) -> OpenEngine:
        async def open_one() -> Engine:
            return await PretendCluster(scheduler, state).open("m0", owners)

        return open_one


async def on_stage(state: Path, owners: Owners, scheduler: PretendScheduler) -> EngineStage:
    return EngineStage(await PretendCluster(scheduler, state).open("m0", owners), "ann")


def test_gpus_are_named_as_the_scheduler_chose(
    state: Path, owners: Owners, scheduler: PretendScheduler
) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners, scheduler)
        await stage.engine.start(stage.task(READY + FOREVER, gpus=(0, 1)))
        event = await stage.next()
        assert event == ProgramStarted("job-1", 7, ("2", "3"))
        await stage.engine.kill("job-1", 7)
        await stage.ending()
        await stage.clean()

    play(scene())


def test_a_start_that_stays_pending_is_called_off(
    state: Path, owners: Owners, scheduler: PretendScheduler
) -> None:
    async def scene() -> None:
        cluster = PretendCluster(scheduler, state, times=replace(QUICK, pending=0.5))
        stage = EngineStage(await cluster.open("m0", owners), "ann")
        scheduler.full = True
        await stage.engine.start(stage.task("exit 0"))
        ending = await stage.ending()
        assert ending.outcome == "never-ran"
        assert "within 0.5 s" in ending.reason
        await until(lambda: not scheduler.held)
        await stage.clean()

    play(scene())


def test_a_scheduler_that_does_not_answer_changes_nothing_for_what_runs(
    state: Path, owners: Owners, scheduler: PretendScheduler
) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners, scheduler)
        task = await stage.start(READY + FOREVER, end=boottime.now() + 5.0, grace=0.0)
        scheduler.absent = True
        await stage.engine.renew(task.job, task.token, boottime.now() + LONG)
        await until(lambda: boottime.now() > task.end)
        await stage.report()
        # And what is to start waits for it.
        await stage.engine.start(stage.task("exit 0", job="job-2", gpus=(1,)))
        scheduler.absent = False
        told = [await stage.next(), await stage.next()]
        assert [type(event) for event in told] == [ProgramStarted, ProgramExited]
        await stage.engine.kill(task.job, task.token)
        await stage.ending()
        await stage.clean()

    play(scene())


Lose = Callable[[RemoteEngine, Task], Awaitable[None]]
"""Something becomes of a machine with a job on it."""


def end_of_a_lost_job(
    state: Path, owners: Owners, scheduler: PretendScheduler, lose: Lose
) -> ProgramExited:
    """What is told of it at last."""
    endings = []

    async def scene() -> None:
        stage = await on_stage(state, owners, scheduler)
        assert isinstance(stage.engine, RemoteEngine)
        # Without grace: a shorter lease must not end it before it is lost.
        task = await stage.start(READY + FOREVER, grace=0.0)
        await lose(stage.engine, task)
        endings.append(await stage.ending())
        await stage.clean()

    play(scene())
    return endings[0]


def test_silently_vanished_supervisor_is_noticed(
    state: Path, owners: Owners, scheduler: PretendScheduler
) -> None:
    async def lose(engine: RemoteEngine, task: Task) -> None:
        scheduler.kill("m0")

    assert end_of_a_lost_job(state, owners, scheduler, lose).outcome == "lost"


def test_start_lost_with_its_machine_ends_with_its_lease(
    state: Path, owners: Owners, scheduler: PretendScheduler
) -> None:
    """The machine may only be cut off, and the job alive."""
    end = boottime.now() + LONG

    async def lose(engine: RemoteEngine, task: Task) -> None:
        nonlocal end
        end = boottime.now() + 2.0
        await engine.renew(task.job, task.token, end)
        scheduler.down["m0"] = "it does not answer"
        scheduler.kill("m0")

    assert end_of_a_lost_job(state, owners, scheduler, lose).outcome == "resumable"
    assert boottime.now() > end


def test_a_machine_whose_supervisors_are_silent_is_quiet(
    state: Path, owners: Owners, scheduler: PretendScheduler
) -> None:
    async def lose(engine: RemoteEngine, task: Task) -> None:
        assert not engine.quiet
        scheduler.absent = True  # or it would say that the supervisor is gone
        scheduler.kill("m0")
        await until(lambda: engine.quiet)
        scheduler.absent = False

    assert end_of_a_lost_job(state, owners, scheduler, lose).outcome == "lost"


def test_unfollowed_starts_are_cancelled(
    state: Path, owners: Owners, scheduler: PretendScheduler
) -> None:
    """The scheduler took a launch after all that was given up, and holds GPUs for it."""

    async def scene() -> None:
        stage = await on_stage(state, owners, scheduler)
        await stage.engine.reattach()
        task = await stage.start(READY + FOREVER)
        (name,) = scheduler.held
        stray = f"{name.rpartition('-')[0]}-stray"
        scheduler.held[stray] = replace(scheduler.held[name], gpus=(0,), process=None)
        scheduler.held["another-service"] = replace(scheduler.held[stray], gpus=(1,))
        await stage.engine.discover()
        await until(lambda: stray not in scheduler.held)
        assert set(scheduler.held) == {name, "another-service"}
        await stage.report()
        await stage.engine.kill(task.job, task.token)
        await stage.ending()
        await stage.clean()

    play(scene())


def test_start_that_certainly_never_ran_ends_with_the_reason(
    state: Path, owners: Owners, scheduler: PretendScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def places(self: PretendLauncher) -> dict[str, LaunchStage]:
        return dict.fromkeys(scheduler.held, LaunchStage("empty", "no such Python", never=True))

    monkeypatch.setattr(PretendLauncher, "places", places)

    async def scene() -> None:
        slow = replace(QUICK, settle=1e6, beat=1e6)
        stage = EngineStage(
            await PretendCluster(scheduler, state, times=slow).open("m0", owners), "ann"
        )
        scheduler.full = True
        await stage.engine.start(stage.task("exit 0"))
        ending = await stage.ending()
        assert (ending.outcome, ending.reason) == ("never-ran", "no such Python")
        await stage.clean()

    play(scene())


def test_failure_without_a_waiting_caller_is_reported(
    state: Path,
    owners: Owners,
    scheduler: PretendScheduler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise OSError("no space left")

    async def scene() -> None:
        engine = await PretendCluster(scheduler, state).open("m0", owners)
        engine._background.begin(fail())
        await until(lambda: "no space left" in caplog.text)
        await engine.close()

    play(scene())


class TestAnotherClock(KillContract):
    """The bridge is on another machine than its jobs, with a clock far ahead of theirs."""

    @pytest.fixture
    def open_engine(
        self,
        state: Path,
        owners: Owners,
        scheduler: PretendScheduler,
        monkeypatch: pytest.MonkeyPatch,
    ) -> OpenEngine:
        real = boottime.now
        # This process only: supervisors are processes of their own.
        monkeypatch.setattr(boottime, "now", lambda: real() + AHEAD)

        async def open_one() -> Engine:
            cluster = PretendCluster(
                scheduler, state, now=lambda: real() + AHEAD, boot="the bridge's machine"
            )
            return await cluster.open("m0", owners)

        return open_one

    def test_a_job_is_found_again_with_its_lease(self, open_engine: OpenEngine) -> None:
        async def scene() -> None:
            first = EngineStage(await open_engine(), self.owner)
            end = boottime.now() + LONG
            task = await first.start(READY + FOREVER, end=end)
            await first.report()
            await first.engine.close()
            async with self.stage(open_engine) as stage:
                (found,) = await stage.engine.reattach()
                stage.took_over(found, first)
                assert found.state == "running"
                assert abs(found.end - end) < 5.0
                assert 0.0 < found.age < 60.0
                await stage.engine.kill(task.job, task.token)
                assert (await stage.ending()).outcome == "resumable"

        play(scene())
