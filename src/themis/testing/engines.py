"""The contract of engines. Tests of your own engine inherit it and supply one fixture.

    class TestMine(EngineContract):
        @pytest.fixture
        def open_engine(self, tmp_path) -> OpenEngine:
            async def open_one() -> Engine:
                return await MyEngine.open(tmp_path)    # the same place every time
            return open_one

Jobs are shell scripts, so that they run as any user on any machine. Nothing sleeps for a fixed
time: tests wait for what has to happen, and `HANGS_AFTER` only ends those that wait in vain.
"""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import pytest

from themis.engines.attempt.lease_timing import RESUMABLE_CODE
from themis.engines.base import Engine, Event, FoundProgram, ProgramExited, ProgramStarted
from themis.engines.host import boottime
from themis.engines.supervisor import processes
from themis.engines.task import Task
from themis.errors import RefusedError

OpenEngine = Callable[[], Awaitable[Engine]]
"""Opens an engine, each time on the same machines and the same state."""
HANGS_AFTER = 300.0
"""Seconds; far more than any step takes on a busy machine."""
LONG = 600.0
"""Seconds of a lease that does not end in a test."""

READY = 'n=0; tell() { n=$((n+1)); echo "{\\"it\\": $n}" >> "$THEMIS_METRICS"; }; '
FOREVER = "while :; do tell; sleep 0.02; done"
STUBBORN = "trap '' TERM; "
ESCAPED = "(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.05; done' & ) & "
"""Forks twice, leaves the session, ignores SIGTERM."""


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, with a guard against waiting forever."""
    asyncio.run(asyncio.wait_for(scene, HANGS_AFTER))


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that no event reports."""
    while not holds():
        await asyncio.sleep(0.01)


class EngineStage:
    """An engine, and the jobs that a test started on it."""

    def __init__(self, engine: Engine, owner: str) -> None:
        self.engine = engine
        self.owner = owner
        self.mark = f"TEST_MARK={uuid.uuid4().hex}"
        self._events = engine.watch()
        self._running: dict[str, int] = {}

    def task(self, script: str, **changes: Any) -> Task:
        """A task that runs this shell script; `changes` are fields of it."""
        name, _, value = self.mark.partition("=")
        given: dict[str, Any] = {
            "job": "job-1",
            "owner": self.owner,
            "token": 7,
            "gpus": (0,),
            "argv": ("/bin/sh", "-c", script),
            "end": boottime.now() + LONG,
            "env": {name: value},
        }
        return Task(**given | changes)

    async def start(self, script: str, **changes: Any) -> Task:
        """Start it, and wait until it runs."""
        task = self.task(script, **changes)
        await self.engine.start(task)
        self._running[task.job] = task.token
        event = await self.next()
        assert isinstance(event, ProgramStarted), event
        assert (event.job, event.token) == (task.job, task.token)
        return task

    async def next(self) -> Event:
        """The next event."""
        event = await anext(self._events)
        if isinstance(event, ProgramExited):
            self._running.pop(event.job, None)
        return event

    async def ending(self) -> ProgramExited:
        """The next event, which must be the end of a job."""
        event = await self.next()
        assert isinstance(event, ProgramExited), event
        return event

    async def report(self, job: str = "job-1") -> float:
        """Wait until the job has reported a new sample; returns its latest iteration."""
        for look in itertools.count(1):
            if samples := await self.engine.measure(job):
                return samples[-1].iteration
            assert look % 20 or self.alive(), f"{job} is gone, and nobody expected it to be"
            await asyncio.sleep(0.01)
        raise AssertionError  # numbers do not end

    def took_over(self, found: FoundProgram, earlier: "EngineStage") -> None:
        """Adopt the jobs of an earlier engine, to be ended with the test."""
        self._running[found.job] = found.token
        self.mark = earlier.mark

    def alive(self) -> list[int]:
        """Processes of this test's jobs."""
        return processes.marked(self.mark)

    async def clean(self) -> None:
        """Kill jobs that still run, and close the engine."""
        for job, token in list(self._running.items()):
            with suppress(RefusedError):
                await self.engine.kill(job, token)
                while job in self._running:
                    await self.next()
        await self.engine.close()


