"""The audit of iteration times: lies are found and replaced, errors and noise are forgiven."""

import math
import random

import pytest

from themis.core.arbiter.iteration_time_audit import (
    FALSE_ALARMS,
    NOISE,
    Audit,
    corrected_bid,
    corrected_table,
)
from themis.core.model import (
    CLUSTER,
    MACHINE,
    RACK,
    SLOT,
    AppId,
    AppSpec,
    Bid,
    Chunk,
    JobId,
    JobSpec,
    OwnerId,
    Phase,
    Row,
    Slowdown,
    TableRow,
)

J = JobId("j0")
TRUTH = Slowdown((1.0, 1.1, 1.5, 2.0))
TOLERANCE = 0.25


def _audit(serial: float = 1.0, declared: Slowdown = TRUTH) -> Audit:
    """Of an app with one job that says its iterations take so long; they take a second."""
    job = JobSpec(J, serial, 4, slowdown=declared)
    return Audit(AppSpec(AppId("a"), OwnerId("a"), (job,), (Phase(1, 10**6),)))


def _run(
    audit: Audit,
    level: int,
    count: int = 4,
    samples: int = 10,
    rng: random.Random | None = None,
    tolerance: float = TOLERANCE,
) -> int:
    """Let the job train for a while on such GPUs; returns how many samples it took to an alarm."""
    audit.start(J, level, count)
    process = audit._processes[J]
    done = process.seen
    if process.mixed:
        audit.measure(J, done, 0.0, tolerance)
    for number in range(samples):
        seconds = 600.0 * (math.exp(rng.gauss(0.0, NOISE)) if rng else 1.0)
        done += 600.0 * count / TRUTH.at(level, count)
        if audit.measure(J, done, seconds, tolerance):
            return number + 1
    return 0


@pytest.mark.parametrize("level", [SLOT, MACHINE, RACK, CLUSTER])
def test_the_truth_is_never_contradicted(level: int) -> None:
    audit = _audit()
    assert _run(audit, level, samples=1000) == 0
    assert audit.alarms == 0
    assert (audit.serial_factor, audit.level_factors) == (1.0, (1.0, 1.0, 1.0, 1.0))


@pytest.mark.parametrize("factor", [0.8, 0.9, 1.1, 1.2])
@pytest.mark.parametrize("level", [SLOT, MACHINE, RACK, CLUSTER])
def test_errors_of_a_fifth_are_forgiven(factor: float, level: int) -> None:
    audit = _audit()
    audit.hear(Slowdown(tuple(max(1.0, value * factor) for value in TRUTH.levels)), TOLERANCE)  # type: ignore[arg-type]
    assert _run(audit, level, samples=1000) == 0
    declared = _audit(serial=factor)
    for _ in range(10):
        _run(declared, level, samples=100)
    assert declared.alarms == 0


@pytest.mark.parametrize("count", [1, 2])
def test_an_iteration_time_that_is_a_little_short_is_replaced_without_alarm(count: int) -> None:
    audit = _audit(serial=0.8)
    rng = random.Random(3)
    for _ in range(100):
        _run(audit, SLOT, count, samples=10, rng=rng)
    assert audit.alarms == 0
    assert audit.serial_factor == pytest.approx(1 / 0.8, rel=0.04)
    # No more than is sure.
    assert audit.serial_factor < 1 / 0.8


def test_deviation_within_noise_changes_no_iteration_time() -> None:
    for seed in range(20):
        honest = _audit()
        rng = random.Random(seed)
        for _ in range(20):
            _run(honest, SLOT, 1, samples=10, rng=rng)
        assert honest.serial_factor == pytest.approx(1.0, abs=0.06)
    between_slots = _audit(serial=0.9)
    assert _run(between_slots, MACHINE, samples=1000) == 0
    overstated = _audit(serial=1.2)
    assert _run(overstated, SLOT, 1, samples=1000) == 0
    assert (between_slots.serial_factor, overstated.serial_factor) == (1.0, 1.0)


def test_an_overstated_slowdown_does_not_bring_back_a_short_iteration_time() -> None:
    audit = _audit(serial=0.82)
    for _ in range(10):
        _run(audit, SLOT, 1, samples=10)
    put_right = audit.serial_factor
    assert put_right > 1.15
    audit.hear(Slowdown((1.0, 2.4, 3.0, 4.0)), TOLERANCE)
    assert _run(audit, MACHINE)
    assert audit.alarms == 1
    assert audit.serial_factor == pytest.approx(put_right, rel=0.02)


