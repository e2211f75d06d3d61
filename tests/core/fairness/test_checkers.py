import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.fairness import (
    Values,
    is_envy_free,
    is_pareto_efficient,
    jain_index,
    sharing_incentive,
)
from themis.core.model import AppId, GpuId
from themis.errors import ConfigError

A, B, C = AppId("a"), AppId("b"), AppId("c")


def gpus(*numbers: int) -> frozenset[GpuId]:
    return frozenset(GpuId(number) for number in numbers)


def count(_: AppId, held: frozenset[GpuId]) -> float:
    return float(len(held))


def wants(**wishes: set[int]) -> Values:
    """Each app values only the GPUs it wishes for."""
    return lambda app, held: float(len(held & wishes[app]))


def test_sharing_incentive_lists_worse_treated_apps_worst_first() -> None:
    verdict = sharing_incentive({A: 1.3, B: 1.05, C: 2.0, AppId("d"): 0.5})
    assert not verdict
    assert verdict.share == 0.5
    assert verdict.violations == ((C, 2.0), (A, 1.3))


def test_sharing_incentive_holds_within_the_limit_and_without_apps() -> None:
    assert sharing_incentive({A: 1.05, B: 0.2})
    assert sharing_incentive({}).share == 1.0


def test_rho_that_is_nan_does_not_pass_as_fair() -> None:
    verdict = sharing_incentive({A: 3.0, B: math.nan})
    assert [app for app, _ in verdict.violations] == [B, A]


def test_envy_is_found_with_both_values() -> None:
    verdict = is_envy_free({A: gpus(0), B: gpus(1, 2, 3), C: gpus(4, 5)}, count)
    assert not verdict
    assert verdict.envy is not None
    assert (verdict.envy.app, verdict.envy.envied) == (A, B)
    assert (verdict.envy.own, verdict.envy.other) == (1.0, 3.0)


def test_equal_bundles_and_different_tastes_cause_no_envy() -> None:
    assert is_envy_free({A: gpus(0, 1), B: gpus(2, 3)}, count)
    assert is_envy_free({A: gpus(0), B: gpus(1, 2)}, wants(a={0}, b={1, 2}))


def test_app_with_a_larger_share_is_not_envied() -> None:
    allocation = {A: gpus(0), B: gpus(1, 2)}
    assert not is_envy_free(allocation, count)
    assert is_envy_free(allocation, count, weights={A: 1.0, B: 2.0})
    assert not is_envy_free(allocation, count, weights={A: 2.0, B: 1.0})


def test_pareto_improvement_is_found() -> None:
    values = wants(a={2, 3}, b={0, 1})
    verdict = is_pareto_efficient({A: gpus(0, 1), B: gpus(2, 3)}, values)
    assert not verdict
    assert verdict.better is not None
    assert values(A, verdict.better[A]) + values(B, verdict.better[B]) > 0.0
    assert is_pareto_efficient({A: gpus(2, 3), B: gpus(0, 1)}, values)


def test_idle_gpu_that_an_app_could_use_is_inefficient() -> None:
    allocation = {A: gpus(0), B: gpus(1)}
    assert is_pareto_efficient(allocation, count)
    verdict = is_pareto_efficient(allocation, count, pool=gpus(0, 1, 2))
    assert not verdict
    assert verdict.better is not None
    assert sum(map(len, verdict.better.values())) == 3


def test_helping_one_at_the_cost_of_another_is_no_improvement() -> None:
    assert is_pareto_efficient({A: gpus(0, 1, 2), B: gpus()}, count)


def test_a_large_instance_is_refused_rather_than_searched_forever() -> None:
    with pytest.raises(ConfigError, match="2 apps and 16 GPUs"):
        is_pareto_efficient({A: gpus(*range(8)), B: gpus(*range(8, 16))}, count)


@given(
    st.lists(st.sampled_from((A, B, None)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=5, max_size=5),
)
def test_with_additive_values_efficiency_means_no_dominating_deal(
    owners: list[AppId | None], worth: list[tuple[int, int]]
) -> None:
    def values(app: AppId, held: frozenset[GpuId]) -> float:
        return float(sum(worth[gpu][app == B] for gpu in held))

    held = {app: gpus(*(g for g, owner in enumerate(owners) if owner == app)) for app in (A, B)}
    now = [values(app, held[app]) for app in (A, B)]
    everything = range(1 << len(owners))
    dominated = any(
        one >= now[0] and two >= now[1] and one + two > sum(now)
        for mask in everything
        for one, two in [
            (
                values(A, gpus(*(g for g in range(len(owners)) if mask >> g & 1))),
                values(B, gpus(*(g for g in range(len(owners)) if not mask >> g & 1))),
            )
        ]
    )
    verdict = is_pareto_efficient(held, values, pool=gpus(*range(len(owners))))
    assert bool(verdict) is not dominated


@pytest.mark.parametrize(
    ("values", "index"),
    [([2, 2, 2], 1.0), ([1, 0, 0, 0], 0.25), ([1, 3], 0.8), ([], 1.0), ([0, 0], 1.0)],
)
def test_the_jain_index_runs_from_one_over_n_to_one(values: list[float], index: float) -> None:
    assert jain_index(values) == pytest.approx(index)
