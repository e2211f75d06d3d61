"""What sacct prints, in its documented form: several versions, array jobs and requeued ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from themis.errors import ConfigError
from themis.sim.traces import Trace, read_trace
from themis.sim.traces.sacct import _gpus

FILES = Path(__file__).parent / "sacct"


def work(trace: Trace) -> list[tuple[str, int, float, str]]:
    return [(job.owner, job.gpus, job.duration, job.status) for job in trace.jobs]


def test_requeued_and_array_jobs_of_22_05() -> None:
    trace = read_trace(FILES / "duplicates-22.05.txt")
    assert trace.clean, trace.problems
    assert work(trace) == [
        ("ann", 2, 7200.0, "COMPLETED"),
        ("bob", 1, 3600.0, "COMPLETED"),
        ("bob", 1, 4200.0, "FAILED"),
        ("eve", 4, 3600.0, "COMPLETED"),
        ("eve", 4, 1800.0, "NODE_FAIL"),
        ("eve", 4, 1740.0, "COMPLETED"),
        ("ann", 4, 1790.0, "CANCELLED"),
    ]
    assert trace.dropped == {"never started": 2, "still running": 1, "begun again later": 1}


def test_generic_resources_of_18_08_with_a_delimiter_at_the_end() -> None:
    trace = read_trace(FILES / "gres-18.08.txt")
    assert [job.gpus for job in trace.jobs] == [2, 4, 1]
    assert trace.dropped == {"no GPUs": 1}
    assert trace.clean


def test_seconds_since_1970_and_more_columns_of_23_11() -> None:
    trace = read_trace(FILES / "seconds-23.11.txt")
    assert work(trace) == [("ann", 2, 7200.0, "COMPLETED"), ("ann", 1, 7200.0, "OUT_OF_MEMORY")]
    assert trace.clean


def test_job_repeated_after_its_end_is_a_bad_row(tmp_path: Path) -> None:
    text = (FILES / "duplicates-22.05.txt").read_text("utf-8")
    lines = text.splitlines()
    path = tmp_path / "joined.txt"
    path.write_text("\n".join([*lines, *lines[1:]]), "utf-8")
    trace = read_trace(path)
    assert not trace.clean
    assert len(trace.jobs) == len(read_trace(FILES / "duplicates-22.05.txt").jobs)


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text("JobID|User|Submit|Start|End|State\n1|a|Unknown|Unknown|Unknown|PENDING\n")
    with pytest.raises(ConfigError, match="alloctres is missing"):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("gpu:2", 2),
        ("gpu", 1),
        ("gpu:v100", 1),
        ("gpu:v100:4(IDX:0-3)", 4),
        ("gres:gpu:2,mps:100", 2),
        ("gpu:a100:2,gpu:v100:1", 3),
        ("mps:100", 0),
        ("gpumem:80", 0),
        ("", 0),
        ("cpu=8,gres/gpu=4,gres/gpu:v100=4", 4),
    ],
)
def test_gpus_in_both_ways_to_write_resources(text: str, count: int) -> None:
    assert _gpus(text) == count


def test_sacct_trace_is_imported_and_simulated_by_commands(tmp_path: Path) -> None:
    out = tmp_path / "jobs.workload"
    imported = themis("trace", "import", FILES / "duplicates-22.05.txt", "--out", out, "--strict")
    assert "left out: 4" in imported
    header, *apps = map(json.loads, out.read_text("utf-8").splitlines())
    assert header["generator"] == "trace:sacct"
    assert sum(len(line["gpus"]) for line in apps) == 7
    assert themis("sim", "run", "--workload", out, "--cluster", "demo16", "--policy", "fifo")


def themis(*words: object) -> str:
    command = [sys.executable, "-m", "themis", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