def test_a_slowdown_within_slots_that_was_claimed_is_no_longer_iteration_time() -> None:
    declared = Slowdown((1.0, 1.1, 1.5, 2.0))
    audit = _audit(serial=1 / 1.08, declared=declared)
    audit.hear(Slowdown((1.08, 1.1, 1.5, 2.0)), TOLERANCE)
    for _ in range(20):
        _run(audit, SLOT, 2, samples=10)
    assert audit.serial_factor == 1.0
    # But only so much of it: nobody hides half of its work there.
    liar = _audit(serial=0.7, declared=declared)
    liar.hear(Slowdown((1 / 0.7, 1 / 0.7, 1.5, 2.0)), TOLERANCE)
    for _ in range(20):
        _run(liar, SLOT, 2, samples=10)
    assert liar.serial_factor > 1.2


def test_certain_excess_over_tolerance_is_marked_and_charged_once() -> None:
    audit = _audit(serial=1 / 1.3)
    charged = []
    rng = random.Random(5)
    for _ in range(200):
        _run(audit, SLOT, 1, samples=10, rng=rng)
        charged.append(audit.charge(TOLERANCE))
    assert audit.alarms >= 1
    (share,) = filter(None, charged)
    assert share == pytest.approx(1 - 1 / 1.3, abs=0.03)


def test_one_stall_in_a_slot_is_forgotten_in_time() -> None:
    audit = _audit()
    audit.start(J, SLOT, 1)
    audit.measure(J, 100.0, 1e9, TOLERANCE)
    for _ in range(10):
        _run(audit, SLOT, 1, samples=10)
    assert audit.alarms == 0
    assert audit.serial_factor == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("serial", [1 / (1 + TOLERANCE), 1 + TOLERANCE], ids=["low", "high"])
def test_noise_raises_no_more_false_alarms_than_stated(serial: float) -> None:
    # Claims that are wrong by as much as is tolerated, the worst case.
    rng = random.Random(7)
    samples = 0
    alarms = 0
    while samples < 2 / FALSE_ALARMS:
        audit = _audit(serial)
        taken = _run(audit, MACHINE, samples=2000, rng=rng)
        samples += taken or 2000
        alarms += bool(taken)
    assert alarms / samples <= FALSE_ALARMS


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_factor_two_lie_is_detected_within_few_noisy_samples(factor: float) -> None:
    for seed in range(20):
        assert 3 <= _run(_audit(serial=factor), MACHINE, rng=random.Random(seed)) <= 5


def test_a_single_stall_is_no_lie() -> None:
    audit = _audit()
    audit.start(J, MACHINE, 4)
    assert not audit.measure(J, 100.0, 1e9, TOLERANCE)
    assert _run(audit, MACHINE, samples=100) == 0


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize(("level", "count"), [(SLOT, 1), (SLOT, 2), (MACHINE, 4)])
def test_a_false_iteration_time_is_replaced(factor: float, level: int, count: int) -> None:
    audit = _audit(serial=factor)
    assert _run(audit, level, count)
    # What is wrong is known, but for the slowdown of a tenth within a machine.
    assert audit.serial_factor * audit.level_factors[level] == pytest.approx(1.0 / factor)
    assert audit.serial_factor == pytest.approx(1.0 / factor, rel=0.11)


def test_an_overstated_slowdown_of_spread_gangs_is_replaced_at_all_spread_levels() -> None:
    audit = _audit()
    audit.hear(Slowdown((1.0, 1.1, 3.0, 4.0)), TOLERANCE)
    assert _run(audit, RACK)
    assert audit.serial_factor == 1.0
    assert audit.level_factors == pytest.approx((1.0, 1.0, 0.5, 0.5))


def test_an_overstated_slowdown_within_a_machine_makes_no_shorter_iterations() -> None:
    audit = _audit()
    audit.hear(Slowdown((2.0, 2.2, 3.0, 4.0)), TOLERANCE)
    assert _run(audit, MACHINE)
    assert audit.serial_factor == 1.0
    assert audit.level_factors[:2] == pytest.approx((0.5, 0.5))


def test_a_level_that_was_measured_and_fits_is_left_alone() -> None:
    audit = _audit()
    audit.hear(Slowdown((1.0, 1.1, 1.5, 4.0)), TOLERANCE)
    assert not _run(audit, RACK)
    assert _run(audit, CLUSTER)
    assert audit.level_factors == pytest.approx((1.0, 1.0, 1.0, 0.5))


