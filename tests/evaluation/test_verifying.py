"""Finished runs that are made again."""

import json
import shutil
from pathlib import Path

import pytest

from themis.errors import UnavailableError
from themis.evaluation import Results, Scope, run_experiments, verify
from themis.evaluation.experiments import e1_finish_time_fairness as e1
from themis.sim.runs.result_cache import ResultCache

SCOPE = Scope(quick=True, seeds=(1,), cluster="demo16", apps=2)
POLICIES = ("equal-share",)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    run_experiments([e1.EXPERIMENT], SCOPE, out, workers=1, policies=POLICIES)
    return out / "runs"


def test_runs_that_come_out_as_they_were_are_the_same(finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.iterdir()}
    results = Results(SCOPE, ResultCache(finished))
    checked = verify([e1.EXPERIMENT], results, 9, workers=1)
    assert sorted(one.label for one in checked) == [
        "equal-share on w1, demo16, 2 apps, seed 1",
        "equal-share on w2, demo16, 2 apps, seed 1",
    ]
    assert not any(one.differences for one in checked)
    assert {path: path.read_bytes() for path in finished.iterdir()} == before


def test_differing_run_is_reported_with_both_values(finished: Path, tmp_path: Path) -> None:
    for path in finished.glob("*.json"):
        run = json.loads(path.read_text("utf-8"))
        run["summary"]["moves"] += 7
        run["summary"]["events"] += 1  # how it was done, not what came out
        del run["summary"]["most_fair_ref"]  # as if it had been made before there was one
        (tmp_path / path.name).write_text(json.dumps(run) + "\n", "utf-8")
    results = Results(SCOPE, ResultCache(tmp_path))
    (one,) = verify([e1.EXPERIMENT], results, 1, workers=1)
    (difference,) = one.differences
    assert difference.startswith("moves: ")
    assert ", now " in difference


def test_only_policies_that_were_asked_for_are_made_again(finished: Path) -> None:
    results = Results(SCOPE, ResultCache(finished))
    assert verify([e1.EXPERIMENT], results, 9, policies=["gandiva"], workers=1) == []


def test_every_experiment_and_policy_has_its_turn(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run_experiments([e1.EXPERIMENT], SCOPE, tmp_path.parent, workers=1, policies=["gandiva"])
    for path in (tmp_path.parent / "runs").iterdir():
        shutil.copy(path, tmp_path)
    two = verify([e1.EXPERIMENT], Results(SCOPE, ResultCache(tmp_path)), 2, workers=1)
    assert {one.label.split()[0] for one in two} == {"equal-share", "gandiva"}


def test_unreproducible_run_is_reported_as_such(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise UnavailableError("no such policy any more")

    monkeypatch.setattr("themis.evaluation.verification.finish_all", fail)
    found = verify([e1.EXPERIMENT], Results(SCOPE, ResultCache(finished)), 9, workers=1)
    assert {one.differences for one in found} == {("not made: no such policy any more",)}
