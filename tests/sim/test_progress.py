"""What is heard of many runs: only those of this call, and the end when it is the end."""

from pathlib import Path

from themis.sim import RunConfig
from themis.sim.runs.result_cache import ResultCache
from themis.sim.runs.worker_pool import PARTS, finish_all


def _configs(seeds: range) -> list[RunConfig]:
    return [
        RunConfig(cluster="demo16", apps=2, policy="fifo", seed=seed, options={"lease": "4h"})
        for seed in seeds
    ]


def test_runs_that_were_there_do_not_make_the_rest_look_quick(tmp_path: Path) -> None:
    store = ResultCache(tmp_path)
    finish_all(_configs(range(1, 4)), store, workers=1)
    news: list[tuple[int, int, str]] = []
    finish_all(_configs(range(1, 6)), store, workers=1, progress=lambda *told: news.append(told))
    begun = [told for told in news if "checking" not in told[2]]
    assert begun[0] == (0, 4, "3 of 5 runs, 0 % of what was missing")
    assert begun[-1] == (4, 4, "5 of 5 runs, 100 % of what was missing")


def test_all_apps_are_finished_only_when_all_runs_are_kept(tmp_path: Path) -> None:
    news: list[tuple[int, int, str]] = []
    finish_all(
        _configs(range(1, 4)),
        ResultCache(tmp_path),
        workers=1,
        progress=lambda *told: news.append(told),
    )
    ends = {text for done, total, text in news if done == total}
    assert ends == {"3 of 3 runs, 100 % of the work"}
    assert [done for done, _, _ in news] == sorted(done for done, _, _ in news)


def test_where_the_cost_of_runs_is_known_it_is_what_is_counted(tmp_path: Path) -> None:
    configs = _configs(range(1, 4))
    store = ResultCache(tmp_path)
    finish_all(configs[:1], store, workers=1)
    cost = {repr(configs[1]): 10.0, repr(configs[2]): 990.0}
    news: list[tuple[int, int, str]] = []
    finish_all(
        configs, store, workers=1, cost=cost, progress=lambda *told: news.append(told)
    )  # fmt: skip
    counted = [told for told in news if "checking" not in told[2]]
    assert counted[0] == (0, PARTS, "1 of 3 runs, 0 % of what was missing")
    # One of two runs is there, but hardly anything of the time that both take.
    assert (PARTS // 100, PARTS, "2 of 3 runs, 1 % of what was missing") in counted
    assert counted[-1] == (PARTS, PARTS, "3 of 3 runs, 100 % of what was missing")
