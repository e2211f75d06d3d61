"""Progress, storage, logs and trials of the steward, each alone."""

from dataclasses import replace

import pytest

from tests.support.scripted_world import simple_app
from tests.support.steward_values import (
    J0,
    J1,
    TOPOLOGY,
    A,
    active_run,
    report_to,
    run_end,
    two_nodes,
)
from themis.core.arbiter import Arbiter
from themis.core.arbiter import events as ev
from themis.core.arbiter.app_state import AppState
from themis.core.policies import policy
from themis.core.steward.job_logs import JobLogs
from themis.core.steward.node_table import NodeEntry, NodeTable
from themis.core.steward.outcome import OutcomeBuilder
from themis.core.steward.rows import (
    BestRow,
    CurveRow,
    LoggedRun,
    LogsRow,
    ReachedRow,
    RunCount,
    TrialRow,
)
from themis.core.steward.run_progress import RunHealth, RunProgress, is_early, restored, withheld
from themis.core.steward.shared_storage import NodeStorage, PlacementRefusal, SharedStorage
from themis.core.steward.trials import WRITE_EVERY, Trials
from themis.protocol.agent_messages import Curve, Reached, TrialParams
from themis.protocol.node_messages import Point, RunReport, RunState

# Progress


def app_state(done: float = 0.0) -> AppState:
    arbiter = Arbiter(TOPOLOGY, policy("equal-share"))
    arbiter.handle(ev.AppArrived(0.0, simple_app(A, jobs=2, iterations=10)))
    state = arbiter.world.apps[A]
    if done:
        sample = ev.ProgressSample(J0, done, 0.0)
        arbiter.handle(ev.ProgressMeasured(0.0, A, (sample,)))
    return state


def measured(iterations: float, seconds: float, trouble: str = "") -> RunReport:
    return RunReport(1, A, J0, RunState.RUNNING, None, iterations, seconds, trouble=trouble)


def test_the_time_to_start_is_not_counted_as_training() -> None:
    progress, run = RunProgress(), replace(active_run(), limit=10.0)
    progress.take(run, measured(0.0, 0.0), 1.0)
    assert progress.samples(run, app_state()) == ()
    progress.take(run, measured(2.0, 35.0), 2.0)
    progress.take(run, measured(5.0, 38.0), 3.0)
    assert progress.samples(run, app_state()) == (
        ev.ProgressSample(J0, 2.0, 0.0),
        ev.ProgressSample(J0, 5.0, 3.0),
    )
    known = replace(run, iterations=5.0, seconds=38.0)
    assert progress.samples(known, app_state(5.0)) == ()


def test_iterations_that_are_repeated_after_a_loss_say_nothing_about_speed() -> None:
    progress, run = RunProgress(), replace(active_run(), limit=10.0, seconds=1.0)
    progress.take(run, measured(3.0, 4.0), 1.0)
    assert progress.samples(run, app_state(7.0)) == (ev.ProgressSample(J0, 3.0, 0.0),)


def test_a_run_without_progress_keeps_the_time_of_its_last_iteration() -> None:
    progress, run = RunProgress(), replace(active_run(), state=RunState.RUNNING)
    progress.take(run, measured(1.0, 1.0), 5.0)
    progress.take(run, measured(1.0, 2.0, "no such file"), 9.0)
    assert progress.health(1) == RunHealth(5.0, "no such file")
    progress.end(run, 12.0, of_known_app=True)
    again = replace(run, run=2)
    progress.take(again, measured(0.0, 0.0), 20.0)
    assert progress.health(2) == RunHealth(20.0, before=7.0)
    progress.take(again, measured(1.0, 1.0), 21.0)
    assert progress.health(2) == RunHealth(21.0)


@pytest.mark.parametrize(("code", "counted"), [(0, None), (75, 9.0), (None, 9.0)])
def test_last_iteration_of_a_failed_run_is_withheld(
    code: int | None, counted: float | None
) -> None:
    run = replace(active_run(), limit=10.0, iterations=10.0, code=code)
    assert withheld(run, app_state(10.0)) == counted
    assert withheld(replace(run, iterations=9.0), app_state(10.0)) is None


def test_a_withheld_iteration_is_restored_when_the_job_ends_well() -> None:
    assert restored(J0, 12.0, app_state(9.0)) == 10.0
    assert restored(J0, 12.0, app_state(3.0)) is None


def test_a_run_that_exits_with_0_below_its_limit_is_early() -> None:
    run = replace(active_run(), limit=10.0, iterations=6.0, code=0)
    assert is_early(run, app_state())
    assert not is_early(replace(run, iterations=10.0), app_state())
    assert not is_early(replace(run, code=1), app_state())


# Shared storage


def seen(nodes: NodeTable, name: str, shared: str, mark: str = "", trouble: str = "") -> NodeEntry:
    node = report_to(nodes, 1, name=name)
    assert node.last is not None
    node.last = replace(node.last, shared_dir=shared, mark=mark, storage_trouble=trouble)
    return node


def test_without_shared_storage_a_job_waits_for_the_machine_it_saved_on() -> None:
    nodes, storage = two_nodes(), SharedStorage("e1")
    home, other = seen(nodes, "m0", ""), seen(nodes, "m1", "")
    refusal = storage.check(A, J0, [other], home)
    assert refusal == PlacementRefusal(
        "its checkpoints are on m0 alone, without shared_dir: it waits there", "m0"
    )
    assert storage.waits_for(A, J0) == refusal
    assert storage.check(A, J0, [home], home) is None
    assert storage.waits_for(A, J0) is None


