"""Comparisons: the same bytes for any number of workers, nothing run twice, honest intervals."""

import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from themis.core.model import AppId, GpuId, LeaseSource
from themis.errors import ConfigError, ThemisError
from themis.sim import Comparison, RunConfig, compare, prepare, run, sweep
from themis.sim.compare import estimate, t95
from themis.sim.run import RunResult, Segment
from themis.sim.runs import worker_pool as pools
from themis.sim.runs.result_cache import (
    ResultCache,
    merged,
    run_key,
    score_shares,
    stored,
    usage_of,
)

SHORT = RunConfig(cluster="demo16", apps=1, policy="fifo", options={"lease": "4h"})
HOUR = 3600.0


def files_in(folder: Path) -> dict[str, bytes]:
    """All but what the runs cost, which is never the same."""
    paths = [path for path in sorted(folder.iterdir()) if path.suffix != ".timing"]
    return {path.name: path.read_bytes() for path in paths}


def held(gpu: int, app: str, start: float, end: float) -> Segment:
    return Segment(GpuId(gpu), AppId(app), start, end, LeaseSource.AUCTION)


@pytest.fixture(scope="module")
def result() -> RunResult:
    return run(SHORT)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    out = tmp_path_factory.mktemp("out")
    return compare(["fifo", "equal-share"], [1, 2], SHORT, out=out, workers=1)


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    for workers in (1, 2):
        compare(["fifo"], [1, 2], SHORT, out=tmp_path / str(workers), workers=workers)
    one, two = (files_in(tmp_path / str(workers) / "runs") for workers in (1, 2))
    assert one == two
    assert len(one) == 4


@pytest.mark.slow
def test_run_failing_in_a_worker_is_named_and_others_are_kept(tmp_path: Path) -> None:
    bad = replace(SHORT, policy="themis.testing.policies:NoSuch")
    with pytest.raises(ConfigError):  # found before anything runs
        pools.run_all([SHORT, bad], ResultCache(tmp_path))
    assert files_in(tmp_path) == {}


def test_existing_result_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compare(["fifo"], [1], SHORT, out=tmp_path, workers=1)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it ran again")

    monkeypatch.setattr(pools, "run", never)
    again = compare(["fifo"], [1], SHORT, out=tmp_path, workers=1)
    assert again.to_dict() == first.to_dict()
    assert again.segments == first.segments
    with pytest.raises(AssertionError, match="ran again"):
        compare(["fifo"], [1], SHORT, out=tmp_path, workers=1, fresh=True)


def test_an_interrupted_comparison_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def interrupted(config: RunConfig, **options: Any) -> RunResult:
        if len(ran) == 1:
            raise KeyboardInterrupt
        ran.append(config.seed)
        return run(config, **options)

    monkeypatch.setattr(pools, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(["fifo"], [1, 2], SHORT, out=tmp_path, workers=1)
    assert len(files_in(tmp_path / "runs")) == 2  # a record and its segments
    ran[:] = [0, 0]
    whole = compare(["fifo"], [1, 2], SHORT, out=tmp_path, workers=1)
    assert ran == [0, 0, 2]
    assert [item.config.seed for item in whole.groups[0].runs] == [1, 2]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
def test_workers_do_not_outlive_a_comparison_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "themis", "sim", "compare", "--policies", "themis,min-max-rho",
               "--seeds", "1-2", "--workers", "2", "--out", str(tmp_path / "out")]  # fmt: skip
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        workers = wait_for(lambda: workers_of(parent.pid), lambda found: len(found) == 2)
    finally:
        parent.kill()
        parent.wait()
    gone = wait_for(lambda: [pid for pid in workers if is_worker(pid)], lambda left: not left)
    assert gone == []


