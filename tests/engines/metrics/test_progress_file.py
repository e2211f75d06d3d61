"""What a job said last is known to a later start of it that has nothing left to say."""

import os
from pathlib import Path

from tests.support.files import files_named
from themis.engines.attempt.layout import EngineLimits
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.metrics.points import MetricSample
from themis.engines.metrics.progress_file import NAME, keep_sample, recall_sample
from themis.testing.engines import EngineStage, play, until

TRAINS = """echo '{"it": 11, "loss": 0.5, "t": 1}
{"it": 12, "loss": 0.25, "t": 2}' > "$THEMIS_METRICS"; """
HAS_NOTHING_TO_DO = ":"


async def on_stage(state: Path, owners: Owners) -> EngineStage:
    engine = await LocalEngine.open(
        state, PretendGpus("m0", slots=(2, 2)), owners, limits=EngineLimits()
    )
    return EngineStage(engine, "ann")


async def train(stage: EngineStage, state: Path) -> None:
    """A first start, whose service forgets it."""
    await stage.start(TRAINS + "exit 75", token=7)
    await stage.ending()
    await stage.engine.measure("job-1")
    await until(lambda: bool(files_named(NAME, state)))
    await stage.engine.forget("job-1", 7)


def test_silent_start_that_ends_well_keeps_the_previous_progress(
    state: Path, owners: Owners
) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners)
        await train(stage, state)
        await stage.start(HAS_NOTHING_TO_DO, token=8)
        assert (await stage.ending()).outcome == "finished"
        known = MetricSample(12.0, 0.25, None)
        assert await stage.engine.measure("job-1") == (known,)
        stretch = await stage.engine.points("job-1", 0, 10)
        assert stretch.samples == (known,)
        again = await stage.engine.points("job-1", stretch.end, 10)
        assert again.samples == (), "it is told once"
        await stage.clean()

    play(scene())


def test_silent_failure_or_save_adds_no_progress(state: Path, owners: Owners) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners)
        await train(stage, state)
        for token, code in ((8, 3), (9, 75)):
            await stage.start(f"exit {code}", token=token)
            await stage.ending()
            assert await stage.engine.measure("job-1") == ()
            assert (await stage.engine.points("job-1", 0, 10)).samples == ()
        await stage.clean()

    play(scene())


def test_only_the_first_part_of_a_job_speaks_for_it(state: Path, owners: Owners) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners)
        await train(stage, state)
        await stage.start(HAS_NOTHING_TO_DO, token=8, rank=1, world=2, rendezvous="m0:20000")
        await stage.ending()
        assert await stage.engine.measure("job-1") == ()
        await stage.clean()

    play(scene())


def test_the_other_parts_of_a_job_write_nothing_down(state: Path, owners: Owners) -> None:
    async def scene() -> None:
        stage = await on_stage(state, owners)
        await stage.start(TRAINS, token=8, rank=1, world=2, rendezvous="m0:20000")
        await stage.ending()
        assert await stage.engine.measure("job-1")
        await stage.engine.points("job-1", 0, 10)
        await stage.clean()
        assert not files_named(NAME, state)

    play(scene())


def test_a_metric_that_is_no_number_is_kept_as_such(tmp_path: Path) -> None:
    keep_sample(str(tmp_path), MetricSample(3.0, float("nan"), 1.0, (("accuracy", 0.5),)), None)
    found = recall_sample(str(tmp_path), None, "loss")
    assert found is not None
    assert (found.iteration, found.time, found.others) == (3.0, None, (("accuracy", 0.5),))
    assert found.loss != found.loss


def test_nothing_is_written_through_a_link_that_an_owner_made(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    folder = tmp_path / "job"
    folder.mkdir()
    os.symlink(other, folder / NAME)
    os.symlink(other, folder / f"{NAME}.new")
    keep_sample(str(folder), MetricSample(3.0, None, None), None)
    assert other.read_text() == "mine"
    assert recall_sample(str(folder), None, "loss") == MetricSample(3.0, None, None)


def test_a_folder_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    keep_sample(str(tmp_path / "gone"), MetricSample(3.0, None, None), None)
    assert recall_sample(str(tmp_path / "gone"), None, "loss") is None