@pytest.mark.parametrize(
    ("mark", "found"),
    [
        ("e1.m0.aa", NodeStorage.SHARED),
        ("e1.m1.bb", NodeStorage.APART),
        ("e0.m1.bb", NodeStorage.UNSEEN),
    ],
)
def test_nodes_share_storage_if_they_see_the_same_mark(mark: str, found: NodeStorage) -> None:
    nodes, storage = two_nodes(), SharedStorage("e1")
    first, second = seen(nodes, "m0", "/shared", "e1.m0.aa"), seen(nodes, "m1", "/shared", mark)
    assert storage.of_node(second, nodes.by_name.values()) is found
    refused = storage.check(A, J0, [second], first) is not None
    assert refused is (found is NodeStorage.APART)


# Logs


def test_the_log_of_a_job_lists_its_runs_with_nodes_and_sizes() -> None:
    logs = JobLogs()
    logs.note_size(2, 70)
    logs.note_size(2, 60)
    ended = replace(run_end(1), log="bye\n", log_size=100)
    row = logs.of_active_app(A, J0, [(ended, "m0"), (active_run(2), "m1")])
    expected = (LoggedRun(1, "m0", 100, tail="bye\n"), LoggedRun(2, "m1", 70, over=False))
    assert row == LogsRow(A, J0, expected)
    assert logs.of_active_app(A, J1, []) is None
    assert (logs.final_size(2), logs.final_size(2)) == (70, 0)


def test_logs_outlast_their_app_until_they_are_forgotten() -> None:
    logs, ended = JobLogs(), replace(run_end(1), log_size=5)
    row = LogsRow(A, J0, (LoggedRun(1, "m0", 5),))
    assert logs.keep(A, [(ended, "m0")]) == {"logs/a/j0": row}
    assert logs.keep(A, [(ended, "m0")]) == {}, "it is listed already"
    assert logs.of_ended_app(A, J0) == row
    assert logs.forget(A) == {"logs/a/j0": None}
    assert logs.of_ended_app(A, J0) is None


# Trials


def test_first_parameters_of_jobs_are_stored_in_order_of_choice() -> None:
    trials = Trials()
    assert trials.add_params(A, J1, "{}") == {"trial/a/j1": TrialRow(A, J1, "{}", 1)}
    assert trials.add_params(A, J0, "[]") == {"trial/a/j0": TrialRow(A, J0, "[]", 2)}
    assert trials.add_params(A, J1, "no") == {}
    assert trials.params(A) == {J1: "{}", J0: "[]"}


def test_a_report_of_a_job_is_stored_once_and_not_without_end() -> None:
    trials, phases = Trials(), 1
    reached = Reached(J0, 1.0)
    assert trials.add_reached(A, reached, phases) == {"reached/a/1": ReachedRow(A, 1, reached)}
    assert trials.add_reached(A, reached, phases) == {}
    stored = [trials.add_reached(A, Reached(J0, float(n)), phases) for n in range(2, 20)]
    assert [changes is not None for changes in stored] == [True] * 7 + [False] * 11


def test_curve_is_stored_at_intervals_and_when_its_run_ends() -> None:
    trials = Trials()

    def add(iteration: float, at: float, *, ended: bool = False) -> list[int]:
        point = Point(iteration, None, (("loss", 1.0 / iteration), ("other", 7.0)))
        rows = trials.add_points(A, J0, "loss", (point,), at, ended=ended).values()
        return [len(row.points) for row in rows if isinstance(row, CurveRow)]

    assert add(1.0, 0.0) == [1]
    assert add(2.0, 1.0) == []
    assert add(3.0, WRITE_EVERY) == [3]
    assert add(4.0, WRITE_EVERY + 1.0, ended=True) == [4]
    add(2.0, WRITE_EVERY + 2.0)
    assert [iteration for iteration, _ in trials.curve(A, J0)] == [1.0, 2.0], "it lost work"


def test_new_agent_receives_everything_but_curves_of_failed_jobs() -> None:
    given_up, done = Reached(J0, 1.0, failed="boom"), Reached(J1, 2.0, 0.5)
    rows = (
        TrialRow(A, J1, "{}", 1),
        ReachedRow(A, 2, done),
        ReachedRow(A, 1, given_up),
        CurveRow(A, J0, ((1.0, 9.0),)),
        CurveRow(A, J1, ((1.0, 0.5),)),
        BestRow(A, J1),
    )
    trials = Trials(rows)
    curves = (Curve(J1, ((1.0, 0.5),)),)
    assert trials.for_agent(A) == ((TrialParams(J1, "{}"),), (given_up, done), curves)
    assert trials.best(A) == J1
    assert trials.gave_up(A, J0)
    deleted = trials.forget(A)
    assert set(deleted) == {
        "trial/a/j1", "reached/a/1", "reached/a/2", "curve/a/j0", "curve/a/j1", "best/a",
    }  # fmt: skip
    assert not any(deleted.values())


# The outcome


def test_an_outcome_has_what_changed_since_the_last_one() -> None:
    out = OutcomeBuilder({"runs": RunCount(1)}, 0.0)
    out.begin(ev.Woken(2.0))
    out.store({"runs": RunCount(2), "ttl": None})
    changes = out.build(None).changes
    assert changes.rows == {"runs": RunCount(2)}, "a row that was never written is not deleted"
    out.begin(ev.Woken(1.0))
    assert out.now == 2.0
    assert not out.build(None).changes.any
    assert out.rows == {"runs": RunCount(2)}
