"""Scripts of Ray Tune on a real service, with GPUs that come and go."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.requirements import missing, only_engines, require_tool

SCENE = Path(__file__).with_name("scene.py")
NOBODY = 100_000 + os.getpid()
"""Another one for each process that runs tests, as the folder of Ray nodes has it in its name."""
ALONE = f'ip link set lo up && exec unshare -U --map-user={NOBODY} --map-group={NOBODY} "$@"'
"""Not as root, for whose jobs other rules hold."""

pytestmark = [pytest.mark.ray, pytest.mark.slow]

Results = dict[str, list[dict[str, Any]]]


@pytest.fixture
def place() -> Iterator[Path]:
    """Short, for the names of sockets."""
    folder = Path(tempfile.mkdtemp(prefix="themis-tune-"))
    yield folder
    shutil.rmtree(f"/tmp/themis-{NOBODY}", ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def play(place: Path, scene: str) -> dict[str, Any]:
    """Play a scene where nothing reaches the network, and nothing outlives it."""
    if find_spec("ray") is None or find_spec("pyarrow") is None:
        missing("Ray Tune is not installed (pip install 'themis-scheduler[ray]')")
    unshare = require_tool("unshare", package="util-linux")
    require_tool("ip", package="iproute2")
    rights = [] if os.geteuid() == 0 else ["-Ur"]
    command = [
        *(str(unshare), *rights, "-n", "-p", "-f", "--mount-proc", "--kill-child"),
        *("sh", "-c", ALONE, "sh", sys.executable, str(SCENE), str(place), scene),
    ]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(place)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-20000:]
    told: dict[str, Any] = json.loads((place / "told.json").read_text())
    return told


def steps(results: Results) -> dict[str, list[int]]:
    return {quality: [line["step"] for line in lines] for quality, lines in results.items()}


def repeated(results: Results) -> int:
    """Iterations that were done more than once; fails if one was left out."""
    again = 0
    for each in steps(results).values():
        assert each[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(each)), each
        again += len(each) - len(set(each))
    return again


def starts(results: Results) -> dict[str, int]:
    return {quality: len({line["start"] for line in lines}) for quality, lines in results.items()}


def check_exclusive(*everybody: Results) -> None:
    """Fail if two trials ever trained on one GPU."""
    used: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for number, results in enumerate(everybody):
        for quality, lines in results.items():
            for line in lines:
                gpu = line["gpu"], line["machine"]
                used.setdefault(gpu, []).append(
                    (line["began"], line["ended"], f"{number}/{quality}")
                )
    for gpu, spans in used.items():
        for (_, ended, who), (began, _, other) in pairwise(sorted(spans)):
            assert who == other or began >= ended, f"{who} and {other} on {gpu}"


@pytest.mark.engines_quick
def test_the_example_becomes_an_app(place: Path) -> None:
    told = play(place, "quick")
    assert told["codes"] == {"tune-lr": 0}
    assert told["outcomes"] == {"tune-lr": "finished"}
    ((lr, lines),) = told["results"]["tune-lr"].items()
    assert [line["training_iteration"] for line in lines] == [1, 2]
    shown = told["shown"]["tune-lr"]
    ((job, params, metric),) = [(job["job"], job["params"], job["metric"]) for job in shown["jobs"]]
    assert (params["lr"], metric) == (float(lr), lines[-1]["loss"])
    assert shown["best"] == job


@only_engines
def test_two_scripts_sharing_gpus_get_the_results_of_separate_runs(place: Path) -> None:
    told = play(place, "sharing")
    assert told["codes"] == {"brackets": 0, "rungs": 0, "alone": 0}
    assert told["outcomes"] == {"brackets": "finished", "rungs": "finished"}
    assert "no Themis service is configured" in told["said"]
    brackets, rungs = told["results"]["brackets"], told["results"]["rungs"]
    assert repeated(brackets) == repeated(rungs) == 0
    # Halving depends on metrics only, so who goes on is the same whoever had GPUs when.
    last = {quality: each[-1] for quality, each in steps(brackets).items()}
    assert last == {quality: each[-1] for quality, each in steps(told["alone"]).items()}
    assert sorted(last.values()) == [3, 3, 3, 9, 9, 9, 9, 9]
    assert max(map(max, steps(rungs).values())) == 4, "somebody is the best"
    assert len(rungs) == 5
    check_exclusive(brackets, rungs)


@only_engines
def test_gpus_that_go_pause_trials_and_those_that_come_resume_them(place: Path) -> None:
    told = play(place, "shrinking")
    assert told["codes"] == {"shrinks": 0}
    assert told["outcomes"] == {"shrinks": "finished"}
    assert repeated(told["graceful"]) == 0, "a trial that is told to go loses nothing"
    results = told["results"]["shrinks"]
    assert {quality: each[-1] for quality, each in steps(results).items()} == {
        "1.0": 400,
        "2.0": 400,
    }
    assert repeated(results) <= 1, "one that is killed loses what it had not saved"
    assert sum(starts(told["graceful"]).values()) >= 3, "one had to leave its GPU"
    assert min(starts(results).values()) >= 2, "both had to, when the service was away"
    check_exclusive(results)