class KillContract:
    """Tests of how jobs are ended, for each way of holding processes."""

    owner: ClassVar[str] = "ann"

    @asynccontextmanager
    async def stage(self, open_engine: OpenEngine) -> AsyncIterator[EngineStage]:
        """An engine for the length of a test."""
        stage = EngineStage(await open_engine(), self.owner)
        try:
            yield stage
        finally:
            await stage.clean()

    def test_a_job_that_forks_twice_and_ignores_sigterm_is_gone(
        self, open_engine: OpenEngine
    ) -> None:
        """Killing its process group would miss it."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                task = await stage.start(READY + STUBBORN + ESCAPED * 3 + FOREVER)
                await stage.report()
                await until(lambda: len(stage.alive()) >= 4)
                await stage.engine.kill(task.job, task.token)
                ending = await stage.ending()
                assert stage.alive() == []
                assert ending.outcome == "resumable"

        play(scene())

    def test_what_a_job_leaves_behind_ends_with_it(self, open_engine: OpenEngine) -> None:
        """A job ends with its first process."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                await stage.start(READY + ESCAPED + "tell; exit 0")
                ending = await stage.ending()
                assert (ending.outcome, ending.code) == ("finished", 0)
                assert stage.alive() == []

        play(scene())

    def test_expired_lease_kills_without_an_order(self, open_engine: OpenEngine) -> None:
        """The supervisor does it alone, without a call of `kill`."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                task = await stage.start(READY + STUBBORN + ESCAPED + FOREVER, grace=0.2)
                await stage.report()
                end = boottime.now() + 0.5
                await stage.engine.renew(task.job, task.token, end)
                ending = await stage.ending()
                assert boottime.now() >= end
                assert ending.outcome == "resumable"
                assert stage.alive() == []

        play(scene())

    def test_a_checkpoint_is_asked_for_once(self, open_engine: OpenEngine) -> None:
        """A second SIGTERM would disturb the checkpoint that is being written."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                task = await stage.start("trap 'echo asked' TERM; " + READY + FOREVER)
                await stage.report()
                await stage.engine.checkpoint(task.job, task.token)
                while "asked" not in await stage.engine.tail(task.job):
                    await stage.report()
                await stage.engine.checkpoint(task.job, task.token)
                await stage.engine.renew(task.job, task.token, boottime.now() + task.grace / 2)
                latest = await stage.report()
                while await stage.report() < latest + 5:
                    pass
                assert (await stage.engine.tail(task.job)).count("asked") == 1

        play(scene())

    @pytest.mark.parametrize(
        ("script", "outcome", "code", "counts_as"),
        [
            pytest.param("exit 0", "finished", 0, 0, id="zero is finished"),
            pytest.param("exit 75", "resumable", 75, 75, id="75 is resumable"),
            pytest.param("exit 3", "failed", 3, 3, id="another code is a failure"),
            pytest.param("kill -9 $$", "failed", -9, 137, id="a signal that was not ours, too"),
            pytest.param("kill -15 $$", "failed", -15, 143, id="even if it is a SIGTERM"),
        ],
    )
    def test_end_of_a_job_is_reported(
        self, open_engine: OpenEngine, script: str, outcome: str, code: int, counts_as: int
    ) -> None:
        """The job contract."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                await stage.start(script)
                ending = await stage.ending()
                assert (ending.outcome, ending.code) == (outcome, code)
                assert ending.counts_as == counts_as

        play(scene())

    def test_a_sigterm_before_the_handler_is_there_is_resumable(
        self, open_engine: OpenEngine
    ) -> None:
        """Importing a framework takes longer than a lease may last."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                task = await stage.start("exec sleep 600")
                await stage.engine.checkpoint(task.job, task.token)
                ending = await stage.ending()
                assert (ending.outcome, ending.code) == ("resumable", -15)

        play(scene())


