"""E17, from made-up runs and from a real small one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId, JobId
from themis.evaluation import Scope, Verdict, missing, reproduce
from themis.evaluation.claims import CheckedClaim
from themis.evaluation.experiment import Experiment, ExtraData, Findings, Results
from themis.evaluation.experiments import e17_live_against_simulated as e17
from themis.evaluation.experiments.e17_live_against_simulated import LiveRun
from themis.evaluation.rehearsal.handover_timing import HandoverTimes
from themis.evaluation.rehearsal.pretend_engine import ProcessOverhead
from themis.recording.codec import dumps
from themis.sim.config import RunConfig
from themis.sim.metrics import AppResult

SCOPE = Scope(quick=True, cluster="demo16", apps=1)
RHO, REPLAY, STARTUP, CHECKPOINT, SHARE = range(5)


def app(name: str, rho: float) -> AppResult:
    both = dict.fromkeys(Convention, rho)
    return AppResult(AppId(name), 0.0, 10.0, 10.0, 1000.0, both, both)


def played(results: Results, *apps: AppResult, difference: str = "") -> None:
    """Put made-up pieces where E17 looks for them."""
    changes = tuple(
        ProcessOverhead(one.app, JobId("j0"), 4, 0.0, startup, 5.0)
        for one in apps
        for startup in (30.0, 40)
    )
    live = LiveRun("0", apps, changes, 0, 900, (30, 20, 10), difference)
    for piece in e17.extra_data(results):
        is_live = piece.title == "the live system"
        value: object = (
            live if is_live else HandoverTimes((0.1, 0.2, 0.3), (0.01, 0.02, 0.03), "tree")
        )
        piece.path.write_text(dumps(value) + "\n", "utf-8")


def claims_of(finished: Any, *apps: AppResult, difference: str = "") -> tuple[CheckedClaim, ...]:
    results = finished(e17.EXPERIMENT, SCOPE, lambda _: {"rho": 1.2})
    played(results, *apps, difference=difference)
    return e17.study(results).claims


def test_apps_that_fare_alike_are_within_the_bar(finished: Any) -> None:
    claims = claims_of(finished, app("late", 1.2), app("early", 0.52))
    assert claims[RHO].verdict is Verdict.HOLDS
    assert claims[RHO].themis.value == pytest.approx(4.0)
    assert "early" in claims[RHO].details_text
    assert claims[REPLAY].verdict is Verdict.HOLDS
    assert "30 bids, 20 starts and 10 stops" in claims[REPLAY].details_text


def test_one_app_that_fares_worse_live_breaks_it(finished: Any) -> None:
    claims = claims_of(finished, app("late", 1.2 * 1.06), app("early", 0.5))
    assert claims[RHO].verdict is Verdict.FAILS
    assert claims[RHO].themis.value == pytest.approx(6.0)


def test_diverging_replay_is_reported(finished: Any) -> None:
    claims = claims_of(finished, app("late", 1.2), difference="entry 7: command 1 was Assign")
    assert claims[REPLAY].verdict is Verdict.FAILS
    assert "entry 7" in claims[REPLAY].details_text


def test_shares_are_of_the_time_that_gpus_were_held(finished: Any) -> None:
    results = finished(e17.EXPERIMENT, SCOPE, lambda _: {"rho": 1.2})
    played(results, app("late", 1.2))
    findings = e17.study(results)
    (row,) = findings.tables[0].rows
    # Two processes on 4 GPUs: 35 s and 5 s each as played, 0.2 s and 0.02 s as measured.
    assert row[-2] == pytest.approx(100.0 * 4 * (70.0 + 10.0) / 1000.0)
    assert row[-1] == pytest.approx(100.0 * 4 * 2 * (0.2 + 0.02) / 1000.0)
    assert findings.claims[STARTUP].themis.text == "0.20 (0.29) s"
    # Judged by the paper's own times, which ours only tell apart from what Themis itself takes.
    assert findings.claims[SHARE].themis.value == pytest.approx(row[-2])
    assert findings.claims[SHARE].verdict is Verdict.FAILS
    assert f"measured here: {row[-1]:.3f} %" in findings.claims[SHARE].details_text


def test_unplayed_entry_is_open_and_missing(finished: Any) -> None:
    results = finished(e17.EXPERIMENT, SCOPE, lambda _: {"rho": 1.2})
    assert {claim.verdict for claim in e17.study(results).claims} == {Verdict.UNDECIDED}
    assert missing(e17.EXPERIMENT, results) == 2
    played(results, app("late", 1.2))
    assert missing(e17.EXPERIMENT, results) == 0


def test_pieces_are_made_once_and_again_if_asked_for(tmp_path: Path) -> None:
    made = []

    def make(say: Callable[[str], None]) -> bytes:
        say("half")
        made.append(1)
        return b"x"

    piece = ExtraData("a piece", tmp_path / "runs" / "a.piece", make)
    experiment = Experiment("E98", "t", "p.", lambda _: Findings(()), extra_data=lambda _: (piece,))
    said: list[str] = []
    for fresh in (False, False, True):
        reproduce(
            [experiment], Scope(), tmp_path, fresh=fresh, progress=lambda *now: said.append(now[2])
        )
    assert len(made) == 2
    assert piece.path.read_bytes() == b"x"
    assert "E98: a piece half" in said


@pytest.mark.slow
def test_a_small_one_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In minutes a tie that falls the other way would be seen: this seed has none that is so near.
    options = {"learn": True, "gpu_hours": 1.0, "gap": 300.0}
    small = RunConfig("demo16", 1, "rivals", 3, 3, options=options)
    monkeypatch.setattr(e17, "configs", lambda _: [small])
    (chapter,) = reproduce([e17.EXPERIMENT], SCOPE, tmp_path)
    verdicts = [claim.verdict for claim in chapter.claims]
    assert verdicts[:2] == [Verdict.HOLDS, Verdict.HOLDS]
    # Our processes have no containers in them; with the paper's times these short apps suffer.
    assert verdicts[2:] == [Verdict.UNDECIDED, Verdict.UNDECIDED, Verdict.FAILS]
    assert all(claim.themis.value is not None for claim in chapter.claims[2:])
    rows = json.loads((tmp_path / "report.json").read_text("utf-8"))[0]["tables"][0]["rows"]
    assert len(rows) == 3
    assert all(abs(float(row[4])) <= 5.0 for row in rows)
