"""Everything in whole seconds and starts for nothing: many things happen at the same instant."""

import random

import pytest

from tests.support.small_sims import Auditor, sim_app, simulate, workload_of
from themis.core.arbiter import Settings
from themis.core.model import Phase
from themis.core.model.presets import preset
from themis.sim.workloads import SimApp

WHOLE = Settings(
    lease=60.0, bid_deadline=1.0, solve_budget=1.0, grace=2.0, heartbeat=1.0, guard=1.0,
    pooling=4.0, idle_after=0.0,
)  # fmt: skip
LENGTHS = (24, 30, 54, 60, 108, 114, 120)
"""Iterations of a second each; many end where a round opens or a lease ends."""


def _app(name: str, rng: random.Random) -> SimApp:
    jobs, most = rng.randint(1, 4), rng.choice((1, 2, 4, 8))
    phases = [Phase(jobs, rng.choice((*LENGTHS, 54 * most, 108 * most)))]
    if jobs > 1 and rng.random() < 0.5:
        phases.append(Phase(max(1, jobs // 2), rng.choice(LENGTHS)))
    return sim_app(
        name,
        arrival=float(rng.randrange(0, 400, rng.choice((1, 2, 6, 30)))),
        jobs=jobs,
        max_gpus=most,
        min_gpus=rng.choice((1, most)),
        phases=phases,
    )


@pytest.mark.parametrize("rule", ["themis", "equal-share", "gandiva", "tiresias", "fifo"])
def test_no_app_waits_for_an_unreported_end(rule: str) -> None:
    for seed in range(12):
        rng = random.Random(f"ties/{seed}")
        apps = [_app(f"a{number}", rng) for number in range(rng.randint(2, 7))]
        workload = workload_of(*apps)
        outcome = simulate(preset("demo16"), workload, rule, WHOLE, observers=[Auditor()])
        assert len(outcome.apps) == len(apps), seed
