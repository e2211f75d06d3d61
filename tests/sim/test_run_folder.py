"""A run as a folder: whole or not there, never over something else, the same bytes every time."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from themis.core.arbiter import RoundRecord
from themis.errors import ConfigError, InvariantError
from themis.recording.replay import replay
from themis.sim import RunConfig, RunResult, run
from themis.sim.run import Segment
from themis.sim.runs.run_folder import new_folder, run_files, write_run

LONG = {"lease": "4h"}
"""Apps train for days: few beats keep these runs short."""
TIMING = ("cpu_s", "peak_rss_mb")
FILES = {"config.json", "result.json", "apps.jsonl", "rounds.jsonl", "segments.csv"}


def _written(config: RunConfig, folder: Path, log_to: Path | None = None) -> RunResult:
    with run_files(folder) as files:
        result = run(
            config,
            keep_segments=False,
            on_round=files.on_round,
            on_segment=files.on_segment,
            log_to=log_to,
        )
    write_run(result, folder)
    return result


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_folder_gets_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with new_folder(target) as draft:
        (draft / "x").write_text("1", "utf-8")
        assert not target.exists()
    assert _contents(target) == {"x": b"1"}
    assert os.listdir(tmp_path) == ["run"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill() -> None:
        with new_folder(tmp_path / "deep" / "run") as draft:
            (draft / "x").write_text("1", "utf-8")
            raise InvariantError("half way")

    with pytest.raises(InvariantError, match="half way"):
        fill()
    assert os.listdir(tmp_path / "deep") == []


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    target = tmp_path / "run"
    target.mkdir()
    with new_folder(target) as draft:
        (draft / "x").write_text("1", "utf-8")
    assert _contents(target) == {"x": b"1"}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("1", "utf-8")
    with pytest.raises(ConfigError, match="does not exist yet or is empty"), new_folder(tmp_path):
        pytest.fail("nothing is to be made")
    assert _contents(tmp_path) == {"precious": b"1"}


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("1", "utf-8")
    for target in (file, file / "below"):
        with pytest.raises(ConfigError, match="out"), new_folder(target):
            pytest.fail("nothing is to be made")
    assert file.read_text("utf-8") == "1"


@pytest.mark.parametrize("name", [".", "/"])
def test_a_folder_without_a_name_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name of its own"), new_folder(Path(name)):
        pytest.fail("nothing is to be made")


def test_the_remains_of_a_killed_run_are_in_nobodys_way(tmp_path: Path) -> None:
    remains = tmp_path / ".run.part"
    remains.mkdir()
    (remains / "half").write_text("1", "utf-8")
    with new_folder(tmp_path / "run") as draft:
        assert os.listdir(draft) == []
    assert os.listdir(tmp_path) == ["run"]


def test_run_folder_holds_its_results_and_settings(tmp_path: Path) -> None:
    config = RunConfig(cluster="demo16", apps=3, policy="themis", options={"f": 0.5, **LONG})
    with new_folder(tmp_path / "run") as draft:
        result = _written(config, draft, log_to=draft / "events.jsonl")
    folder = tmp_path / "run"
    assert set(os.listdir(folder)) == FILES | {"events.jsonl"}
    told = json.loads((folder / "config.json").read_text("utf-8"))
    assert told["policy"] == "themis"
    assert told["options"] == {"f": 0.5, **LONG}
    assert told["settings"]["lease"] == 14400.0
    assert json.loads((folder / "result.json").read_text("utf-8")) == result.summary
    apps = _records(folder / "apps.jsonl")
    assert [app["app"] for app in apps] == [app.app for app in result.apps]
    rounds = [
        json.loads(line) for line in (folder / "rounds.jsonl").read_text("utf-8").splitlines()
    ]
    assert [record["round"] for record in rounds] == list(range(1, result.outcome.rounds + 1))
    lines = (folder / "segments.csv").read_text("utf-8").splitlines()
    assert lines[0] == "gpu,app,start_s,end_s,source"
    held = sum(float(end) - float(start) for _, _, start, end, _ in map(_cells, lines[1:]))
    assert held / 3600 == pytest.approx(result.summary["gpu_hours"])
    outcome = replay(folder / "events.jsonl", resolve=True)
    assert outcome.same
    assert outcome.finished


def test_a_run_that_draws_lotteries_replays_with_its_auctions_solved_again(tmp_path: Path) -> None:
    told = {"f": 0.0, "payment": "lottery-pf", **LONG}
    config = RunConfig(cluster="demo16", apps=3, policy="themis", options=told)
    with new_folder(tmp_path / "run") as draft:
        _written(config, draft, log_to=draft / "events.jsonl")
    log = tmp_path / "run" / "events.jsonl"
    assert '"lottery":[{"probability":' in log.read_text("utf-8")
    outcome = replay(log, resolve=True)
    assert outcome.same
    assert outcome.resolved > 0


def _records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def _cells(line: str) -> list[str]:
    return line.split(",")


def test_no_file_tells_how_long_the_machine_took(tmp_path: Path) -> None:
    config = RunConfig(cluster="demo16", apps=2, policy="equal-share", options=LONG)
    with new_folder(tmp_path / "run") as draft:
        _written(config, draft)
    for name, content in _contents(tmp_path / "run").items():
        for word in (*TIMING, str(tmp_path), "NaN", "Infinity"):
            assert word.encode() not in content, name


def test_segments_of_one_gpu_never_overlap() -> None:
    result = run(RunConfig(cluster="demo16", apps=4, policy="themis", options=LONG))
    by_gpu: dict[int, list[tuple[float, float]]] = {}
    for item in result.segments:
        by_gpu.setdefault(item.gpu, []).append((item.start, item.end))
    for spans in by_gpu.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end


def _run_under(seed: str, out: Path, policy: str) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "themis", "--quiet", "sim", "run", "--cluster", "demo16", "--apps",
        "3", "--lease", "4h", "--policy", policy, "--out", str(out), "--events", "--json",
    ]  # fmt: skip
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    assert done.stderr == ""
    printed: dict[str, Any] = json.loads(done.stdout)
    return {key: value for key, value in printed.items() if key not in TIMING}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["themis", "equal-share"])
def test_two_hash_seeds_give_the_same_bytes(tmp_path: Path, policy: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert json.dumps(_run_under("1", first, policy)) == json.dumps(_run_under("2", second, policy))
    contents = _contents(first)
    assert set(contents) == FILES | {"events.jsonl"}
    assert contents == _contents(second)
    # The log is not empty, so that this compares something.
    assert contents["events.jsonl"].count(b"\n") > 100


def test_segments_add_up_to_the_gpu_time_of_each_source() -> None:
    result = run(RunConfig(cluster="demo16", apps=3, seed=2, policy="themis", load=0.9))
    hours: dict[str, float] = {}
    for item in result.segments:
        hours[item.source] = hours.get(item.source, 0.0) + (item.end - item.start) / 3600.0
    told = {key: value for key, value in result.summary["gpu_hours_by_source"].items() if value}
    assert hours == pytest.approx(told)


def test_rounds_and_segments_stream_out_and_need_not_be_kept() -> None:
    config = RunConfig(cluster="demo16", apps=3, options=LONG)
    kept = run(config, keep_rounds=True)
    segments: list[Segment] = []
    rounds: list[RoundRecord] = []
    lean = run(config, keep_segments=False, on_segment=segments.append, on_round=rounds.append)
    assert (lean.segments, lean.rounds) == ((), ())
    assert (tuple(segments), tuple(rounds)) == (kept.segments, kept.rounds)
    assert lean.summary == kept.summary
    with pytest.raises(ConfigError, match="keep_segments"):
        lean.plot("timeline")


def test_segments_that_could_be_one_are_one() -> None:
    result = run(RunConfig(cluster="demo16", apps=3, policy="tiresias", options={"lease": "30m"}))
    by_gpu = sorted(result.segments, key=lambda item: (item.gpu, item.start))
    for before, after in pairwise(by_gpu):
        if before.gpu == after.gpu:
            assert before.end <= after.start
            same = (before.app, before.end, before.source) == (after.app, after.start, after.source)
            assert not same
