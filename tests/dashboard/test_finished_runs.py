"""Finished runs as the pages show them: run folders, stored runs, event logs."""

import json
from functools import cache
from pathlib import Path

import pytest

from themis.core.model.reasons import Reason
from themis.dashboard.app_history import MOST_POINTS, AppHistories, AppHistory, thinned
from themis.dashboard.finished_run import FinishedRun
from themis.dashboard.reason_labels import REASONS
from themis.dashboard.run_loader import load_runs
from themis.errors import ConfigError, CorruptLogError, MissingError, MissingFileError
from themis.recording.codec import dumps
from themis.sim import RunConfig, prepare, run
from themis.sim.runs.result_cache import ResultCache, stored
from themis.sim.runs.run_folder import new_folder, run_files, write_run

CONFIG = RunConfig(workload="w1", apps=3, seed=5, options={"f": 0.5})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its event log, and the same run as a comparison keeps it."""
    place = tmp_path_factory.mktemp("runs")
    with new_folder(place / "run") as draft:
        with run_files(draft) as files:
            result = run(
                prepare(CONFIG),
                on_round=files.on_round,
                on_segment=files.on_segment,
                log_to=draft / "events.jsonl",
            )
        write_run(result, draft)
    store = ResultCache(place / "compared" / "runs")
    store.make()
    store.save(CONFIG, stored(result))
    return place


def copied(folder: Path, to: Path) -> Path:
    """The run without its log."""
    to.mkdir()
    for name in ("config.json", "result.json", "apps.jsonl", "rounds.jsonl", "segments.csv"):
        (to / name).write_bytes((folder / "run" / name).read_bytes())
    return to


@cache
def only(path: Path) -> FinishedRun:
    (recording,) = load_runs([path])
    return recording


def test_run_folder_records_gpu_holders_and_fairness(folder: Path, tmp_path: Path) -> None:
    recording = only(copied(folder, tmp_path / "plain"))
    board = recording.board()
    assert board.origin.policy == "themis"
    assert board.gpus["total"] == sum(len(row.gpus) for row in board.machines) == 64
    assert [row.state for row in board.apps] == ["finished"] * 3
    assert all(row.rho is not None and row.rho > 0.0 for row in board.apps)
    assert board.last_round == recording.rounds(None, 1).rounds[0].round
    line = recording.timeline()
    lines = (folder / "run" / "segments.csv").read_text().splitlines()[1:]
    assert len(line.closed.gpu) == len(lines)
    # GPU time by app is the same in both.
    for row in board.apps:
        place = line.names.index(row.app)
        held = sum(
            end - start
            for app, start, end in zip(
                line.closed.app, line.closed.start, line.closed.end, strict=True
            )
            if app == place
        )
        assert held == pytest.approx(row.gpu_seconds, rel=1e-3)


def test_an_app_has_its_leases_reasons_and_rho(folder: Path, tmp_path: Path) -> None:
    recording = only(copied(folder, tmp_path / "plain"))
    name = recording.board().apps[0].app
    page = recording.app(name)
    assert page.jobs is None
    assert page.leases
    assert page.history
    assert page.held[-1][1] == 0.0
    assert page.reasons[-1][1] == Reason.ENDED
    with pytest.raises(MissingError):
        recording.app("nobody")


def test_the_log_beside_a_run_adds_jobs_phases_and_owners(folder: Path) -> None:
    recording = only(folder / "run")
    for row in recording.board().apps:
        page = recording.app(row.app)
        assert row.owner
        assert page.jobs
        assert page.phases
        assert {phase.state for phase in page.phases} == {"over"}
        assert all(job.iterations is not None for job in page.jobs)


def test_a_log_alone_tells_the_same_as_its_run(folder: Path) -> None:
    run_, log = only(folder / "run"), only(folder / "run" / "events.jsonl")
    assert log.origin.kind == "log"
    one, two = run_.compared(), log.compared()
    assert one.measures["gpu_hours"] == pytest.approx(two.measures["gpu_hours"], rel=1e-6)
    assert one.completions == pytest.approx(two.completions)
    assert [line.round for line in run_.rounds(None, 9999).rounds] == [
        line.round for line in log.rounds(None, 9999).rounds
    ]
    assert run_.round(2) == log.round(2)


def test_runs_of_a_comparison_are_found_in_its_folder(folder: Path) -> None:
    recording = only(folder / "compared")
    assert recording.origin.title.startswith("themis, seed 5")
    assert recording.timeline().closed.gpu
    assert recording.rounds(None, 50).rounds == ()
    assert recording.compared().rhos == only(folder / "run").compared().rhos


def test_rounds_come_in_pages_and_one_has_bids_and_winners(folder: Path) -> None:
    recording = only(folder / "run")
    page = recording.rounds(None, 5)
    assert len(page.rounds) == 5
    assert page.before == page.rounds[0].round
    earlier = recording.rounds(page.before, 5)
    assert earlier.rounds[-1].round == page.rounds[0].round - 1
    sheet = recording.round(1)
    assert sheet.others == ()
    assert sheet.value is not None
    (row,) = [row for row in sheet.own if row.line.granted]
    assert row.bid is not None
    assert sum(row.given_by.values()) == row.line.granted
    with pytest.raises(MissingError):
        recording.round(10**6)


def test_runs_of_the_same_name_are_distinguished(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "deeper"
    other.mkdir()
    copied(folder, other / "run")
    titles = [item.origin.title for item in load_runs([folder / "run", other / "run"])]
    assert titles == ["run", "run (2)"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("rounds.jsonl", '{"round": 1}\n', id="half a round"),
        pytest.param("rounds.jsonl", "[" * 100_000 + "\n", id="deep nesting"),
        pytest.param("apps.jsonl", '{"app": "x", "arrival": "soon"}\n', id="a time in words"),
        pytest.param("segments.csv", "gpu,app,start_s,end_s,source\n-4,a,0,1,x\n", id="GPU -4"),
        pytest.param("segments.csv", "1,a,0,inf,x\n", id="without an end"),
        pytest.param("result.json", "[]", id="no object"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, tmp_path: Path, name: str, text: str) -> None:
    broken = copied(folder, tmp_path / "broken")
    (broken / name).write_text(text)
    with pytest.raises(CorruptLogError, match=name):
        load_runs([broken])


def test_non_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="sim run"):
        load_runs([tmp_path])


def test_a_run_whose_cluster_file_is_gone_still_shows_its_gpus(
    folder: Path, tmp_path: Path
) -> None:
    moved = copied(folder, tmp_path / "moved")
    config = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps({**config, "cluster": "gone.yaml"}))
    (machine,) = only(moved).board().machines
    assert machine.note
    assert len(machine.gpus) > 1


HOSTILE = '<script>alert(1)</script>\x1b[31m\u202e"/../..'


def test_hostile_names_go_through_as_they_are_and_break_nothing(
    folder: Path, tmp_path: Path
) -> None:
    bad = copied(folder, tmp_path / "bad")
    for name in ("apps.jsonl", "rounds.jsonl"):
        text = (bad / name).read_text()
        (bad / name).write_text(text.replace("w1-0001", json.dumps(HOSTILE)[1:-1]))
    rows = (bad / "segments.csv").read_text()
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    (bad / "segments.csv").write_text(rows.replace("w1-0001", quoted))
    recording = only(bad)
    assert HOSTILE in {row.app for row in recording.board().apps}
    assert recording.app(HOSTILE).leases
    # As JSON it is ASCII without a control character, whatever it was.
    text = dumps(recording.board())
    assert text.isascii()
    assert text.isprintable()


def test_every_reason_has_words() -> None:
    assert list(REASONS) == [str(reason) for reason in Reason]
    assert all(words.label and words.what for words in REASONS.values())
    assert {words.tone for words in REASONS.values()} == {"good", "wait", "held", "bad"}


def test_histories_stay_small_and_keep_both_ends() -> None:
    history = AppHistory()
    for number in range(10_000):
        history.note(float(number), 1.0 + number, number % 2, "SERVED" if number % 2 else "OUTBID")
    assert len(history.rho) <= 2 * MOST_POINTS
    assert history.rho[0] == (0.0, 1.0)
    assert history.rho[-1] == (9999.0, 10_000.0)
    assert len(history.held) <= 2 * MOST_POINTS
    assert len(history.reasons) <= 200
    assert history.reasons[-1] == (9999.0, "SERVED")
    assert thinned([(0.0, 1.0)], 5) == [(0.0, 1.0)]


def test_apps_not_seen_for_longest_are_forgotten_first() -> None:
    histories = AppHistories(most=2)
    for at, app in enumerate(("a", "b", "a", "c")):
        histories.note(app, float(at), 1.0, 1, "SERVED")
    assert histories.of("b").rho == ()
    assert histories.of("a").rho == ((0.0, 1.0), (2.0, 1.0))
