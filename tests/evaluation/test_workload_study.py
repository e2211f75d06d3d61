"""E12: generated apps are like the published ones, and the real trace stands beside them."""

from pathlib import Path

import pytest

from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.evaluation.app_samples import PHILLY, PHILLY_85, demand, sample
from themis.evaluation.claims import Verdict
from themis.evaluation.experiment import Findings, Results, Scope
from themis.evaluation.experiments import e12_workload_study as e12
from themis.sim.runs.result_cache import ResultCache
from themis.sim.workloads import SimApp, Workload, workload


def found(tmp_path: Path, **scope: object) -> Findings:
    return e12.study(Results(Scope(**scope), ResultCache(tmp_path)))  # type: ignore[arg-type] # a test's words


def one_app(arrival: float, works: tuple[int, ...], gpus: int) -> SimApp:
    jobs = tuple(JobSpec(JobId(f"j{n}"), 1.0, gpus) for n in range(len(works)))
    phase = Phase(len(works), max(works), works)
    spec = AppSpec(AppId(f"a{arrival:g}"), OwnerId("o"), jobs, (phase,))
    return SimApp(spec, arrival, "VGG16", (0.0,) * len(works))


def test_demand_follows_arrivals_and_ends_by_hand() -> None:
    # 2 jobs of 2 GPUs from 0: 10 s and 20 s; one of 1 GPU from 15 to 45, cut at the horizon of 40.
    apps = (one_app(0.0, (20, 40), 2), one_app(15.0, (30,), 1))
    steps = demand(Workload("hand", apps, 40.0, 1.0, 1, "hand", 1))
    assert list(zip(steps.times, steps.values, strict=True)) == [
        (0.0, 0.0), (0.0, 4.0), (10.0, 2.0), (15.0, 3.0), (20.0, 1.0),
    ]  # fmt: skip
    assert steps.mean == pytest.approx((4 * 10 + 2 * 5 + 3 * 5 + 1 * 20) / 40)
    assert steps.end == 40.0


def test_a_sample_counts_jobs_and_work() -> None:
    made = Workload("hand", (one_app(0.0, (20, 40), 2),), 40.0, 1.0, 1, "hand", 1)
    one = sample("hand", [made, made])
    assert (one.jobs, one.app_works, one.app_gpus) == ((2, 2), (60.0, 60.0), (2, 2))
    assert one.job_works == (20.0, 40.0, 20.0, 40.0)


def test_demand_is_the_work_over_the_horizon_when_all_of_it_fits() -> None:
    made = workload("trace-study", seed=3)
    assert demand(made).mean == pytest.approx(64 * made.load, rel=0.05)


def test_every_claim_of_the_trace_study_is_met(tmp_path: Path) -> None:
    claims = found(tmp_path).claims
    assert len(claims) == 13
    assert {claim.verdict for claim in claims} == {Verdict.BY_CONSTRUCTION}


def test_a_workload_of_another_kind_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e12, "W1_JOBS", ((1, 0.0), (5, 1.0)))
    verdicts = {claim.statement: claim.verdict for claim in found(tmp_path, quick=True).claims}
    assert verdicts["W1: jobs per app as published"] is Verdict.FAILS
    assert verdicts["W2: jobs per app as published"] is Verdict.BY_CONSTRUCTION


def test_without_data_the_notes_say_so(tmp_path: Path) -> None:
    findings = found(tmp_path, quick=True)
    assert any("THEMIS_DATA" in note for note in findings.notes)
    assert [row[0] for row in findings.tables[0].rows] == ["paper", "trace-study", "w1", "w2"]


def test_the_real_trace_stands_beside(tmp_path: Path, themis_data: Path) -> None:
    findings = found(tmp_path, quick=True, data=themis_data)
    rows = {row[0]: row for row in findings.tables[0].rows}
    assert rows[PHILLY_85][1] == pytest.approx(9 / 85)
    assert rows[PHILLY_85][3] in range(50, 101)
    assert PHILLY in rows
    assert any("owner dropped" in note for note in findings.notes)