def test_a_promised_speed_up_is_no_better_iteration_time() -> None:
    audit = _audit()
    audit.hear(TRUTH.with_measured(MACHINE, 4, 0.5), TOLERANCE)
    assert _run(audit, MACHINE)
    assert audit.serial_factor == pytest.approx(1.1)
    assert audit.level_factors[MACHINE] * audit.serial_factor == pytest.approx(2.2)


def test_corrected_agent_is_trusted_again_but_stays_marked() -> None:
    audit = _audit(declared=Slowdown())
    assert _run(audit, CLUSTER)
    assert audit.level_factors[CLUSTER] == pytest.approx(2.0)
    assert audit.hear(TRUTH, TOLERANCE)
    assert audit.level_factors == pytest.approx((1.0, 1.0, 1.0, 1.0))
    assert audit.alarms == 1
    assert not _run(audit, CLUSTER)


def test_a_sample_that_tells_of_two_processes_tells_nothing() -> None:
    audit = _audit()
    audit.start(J, CLUSTER, 4)
    for number in range(1, 20):
        # Trained on four GPUs until now, on one from now on: the next sample is of both.
        audit.start(J, SLOT, 1)
        assert not audit.measure(J, number * 1200.0, 600.0, TOLERANCE)
    assert audit.alarms == 0


def test_work_lost_in_a_crash_is_no_slow_iteration() -> None:
    audit = _audit()
    audit.start(J, SLOT, 1)
    for number in range(20):
        assert not audit.measure(J, 600.0 + number, 600.0 + number, TOLERANCE)
        assert not audit.measure(J, 0.0, 0.0, TOLERANCE)
    assert audit.alarms == 0


def test_audit_corrects_rows_and_tables_by_level_but_not_single_gpus() -> None:
    factors = (1.0, 2.0, 3.0, 4.0)
    table = (TableRow(CLUSTER, 1, 10.0), TableRow(RACK, 2, 10.0))
    assert corrected_table(table, factors) == (TableRow(CLUSTER, 1, 10.0), TableRow(RACK, 2, 30.0))
    rows = (
        Row((Chunk(MACHINE, 2), Chunk(SLOT, 1)), 10.0),
        Row((Chunk(CLUSTER, 1),), 10.0),
    )
    bid = corrected_bid(Bid(AppId("a"), rows, table), factors)
    assert [row.seconds for row in bid.rows] == [20.0, 10.0]
    assert bid.table == corrected_table(table, factors)
    assert [row.seconds for row in corrected_bid(bid, (1.0,) * 4, 3.0).rows] == [60.0, 30.0]


def _guess(serial: float = 30.0) -> Audit:
    """Of an app that does not know how long its iterations take; they take a second."""
    job = JobSpec(J, serial, 4, slowdown=TRUTH)
    phases = (Phase(1, 10**6),)
    return Audit(AppSpec(AppId("a"), OwnerId("a"), (job,), phases, estimated=True))


@pytest.mark.parametrize("tolerance", [TOLERANCE, 0.0])
@pytest.mark.parametrize("level", [MACHINE, RACK])
def test_a_guess_is_replaced_by_the_first_iterations_and_then_fixed(
    level: int, tolerance: float
) -> None:
    audit = _guess()
    before, changed = audit.estimated, _run(audit, level, tolerance=tolerance)
    assert (before, changed, audit.estimated) == (True, 1, False)
    assert audit.serial_factor == pytest.approx(1 / 30.0)
    assert _run(audit, level, samples=100, tolerance=tolerance) == 0
    assert audit.alarms == 0, "it said nothing that could be contradicted"


def test_fewer_than_twenty_iterations_and_the_start_up_tell_nothing() -> None:
    audit = _guess()
    audit.start(J, SLOT, 1)
    assert not audit.measure(J, 25.0, 300.0, TOLERANCE), "its libraries were loaded meanwhile"
    assert not audit.measure(J, 44.0, 19.0, TOLERANCE)
    assert audit.estimated
    assert audit.measure(J, 46.0, 2.0, TOLERANCE)
    assert audit.serial_factor == pytest.approx(1 / 30.0)


def test_value_that_replaced_a_guess_is_kept() -> None:
    audit, again = _guess(), _guess()
    _run(audit, MACHINE)
    again.take_back(audit.part())
    assert again.part() == audit.part()
    assert _run(again, MACHINE, samples=100) == 0
    assert again.serial_factor == audit.serial_factor
