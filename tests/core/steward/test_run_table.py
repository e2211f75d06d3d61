"""The table of runs alone: what each call stores, and what is found afterwards."""

from dataclasses import replace

from tests.support.steward_values import ANN, J0, J1, TRAIN, A, B, active_run, run_end
from themis.core.model import GpuId, Lease, LeaseSource
from themis.core.steward.rows import ActiveRun, Release, RunCount
from themis.core.steward.run_table import RunTable
from themis.protocol.agent_messages import JobPast

LEASE = Lease(GpuId(0), A, 7, 0.0, 9.0, LeaseSource.DIRECT)


def test_a_new_run_is_stored_with_a_number_that_was_never_used() -> None:
    table = RunTable([RunCount(4)])
    run, changes = table.add(
        app=A, owner=ANN, job=J0, key="k", gpus=(GpuId(0),), tokens=(1,), program=TRAIN
    )
    assert run == ActiveRun(5, A, ANN, J0, "k", (GpuId(0),), (1,), TRAIN)
    assert changes == {"runs": RunCount(5), "run/5": run}
    assert table.requested(A, "k") == 5
    assert table.requested(B, "k") is None
    assert list(table.waiting) == [5]


def test_numbers_go_on_above_the_floor_of_a_restored_store() -> None:
    table = RunTable([RunCount(4)])
    table.raise_count(100)
    table.raise_count(50)
    fields = {"owner": ANN, "gpus": (), "tokens": (), "program": TRAIN}
    assert table.add(app=A, job=J0, key="k", **fields)[0].run == 101


def test_run_waits_for_earlier_starts_on_its_gpus_or_job() -> None:
    same_gpu = active_run(2, 0, job=J1, dispatched=False)
    same_job = active_run(3, 1, dispatched=False)
    neither = active_run(4, 1, job=J1, dispatched=False)
    table = RunTable([active_run(1, 0), same_gpu, same_job, neither])
    assert [table.must_wait(run) for run in (same_gpu, same_job, neither)] == [True, True, False]


def test_continuing_run_of_a_lease_is_found_before_a_stopping_one() -> None:
    stopping = replace(active_run(1), tokens=(7,), stop=True)
    table = RunTable([stopping])
    assert table.under_lease(GpuId(0), 7) is stopping
    going = replace(active_run(2), tokens=(7,))
    assert table.put(going) == {"run/2": going}
    assert table.under_lease(GpuId(0), 7) is going
    assert table.under_lease(GpuId(0), 8) is None


def test_a_run_that_ends_is_replaced_by_its_end_in_every_index() -> None:
    table = RunTable([active_run(1, 0, 1)])
    end = run_end(1, points_on="m0")
    assert table.finish(end) == {"run/1": None, "result/1": end}
    assert not table.active
    assert not table.on_gpus([GpuId(0), GpuId(1)])
    assert not table.of_job(A, J0)
    assert table.ends(A) == [end]
    assert table.requested(A, "k1") == 1, "a repeated request does not start it again"
    assert table.unread_on("m0") == [end]


def test_points_that_are_done_are_owed_by_no_node_any_more() -> None:
    end = run_end(1, points_on="m0")
    table = RunTable([end])
    settled = replace(end, points_on="")
    assert table.points_done(end) == (settled, {"result/1": settled})
    assert table.unread_on("m0") == []
    assert table.end(1) == settled


def test_closing_an_app_deletes_how_its_runs_ended() -> None:
    table = RunTable([run_end(1), run_end(2, points_on="m0")])
    assert table.close(A) == {"result/1": None, "result/2": None}
    assert table.ends(A) == []
    assert table.unread_on("m0") == []
    assert table.requested(A, "k1") is None


def test_the_past_of_a_job_counts_its_seconds_and_failures() -> None:
    failed = replace(run_end(1, code=1), seconds=5.0)
    done = replace(run_end(2), seconds=4.0)
    going = replace(active_run(3), dispatched_at=10.0)
    waiting = active_run(4, 1, job=J1, dispatched=False)
    table = RunTable([failed, done, going, waiting])
    assert table.job_pasts(A, 12.0) == (JobPast(J0, 11.0, 1),)
    assert table.last_of_jobs(A) == (going, waiting)


def test_a_release_counts_for_the_lease_that_it_names_and_no_other() -> None:
    table = RunTable()
    assert table.release(LEASE) == {"release/0": Release(A, GpuId(0), 7)}
    later = replace(LEASE, token=8)
    assert (table.is_released(LEASE), table.is_released(later)) == (True, False)
    assert table.drop_release(later) == {}
    assert table.drop_release(LEASE) == {"release/0": None}
    assert not table.is_released(LEASE)
