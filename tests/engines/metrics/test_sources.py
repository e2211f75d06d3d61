"""Where samples are read from: event files and logs of real jobs, and sources that cannot be."""

import asyncio
import itertools
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from themis.engines.attempt.attempt import Attempt
from themis.engines.base import Engine
from themis.engines.common import samples
from themis.engines.common.samples import JobSamples
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.host.batched_thread import BatchedThread
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.metrics import JobLogReader, Reader, TensorBoardReader, log_patterns, sources
from themis.engines.metrics.jsonl import MetricsReader
from themis.engines.metrics.points import MetricSample
from themis.engines.metrics.sources import check_source, reader_for, storage_time
from themis.engines.metrics.tfevents import masked_crc
from themis.engines.task import SourceSpec, Task
from themis.errors import ConfigError
from themis.testing.engines import EngineStage, play


def record(step: int, tag: str, value: float) -> bytes:
    """One scalar as TensorBoard's writers frame it."""
    inner = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inner)]) + inner
    body = b"\x09" + struct.pack("<d", 1.0) + b"\x10" + bytes([step])
    body += b"\x2a" + bytes([len(summary)]) + summary
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", masked_crc(head)) + body + struct.pack("<I", masked_crc(body))


async def points(engine: Engine, count: int) -> tuple[MetricSample, ...]:
    """The samples of a job, once there are so many of them; read in steps of two."""
    found: tuple[MetricSample, ...] = ()
    place = 0
    for look in itertools.count():
        stretch = await engine.points("job-1", place, 2)
        place = stretch.end
        found += stretch.samples
        if len(found) >= count and not stretch.more:
            return found
        assert look < 3000, f"only {found}"
        await asyncio.sleep(0.01)
    raise AssertionError


def scene_of(
    state: Path, owners: Owners, script: str, source: SourceSpec
) -> list[tuple[float, Any]]:
    """What an engine reads of a job, while it runs and, the same, after its end."""
    read: list[tuple[float, Any]] = []

    async def scene() -> None:
        engine = await LocalEngine.open(state, PretendGpus("m0", slots=(1,)), owners)
        stage = EngineStage(engine, "ann")
        try:
            await stage.start(script, source=source)
            while not await engine.measure("job-1"):
                await asyncio.sleep(0.01)
            found = await points(engine, 3)
            task = stage.task(script)
            await engine.kill(task.job, task.token)
            await stage.ending()
            assert await points(engine, 3) == found
            read.extend((each.iteration, dict(each.values)) for each in found)
        finally:
            await stage.clean()

    play(scene())
    return read


def test_event_files_of_this_start_are_read_and_older_ones_are_not(
    state: Path, owners: Owners
) -> None:
    old, new = state.parent / "old", state.parent / "new"
    old.write_bytes(record(1, "train/loss", 9.0))
    os.utime(old, (1e9, 1e9))
    new.write_bytes(b"".join(record(n, "train/loss", n / 2) for n in (4, 5, 6)))
    runs = '"$THEMIS_CHECKPOINT_DIR/runs"'
    script = (
        f"mkdir {runs}; cp -p {old} {runs}/draft;"
        f" mv {runs}/draft {runs}/events.out.tfevents.100;"
        f" cp {new} {runs}/events.out.tfevents.200; sleep 600"
    )
    source = SourceSpec("train/loss", "tensorboard", path="runs")
    read = scene_of(state, owners, script, source)
    assert read == [(n, {"train/loss": n / 2}) for n in (4.0, 5.0, 6.0)]


def test_lines_of_a_log_are_read_by_a_pattern(state: Path, owners: Owners) -> None:
    pytest.importorskip("re2")
    script = "for n in 1 2 3; do echo batch $n error 0.$n; done; echo no; sleep 600"
    source = SourceSpec("error", "regex", pattern=r"batch (?P<it>\d+) error (?P<error>\S+)")
    read = scene_of(state, owners, script, source)
    assert read == [(n, {"error": n / 10}) for n in (1.0, 2.0, 3.0)]


