"""The auditor notices what must never be."""

import subprocess
from pathlib import Path

import pytest

from tests.support.gpu_share_audit import (
    TRAIN,
    Line,
    audit,
    objections,
    overlapping,
    read_lines,
    starts,
)


def line(run: str, token: int = 1, what: str = "beat") -> Line:
    return Line(what, token, run, f"sweep/{run}", 0.0)


FIRST = [line("a", what="start"), line("a"), line("a", what="stop")]


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        pytest.param([*FIRST, line("b", 2), line("b", 2)], "", id="one after the other"),
        pytest.param([*FIRST, line("b", 1)], "", id="another start under the same lease"),
        pytest.param([line("a"), line("b", 2), line("a")], "wrote while", id="two at once"),
        pytest.param([line("b", 2), line("a", 1)], "token 1 after 2", id="an old token"),
        pytest.param([*FIRST, line("b", 2), line("a")], "wrote while", id="back after its end"),
    ],
)
def test_shared_gpus_and_old_tokens_are_noticed(lines: list[Line], wrong: str) -> None:
    found = "; ".join(objections({"m0.0": lines}))
    assert wrong in found
    assert bool(found) == bool(wrong)


def test_other_gpus_are_other_stories() -> None:
    assert not objections({"m0.0": [line("a"), line("a")], "m0.1": [line("b"), line("b")]})


def test_a_job_that_is_alive_on_two_machines_is_noticed() -> None:
    def at(run: str, *times: float) -> list[Line]:
        return [Line("beat", 1, run, "sweep/0", time) for time in times]

    assert not overlapping({"m0.0": at("a", 1.0, 2.0), "m1.0": at("b", 2.0, 5.0)})
    (wrong,) = overlapping({"m0.0": at("a", 1.0, 2.5), "m1.0": at("b", 2.0, 5.0)})
    assert wrong == "sweep/0 was started again 0.50 s before it was over"


def train(folder: Path, run: str, leases: str, gpus: str = "0,1") -> "subprocess.Popen[bytes]":
    env = {
        "PATH": "/usr/bin:/bin", "AUDIT": str(folder / "audit"), "MOST": "3",
        "THEMIS_RUN": run, "THEMIS_JOB_ID": f"sweep/{run}", "THEMIS_GPUS": gpus,
        "THEMIS_LEASES": leases, "THEMIS_METRICS": str(folder / "state-nodes" / "m0" / "metrics"),
    }  # fmt: skip
    return subprocess.Popen(["/bin/sh", "-c", TRAIN], env=env)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "audit").mkdir()
    (tmp_path / "state-nodes" / "m0").mkdir(parents=True)
    return tmp_path


def test_jobs_in_turn_are_fine(folder: Path) -> None:
    for run, leases in (("a", "1,2"), ("b", "3,4")):
        assert train(folder, run, leases).wait(timeout=60) == 0
    lines = read_lines(folder / "audit")
    assert {gpu: [line.token for line in found[:1]] for gpu, found in lines.items()} == {
        "m0.0": [1],
        "m0.1": [2],
    }
    assert starts(lines) == {"a": "sweep/a", "b": "sweep/b"}
    assert not audit(folder / "audit")


def test_jobs_at_once_are_caught(folder: Path) -> None:
    jobs = [train(folder, run, leases, "0") for run, leases in (("a", "1"), ("b", "2"))]
    for job in jobs:
        assert job.wait(timeout=60) == 0
    assert audit(folder / "audit")


def test_an_old_lease_after_a_new_one_is_caught(folder: Path) -> None:
    for run, leases in (("b", "3"), ("a", "1")):
        assert train(folder, run, leases, "0").wait(timeout=60) == 0
    assert audit(folder / "audit") == ["GPU m0.0: sweep/a with token 1 after 3"]
