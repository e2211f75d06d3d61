"""Machines that rest, and GPUs that others use, on clusters of other schedulers."""

from typing import cast

from themis.engines.remote.backoff import ForeignGpus, MachineBackoff, gpus_with_troubles
from themis.engines.remote.engine import RemoteEngine


class Engine:
    """One that hears its supervisors, or not."""

    def __init__(self) -> None:
        self.quiet = False


def opened(resting: MachineBackoff) -> Engine:
    engine = Engine()
    resting.opened("n0", cast("RemoteEngine", engine))
    return engine


def test_a_machine_whose_supervisors_are_silent_rests_longer_each_time() -> None:
    now = 1000.0
    resting = MachineBackoff(lambda: now)
    lengths = []
    for _ in range(3):
        opened(resting).quiet = True
        began = now
        assert resting.backs_off("n0")
        while resting.backs_off("n0"):
            now += 1.0
        lengths.append(now - began)
    assert lengths == [60.0, 120.0, 240.0]


def test_recovered_machine_is_used_at_once() -> None:
    resting = MachineBackoff(lambda: 1000.0)
    opened(resting).quiet = True
    resting.is_down("n0")
    assert not resting.backs_off("n0"), "what its former engine heard was before"


def test_foreign_usage_counts_after_two_agreeing_observations() -> None:
    others = ForeignGpus("Ray")
    assert [len(others.troubles("n0", used)) for used in (3, 1, 2, -1, 2)] == [0, 1, 1, 0, 0]


def test_gpus_with_trouble_are_the_last_that_are_not_ours() -> None:
    gpus = gpus_with_troubles(4, "a100", ["others", "others"], busy=[3])
    assert [gpu.trouble for gpu in gpus] == ["", "others", "others", ""]
