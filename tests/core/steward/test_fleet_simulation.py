"""Whole clusters in virtual time, with all kinds of faults.

In the tests half a million events over five hundred seeds; `make chaos` has twenty times as many.
"""

import os
import subprocess
import sys

import pytest

from tests.support.fleet import CALM, SERVICE_ONLY, FleetSim, Weather, run_seeds
from tests.support.fleet.simulation import SETTINGS
from tests.support.requirements import CHAOS

SEEDS = 85
CHUNKS = 120 if CHAOS else 6


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_invariant_holds_after_every_event(chunk: int) -> None:
    results = run_seeds(range(chunk * SEEDS, (chunk + 1) * SEEDS))
    assert sum(result.events for result in results) >= 84_000
    assert sum(result.starts for result in results) >= 1_000
    assert sum(result.handovers for result in results) >= 500
    assert sum(result.epochs > 1 for result in results) >= SEEDS / 3


def test_a_cluster_without_faults_serves_every_app_soon() -> None:
    for result in run_seeds(range(10), weather=CALM):
        assert result.epochs == 1
        assert result.served_after < SETTINGS.lease


@pytest.mark.parametrize("seed", range(10))
def test_a_restart_of_the_service_ends_no_training(seed: int) -> None:
    # The checker fails if a process is ended because its node believes itself cut off.
    assert FleetSim(seed, weather=SERVICE_ONLY).run().starts > 0


def test_users_end_an_app_again_whose_end_the_service_lost() -> None:
    sim = FleetSim(0, weather=CALM)
    lost = []

    def lose_the_end() -> None:
        app = next(iter(set(sim.service.durable.world.apps) - set(sim.agents.lasting)))
        sim.weather = Weather(torn=1.0)
        sim.agents.end(app)
        sim.weather = CALM
        assert not sim.service.up
        assert app in sim.service.durable.world.apps
        lost.append(app)

    sim.at(5.0, sim.agents.submit, 1)
    sim.at(7.0, lose_the_end)
    sim.run()
    assert not set(lost) & set(sim.service.durable.world.apps)
    assert lost


def test_a_seed_is_the_same_story_under_any_hash_seed() -> None:
    code = "from tests.support.fleet import run_seeds; print(*run_seeds(range(40, 44)), sep='\\n')"
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert told[0].count("\n") == 4