def is_worker(pid: int) -> bool:
    """Whether there is such a process and it is one of multiprocessing's."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def workers_of(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children")
    found = children.read_text().split() if children.exists() else []
    return [int(pid) for pid in found if is_worker(int(pid))]


def wait_for(
    look: Callable[[], list[int]], enough: Callable[[list[int]], bool], tries: int = 600
) -> list[int]:
    """Look until it is enough, for a minute at most."""
    for _ in range(tries):
        found = look()
        if enough(found):
            return found
        threading.Event().wait(0.1)
    return look()


def test_a_damaged_file_is_run_again(tmp_path: Path) -> None:
    first = compare(["fifo"], [1], SHORT, out=tmp_path, workers=1)
    (record,) = (tmp_path / "runs").glob("*.json")
    whole = record.read_bytes()
    record.write_bytes(whole[: len(whole) // 2])
    assert compare(["fifo"], [1], SHORT, out=tmp_path, workers=1).to_dict() == first.to_dict()
    assert record.read_bytes() == whole


def test_the_key_follows_from_configuration_and_files(tmp_path: Path) -> None:
    lab = tmp_path / "lab.yaml"
    lab.write_text("racks: [{machines: [{name: a, slots: 1x2}]}]", "utf-8")
    config = replace(SHORT, cluster=str(lab))
    before = run_key(config)
    assert before == run_key(replace(config))
    assert before != run_key(replace(config, seed=2))
    moved = tmp_path / "moved.yaml"
    moved.write_bytes(lab.read_bytes())
    assert before == run_key(replace(config, cluster=str(moved)))
    assert before != run_key(replace(config, workload=str(moved)))
    lab.write_text("racks: [{machines: [{name: a, slots: 1x4}]}]", "utf-8")
    assert before != run_key(config)


def test_run_is_stored_with_its_cost_and_commit(tmp_path: Path) -> None:
    store = ResultCache(tmp_path, commit="abc")
    auction = replace(SHORT, policy="themis")
    assert pools.finish_all([auction], store, workers=1) == 0
    timing = store.timing(auction)
    assert timing is not None
    assert (timing.config, timing.commit) == (auction, "abc")
    assert timing.spans["bid"].count >= 1
    assert timing.spans["bid"].median <= timing.spans["bid"].longest <= timing.cpu_s
    assert [one.config for one in store.timings()] == [auction]
    assert store.timing(SHORT) is None


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_runs_that_are_not_begun_in_time_are_counted(tmp_path: Path, workers: int) -> None:
    store = ResultCache(tmp_path)
    configs = [replace(SHORT, seed=seed) for seed in (1, 2, 3)]
    asked = iter([False] * 2 + [True] * 100)
    left = pools.finish_all(configs, store, workers=workers, stop=lambda: next(asked))
    assert left == sum(not store.has(config) for config in configs) > 0
    assert pools.finish_all(configs, store, workers=1) == 0


def test_a_record_comes_back_as_it_was_written(tmp_path: Path, result: RunResult) -> None:
    store = ResultCache(tmp_path)
    assert store.load(SHORT) is None
    store.save(SHORT, stored(result))
    record = store.load(SHORT)
    assert record is not None
    assert record.config == SHORT
    assert record.apps == result.apps
    assert record.summary["max_rho_ref"] == {
        str(key): value for key, value in result.summary["max_rho_ref"].items()
    }
    assert store.segments(SHORT) == merged(result.segments)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".json"]


def test_segments_that_follow_each_other_are_one() -> None:
    parts = [held(1, "b", 5, 9), held(0, "a", 2, 3), held(0, "a", 0, 2), held(0, "b", 3, 4)]
    assert merged(parts) == (held(0, "a", 0, 3), held(0, "b", 3, 4), held(1, "b", 5, 9))


def test_usage_counts_gpus_by_the_hour() -> None:
    usage = usage_of([held(0, "a", 0.0, 1.5 * HOUR), held(1, "a", HOUR, 2 * HOUR)])
    assert (usage.step, usage.gpus) == (HOUR, (1.0, 1.5))


def test_usage_of_a_long_run_takes_no_more_room() -> None:
    usage = usage_of([held(0, "a", 0.0, 5000 * HOUR)])
    assert len(usage.gpus) <= 500
    assert usage.step * sum(usage.gpus) == pytest.approx(5000 * HOUR)


def test_scores_are_added_up_by_value() -> None:
    assert score_shares([(0.9, 2.0), (0.5, 1.0), (0.90001, 3.0)]) == ((0.5, 1.0), (0.9, 5.0))


def test_an_interval_by_hand() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.303 / math.sqrt(3))
    assert estimate([5.0]).half is None


def test_points_of_t_fall_towards_the_normal() -> None:
    points = [t95(freedom) for freedom in range(1, 200)]
    assert points == sorted(points, reverse=True)
    assert t95(30) == pytest.approx(2.042)
    assert t95(60) == pytest.approx(2.0003, abs=0.003)
    assert t95(100_000) == pytest.approx(1.96, abs=0.001)


def test_all_policies_see_the_same_apps(comparison: Comparison) -> None:
    first, second = comparison.groups
    for one, other in zip(first.runs, second.runs, strict=True):
        assert [app.arrival for app in one.apps] == [app.arrival for app in other.apps]
    assert comparison.policies == ["fifo", "equal-share"]


def test_estimates_are_means_over_the_seeds(comparison: Comparison) -> None:
    runs = comparison.groups[0].runs
    mean = sum(item.summary["gpu_hours"] for item in runs) / 2
    assert comparison.estimates("fifo")["gpu_hours"].mean == pytest.approx(mean)
    with pytest.raises(ConfigError, match="equal-share"):
        comparison.estimates("equal-shares")


def test_rows_are_flat_and_json_is_finite(comparison: Comparison) -> None:
    rows = comparison.run_rows()
    assert [(row["policy"], row["seed"]) for row in rows] == [
        ("fifo", 1), ("fifo", 2), ("equal-share", 1), ("equal-share", 2),
    ]  # fmt: skip
    assert all(not isinstance(value, dict) for row in rows for value in row.values())
    assert rows[0]["max_rho_ref_fair_share"] > 0
    json.dumps(comparison.to_dict(), allow_nan=False)


def test_option_is_passed_to_policies_that_have_it() -> None:
    seen: list[str] = []
    base = replace(SHORT, options={"lease": "4h", "f": 0.5})
    both = compare(["fifo", "themis"], [1], base, workers=1, progress=lambda *a: seen.append(a[2]))
    assert [dict(group.runs[0].config.options) for group in both.groups] == [
        {"lease": "4h"}, {"lease": "4h", "f": 0.5},
    ]  # fmt: skip
    assert seen[-1] == "2 of 2 runs, 100 % of the work"
    with pytest.raises(ConfigError, match="did you mean 'lease'"):
        compare(["fifo"], [1], replace(SHORT, options={"leese": "4h"}))


def test_a_sweep_varies_flags_and_options() -> None:
    loads = sweep("load", [0.5, 1.0], ["fifo"], [1], SHORT, workers=1)
    assert [group.runs[0].summary["load"] for group in loads.groups] == pytest.approx([0.5, 1.0])
    leases = sweep("lease", ["2h", "4h"], ["fifo"], [1], SHORT, workers=1)
    assert leases.values == ["2h", "4h"]
    assert leases.run_rows()[0]["lease"] == "2h"
    assert leases.estimates("fifo", "4h")["moves"].runs == 1


@pytest.mark.parametrize(
    ("key", "values"), [("seed", [1]), ("policy", ["fifo"]), ("lease", []), ("lease", [60, 60])]
)
def test_unsweepable_option_is_refused(key: str, values: list[Any]) -> None:
    with pytest.raises(ConfigError):
        sweep(key, values, ["fifo"], [1], SHORT)


@pytest.mark.parametrize(("policies", "seeds"), [([], [1]), (["fifo"] * 2, [1]), (["fifo"], [])])
def test_nothing_and_twice_are_refused(policies: list[str], seeds: list[int]) -> None:
    with pytest.raises(ConfigError):
        compare(policies, seeds, SHORT)


def test_the_same_figure_has_the_same_bytes(comparison: Comparison, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    first, second = (comparison.plot("rho").save(tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == ["a.svg", "a.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_every_figure_of_a_comparison_shows_something(comparison: Comparison) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    for kind in ("rho", "usage", "placement", "timeline"):
        (axes,) = comparison.plot(kind).figure.axes
        assert len(axes.get_children()) > 10
        assert axes.has_data()
    with pytest.raises(ConfigError, match="did you mean 'usage'"):
        comparison.plot("usages")


def test_a_sweep_has_a_figure_of_its_own(comparison: Comparison) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    groups = [replace(group, policy="fifo", value=n) for n, group in enumerate(comparison.groups)]
    drawing = Comparison(tuple(groups), "load").plot()
    assert len(drawing.figure.axes) == 3


def test_a_notebook_shows_a_result_by_itself(result: RunResult) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    for kind in ("timeline", "usage"):
        assert result.plot(kind)._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="timeline"):
        result.plot("time")


def test_notebook_output_is_short(result: RunResult, comparison: Comparison) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    assert result.summary["policy"] in repr(result)
    assert "max rho_ref" in repr(result)
    assert "fifo" in repr(comparison)
    assert "Utilisation" in repr(result.plot("usage"))
    for item in (result, comparison, result.plot("usage")):
        assert len(repr(item)) < 200


def test_the_axis_of_rho_says_where_its_scale_changes(result: RunResult) -> None:
    pytest.importorskip("matplotlib", reason="the figures need themis-scheduler[figures]")
    (axes,) = result.plot("rho").figure.axes
    assert axes.get_xscale() == "symlog"
    assert "log scale above 2" in axes.get_xlabel()


def test_a_dataframe_has_a_row_per_app(
    result: RunResult, comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    rows = result.to_dataframe()
    assert [row["app"] for row in rows] == [app.app for app in result.apps]
    assert rows[0]["rho_ref_fair_share"] > 0
    assert rows[0]["completion_h"] == pytest.approx(result.apps[0].completion / HOUR)
    assert len(comparison.to_dataframe()) == 4
    assert len(comparison.to_dataframe(per="app")) == 4
    with pytest.raises(ConfigError, match="app, run"):
        comparison.to_dataframe(per="job")


def test_pandas_itself_takes_the_rows(result: RunResult, comparison: Comparison) -> None:
    pandas = pytest.importorskip("pandas", reason="tables need themis-scheduler[notebook]")
    apps = result.to_dataframe()
    assert isinstance(apps, pandas.DataFrame)
    assert list(apps["app"]) == [str(app.app) for app in result.apps]
    numbers = apps.drop(columns="app")
    assert (numbers.dtypes == "float64").all()
    assert apps["rho_ref_fair_share"].max() == pytest.approx(
        result.summary["max_rho_ref"]["fair_share"]
    )
    runs = comparison.to_dataframe()
    assert list(runs.groupby("policy").size()) == [2, 2]
    assert set(comparison.to_dataframe(per="app")["seed"]) == set(runs["seed"])


def test_missing_pandas_is_explained(result: RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pip install pandas"):
        result.to_dataframe()


def test_impossible_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1", "utf-8")
    with pytest.raises(ConfigError, match="can be written"):
        compare(["fifo"], [1], SHORT, out=tmp_path / "file", workers=1)


def test_a_run_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(*_: object, **__: object) -> None:
        raise ThemisError("stuck")

    monkeypatch.setattr(pools, "run", stuck)
    prepare(SHORT)
    with pytest.raises(ThemisError, match="fifo, seed 1: stuck"):
        pools.run_all([SHORT], ResultCache(tmp_path), workers=1)
