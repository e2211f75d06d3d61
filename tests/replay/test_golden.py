"""Logs of earlier versions: every policy must still decide as it did, event by event.

A change that means to decide otherwise writes them anew: `python tests/replay/test_golden.py`, and
the review shows in their diff what became different.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.small_sims import sim_app, simulate, workload_of
from themis.core.arbiter import ContentionOf, Settings
from themis.core.arbiter.commands import Command
from themis.core.arbiter.events import Event
from themis.core.model import Machine, Phase, Slowdown, Topology
from themis.core.policies.registry import POLICIES
from themis.recording.event_log import EventLogReader, LogWriter, header_of
from themis.recording.replay import replay
from themis.sim.modelled_jobs import JobCosts
from themis.sim.workloads import Workload

GOLDEN = Path(__file__).parent / "golden"
TOPOLOGY = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2,)), Machine("m2", "r1", (2,)))
)
SETTINGS = Settings(lease=300.0)
WITH_SHARES = Settings(lease=300.0, contention_of=ContentionOf.SHARES)
SEED = 7
NAMES = sorted(POLICIES)


def workload() -> Workload:
    """A sweep with two phases, a picky gang, a late small app: all fight for eight GPUs."""
    far = Slowdown((1.0, 1.2, 2.5, 4.0))
    sweep = (Phase(4, 900), Phase(2, 900))
    return workload_of(
        sim_app("sweep", jobs=4, max_gpus=2, phases=sweep, qualities=(0.1, 0.4, 0.2, 0.3)),
        sim_app("gang", arrival=120.0, work=4000.0, max_gpus=4, min_gpus=2, slowdown=far),
        sim_app("late", arrival=700.0, work=500.0, jobs=2),
        sim_app("wide", arrival=800.0, work=1500.0, jobs=3, max_gpus=2, weight=2.0),
    )


class _Writing:
    """Writes every event with its commands to a log."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log

    def handled(self, event: Event, commands: Sequence[Command]) -> None:
        self._log.write(event, commands)


def write(name: str, path: Path) -> None:
    """Simulate the golden workload under a policy and keep its log."""
    settings = WITH_SHARES if name == "themis" else SETTINGS
    header = header_of(TOPOLOGY, name, settings, seed=SEED)
    with LogWriter(path, header, overwrite=True) as log:
        simulate(
            TOPOLOGY,
            workload(),
            name,
            settings=settings,
            seed=SEED,
            costs=JobCosts(),
            observers=[_Writing(log)],
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_decides_as_it_did(name: str) -> None:
    result = replay(GOLDEN / f"{name}.jsonl")
    assert result.same, result.first_difference


@pytest.mark.parametrize("name", NAMES)
def test_a_simulation_gives_the_golden_log(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / "log.jsonl")
    with (
        EventLogReader(tmp_path / "log.jsonl") as new,
        EventLogReader(GOLDEN / f"{name}.jsonl") as old,
    ):
        for number, (mine, theirs) in enumerate(itertools.zip_longest(new, old)):
            assert mine == theirs, f"entry {number} differs"


def test_every_golden_log_has_its_policy() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.jsonl")) == NAMES


def test_a_changed_command_is_noticed(tmp_path: Path) -> None:
    text = (GOLDEN / "equal-share.jsonl").read_text()
    forged = tmp_path / "forged.jsonl"
    forged.write_text(text.replace('"granted":[{"gpu":0,', '"granted":[{"gpu":1,', 1))
    assert text != forged.read_text()
    assert not replay(forged).same


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in NAMES:
        write(each, GOLDEN / f"{each}.jsonl")
        print(f"wrote {each}")
