"""The training program of the demo: it learns, keeps the job contract, and needs no package."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from themis.demo import train
from themis.demo.toy_models import MODELS
from themis.demo.training_program import copy_program
from themis.reporting import GRACEFUL_EXIT


def points(path: Path) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["it"], line["loss"]) for line in lines]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process as a job of Themis."""
    monkeypatch.setenv("THEMIS_METRICS", str(tmp_path / "metrics"))
    monkeypatch.setenv("THEMIS_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("THEMIS_MAX_ITERATIONS", "40")
    return tmp_path


@pytest.mark.parametrize("task", sorted(MODELS))
def test_every_model_learns_with_a_good_rate(task: str) -> None:
    model = MODELS[task](random.Random("7"))
    before = model.loss()
    for _ in range(200):
        model.step(0.1, range(0, 96, 3))
    assert model.loss() < before / 2


def test_excessive_learning_rate_diverges_and_reports_a_bad_loss(job: Path) -> None:
    assert train.main(["--task", "ridge", "--lr", "50", "--seed", "3"]) == 0
    told = points(job / "metrics")
    assert [it for it, _ in told] == list(range(1, 41))
    assert all(math.isfinite(loss) for _, loss in told)
    assert told[-1][1] == train.WORST


def test_interrupted_job_ends_like_an_uninterrupted_one(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train.main(["--task", "network"])
    whole = (job / train.CHECKPOINT).read_text()
    (job / train.CHECKPOINT).unlink()
    for last in ("13", "40"):
        monkeypatch.setenv("THEMIS_MAX_ITERATIONS", last)
        train.main(["--task", "network"])
    assert (job / train.CHECKPOINT).read_text() == whole


@pytest.mark.parametrize(
    ("count", "level", "slept"),
    [
        pytest.param("1", "0", 8.0, id="one GPU takes its time"),
        pytest.param("4", "1", 2.2, id="four in a machine a quarter and a little more"),
        pytest.param("4", "3", 4.0, id="four in two racks half of it"),
    ],
)
def test_placement_is_felt(
    job: Path, monkeypatch: pytest.MonkeyPatch, count: str, level: str, slept: float
) -> None:
    naps: list[float] = []
    monkeypatch.setattr(time, "sleep", naps.append)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setenv("THEMIS_GPU_COUNT", count)
    monkeypatch.setenv("THEMIS_LEVEL", level)
    monkeypatch.setenv("THEMIS_MAX_ITERATIONS", "1")
    train.main(["--pace", "8", "--slowdown", "1,1.1,1.67,2"])
    assert naps == pytest.approx([slept])


def test_only_the_first_of_several_machines_reports(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEMIS_RANK", "1")
    assert train.main([]) == 0
    assert not (job / "metrics").exists()
    assert not (job / train.CHECKPOINT).exists()


def test_demo_program_copy_saves_on_request(tmp_path: Path) -> None:
    place = copy_program(tmp_path / "pro gram", None)
    assert place.python == sys.executable
    metrics = tmp_path / "metrics"
    env = {"THEMIS_JOB_ID": "0", "THEMIS_METRICS": str(metrics)}
    # Without `site`, and without this checkout on the path: the copy is all there is.
    process = subprocess.Popen(
        [
            *(place.python, "-S", "-m", "themis.demo.train", "--pace", "0.01"),
            *("--iterations", "1000000", "--folder", str(tmp_path / "saved")),
        ],
        cwd=place.folder,
        env=env,
    )
    try:
        while not metrics.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == GRACEFUL_EXIT
    finally:
        process.kill()
        process.wait()
    saved = json.loads((tmp_path / "saved" / train.CHECKPOINT).read_text())
    assert saved["done"] == points(metrics)[-1][0]


def test_copy_is_world_readable_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = copy_program(tmp_path / "program", None).folder
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o755
    files = list(folder.rglob("*.py"))
    assert len(files) == 5
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o644
        assert path.parent.stat().st_mode & 0o777 == 0o755