def test_points_that_are_read_ahead_are_those_of_the_file(
    state: Path, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = state.parent / "metrics"
    reader = MetricsReader(str(file))
    monkeypatch.setattr(samples, "reader_for", lambda *_: MetricsReader(str(file)))
    attempt = Attempt(state, Task("j", "ann", 1, (), ("true",), 0.0))
    watched = JobSamples(attempt, BatchedThread(), lambda: False)

    def write(first: int, last: int) -> None:
        with file.open("a") as out:
            out.writelines(f'{{"it": {n}}}\n' for n in range(first, last + 1))

    write(1, 3)
    assert len(watched.measure_and_read_ahead()) == 3
    # Nobody has asked for points yet.
    assert watched.take_ahead(0, 256) is None
    watched.expect(0, 256)
    write(4, 5)
    assert len(watched.measure_and_read_ahead()) == 2
    # From another place, or for fewer.
    assert watched.take_ahead(7, 256) is None
    watched.measure_and_read_ahead()
    assert watched.take_ahead(0, 256) is None, "nothing is new, so nothing was read"
    write(6, 6)
    watched.measure_and_read_ahead()
    assert watched.take_ahead(0, 5) is None
    write(7, 7)
    watched.measure_and_read_ahead()
    assert watched.take_ahead(0, 256) == reader.batch(0, 256)
    assert watched.take_ahead(0, 256) is None, "it is taken once"
    write(8, 8)
    watched.measure_and_read_ahead()
    now = boottime.now()
    monkeypatch.setattr(boottime, "now", lambda: now + 1.0)
    assert watched.take_ahead(0, 256) is None, "that was long ago"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param(SourceSpec(kind="csv"), "metric.source", id="an unknown kind"),
        pytest.param(SourceSpec(name=""), "metric.name", id="no name"),
        pytest.param(SourceSpec(kind="tensorboard", path="../x"), "metric.path", id="a way up"),
        pytest.param(
            SourceSpec(kind="tensorboard", path="/etc"), "metric.path", id="a way elsewhere"
        ),
        pytest.param(SourceSpec(kind="regex", pattern="("), "metric.pattern", id="half a pattern"),
        pytest.param(
            SourceSpec(kind="regex", pattern="x"), "group `it`", id="a pattern of nothing"
        ),
    ],
)
def test_a_source_that_cannot_be_is_refused_before_anything_starts(
    state: Path, owners: Owners, source: SourceSpec, said: str
) -> None:
    async def scene() -> None:
        engine = await LocalEngine.open(state, PretendGpus("m0", slots=(1,)), owners)
        stage = EngineStage(engine, "ann")
        try:
            with pytest.raises(ConfigError, match=said):
                await engine.start(stage.task("sleep 600", source=source))
            assert not list(state.glob("tasks/*"))
        finally:
            await stage.clean()

    play(scene())


def test_a_pattern_is_left_to_nodes_where_it_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "is_able", lambda: False)
    written = SourceSpec(kind="regex", pattern="(")
    check_source(written, elsewhere=True)
    with pytest.raises(ConfigError):
        check_source(written)
    check_source(SourceSpec(kind="regex", pattern="tensorflow"), elsewhere=True)


def test_job_with_an_unreadable_source_is_adopted_without_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(**source: str) -> Reader:
        given = SourceSpec(**source)
        return reader_for(Task("j", "ann", 1, (), ("true",), 0.0, source=given), str(tmp_path))

    assert isinstance(reading(kind="regex", pattern="hf"), JobLogReader)
    assert isinstance(reading(kind="tensorboard"), TensorBoardReader)

    def refuse(*_: object) -> None:
        raise ConfigError("metric.pattern", "x", "install google-re2")

    monkeypatch.setattr(log_patterns, "_compiled", refuse)
    reader = reading(kind="regex", pattern="x")
    assert reader.read() == ()
    assert reader.batch(7, 10).end == 7
    assert "google-re2" in reader.trouble


def test_the_time_of_a_folder_is_that_of_files_in_it(tmp_path: Path) -> None:
    os.utime(tmp_path, (1.0, 1.0))
    before = storage_time(str(tmp_path))
    file = tmp_path / "file"
    file.touch()
    assert before <= file.stat().st_mtime
    assert storage_time(str(tmp_path / "none")) == pytest.approx(time.time(), abs=60.0)