class EngineContract(KillContract):
    """All tests for an engine given by the fixture `open_engine`."""

    def test_engine_reports_its_kind_and_its_gpus(self, open_engine: OpenEngine) -> None:
        """Machines with GPUs numbered from zero."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                assert stage.engine.capabilities.engine
                assert stage.engine.capabilities.control
                machines = await stage.engine.discover()
                assert machines
                for found in machines:
                    numbers = [gpu.index for gpu in found.gpus]
                    assert numbers == list(range(found.machine.gpus))
                    # A slot cannot be promised if another scheduler chooses its GPUs.
                    if not stage.engine.capabilities.chooses_indices:
                        assert set(found.machine.slots) == {1}

        play(scene())

    def test_a_job_finds_what_the_contract_promises(self, open_engine: OpenEngine) -> None:
        """And nothing of the node's own environment."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                task = await stage.start(
                    'env; test -w "$THEMIS_METRICS" -a -w "$THEMIS_CHECKPOINT_DIR" && umask',
                    gpus=(0, 1),
                    max_iterations=500,
                    rank=1,
                    world=2,
                    rendezvous="m0:1234",
                    number=5,
                )
                await stage.ending()
                lines = (await stage.engine.tail(task.job, 1 << 16)).splitlines()
                assert lines[-1].endswith("077")
                found = dict(line.split("=", 1) for line in lines if "=" in line)
                promised = {
                    "THEMIS_JOB_ID": "job-1",
                    "THEMIS_MAX_ITERATIONS": "500",
                    "THEMIS_RANK": "1",
                    "THEMIS_WORLD_SIZE": "2",
                    "THEMIS_RENDEZVOUS": "m0:1234",
                    "THEMIS_RUN_NUMBER": "5",
                }
                assert promised.items() <= found.items()
                gpus = found["THEMIS_GPUS"].split(",")
                if stage.engine.capabilities.chooses_indices:
                    assert gpus == ["0", "1"]
                else:  # whichever it got
                    assert len(set(gpus)) == 2
                assert {"CUDA_VISIBLE_DEVICES", "PATH", "HOME"} <= found.keys()
                assert found["THEMIS_LEASES"] == f"{task.token},{task.token}"
                assert "TOKEN" not in " ".join(found)
                assert "PYTEST_CURRENT_TEST" not in found

        play(scene())

    def test_a_program_that_is_not_there_is_the_jobs_failure(self, open_engine: OpenEngine) -> None:
        """It never runs, and the reason names it."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                task = stage.task("", argv=("/no/such/program",))
                await stage.engine.start(task)
                ending = await stage.ending()
                assert (ending.outcome, ending.code) == ("failed", 127)
                assert "/no/such/program" in ending.reason

        play(scene())

    def test_reports_and_output_are_passed_on(self, open_engine: OpenEngine) -> None:
        """Garbage between reports is skipped."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                line = '{"it": %d, "loss": %s, "t": 5.5}\\n'
                task = await stage.start(
                    f"printf '{line}' 1 0.5 >> $THEMIS_METRICS; echo one; "
                    "printf 'nonsense\\n\\n[1]\\n{\\n' >> $THEMIS_METRICS; "
                    f"printf '{line}' 2 NaN >> $THEMIS_METRICS; echo two >&2"
                )
                await stage.ending()
                samples = await stage.engine.measure(task.job)
                told = [(item.iteration, str(item.loss), item.time) for item in samples]
                assert told == [(1, "0.5", 5.5), (2, "nan", 5.5)]
                assert await stage.engine.measure(task.job) == ()
                points = await stage.engine.points(task.job, 0, 1)
                assert (points.samples, points.more) == (samples[:1], True)
                rest = await stage.engine.points(task.job, points.end, 9)
                assert (str(rest.samples), rest.more) == (str(samples[1:]), False)
                assert await stage.engine.tail(task.job) == "one\ntwo\n"
                await stage.engine.forget(task.job, task.token)
                assert await stage.engine.tail(task.job) == "one\ntwo\n"

        play(scene())

    def test_a_renewed_lease_leaves_the_process_alone(self, open_engine: OpenEngine) -> None:
        """It goes on past the old end undisturbed."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                end = boottime.now() + 3.0  # time enough to start, on a busy machine too
                script = "trap 'echo asked' TERM; " + READY + FOREVER
                task = stage.task(script, end=end, grace=0.1)
                await stage.engine.start(task)
                await stage.engine.renew(task.job, task.token, boottime.now() + LONG)
                assert isinstance(await stage.next(), ProgramStarted)
                await until(lambda: boottime.now() > end)
                before = await stage.report()
                while await stage.report() < before + 10:
                    pass
                assert "asked" not in await stage.engine.tail(task.job)
                await stage.engine.kill(task.job, task.token)
                await stage.ending()

        play(scene())

    def test_a_checkpoint_is_asked_for_a_grace_before_the_end(
        self, open_engine: OpenEngine
    ) -> None:
        """The node does not call."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                script = "trap 'echo saved; exit 75' TERM; " + READY + FOREVER
                task = await stage.start(script, grace=100.0)
                await stage.report()
                await stage.engine.renew(task.job, task.token, boottime.now() + 99.0)
                ending = await stage.ending()
                assert (ending.outcome, ending.code) == ("resumable", 75)
                assert "saved" in await stage.engine.tail(task.job)

        play(scene())

    def test_an_error_after_a_checkpoint_was_asked_for_is_resumable(
        self, open_engine: OpenEngine
    ) -> None:
        """Launchers turn the exit code 75 of their child into 1."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                task = await stage.start("trap 'exit 1' TERM; " + READY + FOREVER)
                await stage.report()
                await stage.engine.checkpoint(task.job, task.token)
                ending = await stage.ending()
                assert (ending.outcome, ending.code) == ("resumable", 1)
                assert ending.counts_as == RESUMABLE_CODE

        play(scene())

    def test_output_is_found_by_its_tag_also_when_its_job_is_forgotten(
        self, open_engine: OpenEngine
    ) -> None:
        """Piece by piece, each with the offset of the next one."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                engine = stage.engine
                task = await stage.start("echo one; echo two", tag="run 1")
                await stage.ending()
                for forgotten in (False, True):
                    if forgotten:
                        await engine.forget(task.job, task.token)
                    piece = await engine.output("run 1", 0, 6)
                    assert piece is not None
                    assert (piece.offset, piece.text, piece.next) == (0, "one\ntw", 6)
                    assert (piece.size, piece.over) == (8, True)
                    rest = await engine.output("run 1", piece.next, 100)
                    assert rest is not None
                    assert (rest.text, rest.next) == ("o\n", 8)
                    beyond = await engine.output("run 1", 100, 100)
                    assert beyond is not None
                    assert (beyond.text, beyond.size) == ("", 8)
                assert await engine.output("run 2", 0, 100) is None

        play(scene())

    def test_messages_with_another_token_change_nothing(self, open_engine: OpenEngine) -> None:
        """They belong to an earlier or later lease."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                task = await stage.start(READY + FOREVER)
                engine = stage.engine
                for other in (task.token - 1, task.token + 1):
                    with pytest.raises(RefusedError):
                        await engine.renew(task.job, other, boottime.now())
                    with pytest.raises(RefusedError):
                        await engine.checkpoint(task.job, other)
                    with pytest.raises(RefusedError):
                        await engine.kill(task.job, other)
                with pytest.raises(RefusedError):
                    await engine.kill("another", task.token)
                await stage.report()
                latest = await stage.report()
                assert await stage.report() > latest

        play(scene())

    def test_a_stale_token_starts_nothing(self, open_engine: OpenEngine) -> None:
        """Its holder has lost that GPU since; the same token may start again."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                for token in (7, 7, 9):
                    await stage.start("exit 0", token=token)
                    await stage.ending()
                with pytest.raises(RefusedError, match="stale"):
                    await stage.engine.start(stage.task("exit 0", token=8))
            async with self.stage(open_engine) as stage:  # known on disk too
                await stage.engine.reattach()
                with pytest.raises(RefusedError, match="stale"):
                    await stage.engine.start(stage.task("exit 0", token=8))

        play(scene())

    def test_what_cannot_be_is_refused(self, open_engine: OpenEngine) -> None:
        """A job twice, a GPU twice, a lease that has ended."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                await stage.start(READY + FOREVER, gpus=(0, 1))
                engine = stage.engine
                with pytest.raises(RefusedError, match="runs already"):
                    await engine.start(stage.task("exit 0", gpus=(), token=8))
                with pytest.raises(RefusedError, match="over"):
                    await engine.start(
                        stage.task("exit 0", job="late", gpus=(), end=boottime.now())
                    )
                if engine.capabilities.chooses_indices:
                    with pytest.raises(RefusedError, match="GPU 1 is in use by job-1"):
                        await engine.start(stage.task("exit 0", job="job-2", gpus=(1,), token=8))

        play(scene())

    def test_jobs_run_on_unobserved_and_are_found_again(self, open_engine: OpenEngine) -> None:
        """With their token, their lease and their GPUs."""

        async def scene() -> None:
            first = EngineStage(await open_engine(), self.owner)
            end = boottime.now() + LONG
            task = await first.start(READY + FOREVER, end=end)
            await first.engine.renew(task.job, task.token, end + 1)
            await first.engine.close()
            async with self.stage(open_engine) as stage:
                (found,) = await stage.engine.reattach()
                stage.took_over(found, first)
                assert (found.job, found.owner) == (task.job, self.owner)
                assert (found.token, found.gpus) == (task.token, task.gpus)
                assert (found.state, found.end, found.ended) == ("running", end + 1, None)
                assert found.age > 0
                await stage.report()
                with pytest.raises(RefusedError, match="runs already"):
                    await stage.engine.start(task)
                await stage.engine.kill(task.job, task.token)
                assert (await stage.ending()).outcome == "resumable"
                assert first.alive() == []

        play(scene())

    def test_unacknowledged_end_is_reported_until_it_is_forgotten(
        self, open_engine: OpenEngine
    ) -> None:
        """Endings survive the node's restart; so does the end of a lease without any node."""

        async def scene() -> None:
            first = EngineStage(await open_engine(), self.owner)
            task = await first.start(READY + STUBBORN + ESCAPED + FOREVER, grace=0.1)
            await first.report()
            await first.engine.renew(task.job, task.token, boottime.now() + 0.5)
            await first.engine.close()
            await until(lambda: first.alive() == [])
            for round_number in itertools.count():
                async with self.stage(open_engine) as stage:
                    found = await stage.engine.reattach()
                    if round_number == 2:
                        assert found == ()
                        return
                    (one,) = found
                    while one.state != "exited":  # its supervisor was about to say so
                        await stage.ending()
                        break
                    else:
                        assert one.ended is not None
                        assert one.ended.outcome == "resumable"
                    if round_number == 1:
                        await stage.engine.forget(task.job, task.token)

        play(scene())

    def test_many_jobs_at_once_are_distinguished(self, open_engine: OpenEngine) -> None:
        """Each its own end."""

        async def scene() -> None:
            async with self.stage(open_engine) as stage:
                codes = {f"job-{number}": number for number in range(1, 5)}
                for job, number in codes.items():
                    task = stage.task(f"exit {number}", job=job, gpus=(), token=number)
                    await stage.engine.start(task)
                told: dict[str, int | None] = {}
                while len(told) < len(codes):
                    event = await stage.next()
                    if isinstance(event, ProgramExited):
                        told[event.job] = event.code
                assert told == codes

        play(scene())
