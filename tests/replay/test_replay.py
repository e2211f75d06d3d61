"""Logs of toy runs, replayed. Run as a script, this file writes such a log: policy, then path."""

import heapq
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from themis.core.arbiter import Arbiter, Settings
from themis.core.arbiter import commands as do
from themis.core.arbiter import events as ev
from themis.core.auction.solvers.registry import solver
from themis.core.model import (
    CLUSTER,
    AppId,
    AppSpec,
    Bid,
    Chunk,
    GpuId,
    JobId,
    JobSpec,
    Lease,
    LeaseSource,
    Machine,
    OwnerId,
    Phase,
    Row,
    TableRow,
    Topology,
)
from themis.core.model.reasons import Reason
from themis.core.policies.base import Allotment, DirectPolicy, Plan, View
from themis.core.policies.registry import policy
from themis.errors import ConfigError, CorruptLogError, InvariantError
from themis.recording.codec import dumps, loads
from themis.recording.event_log import EventLogReader, LogWriter, header_of
from themis.recording.replay import ReplayResult, replay

TOPOLOGY = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (2,))))
SETTINGS = Settings(lease=120.0)
END = 900.0


# A toy run: agents that bid by the book, and jobs that start and stop at once


def app(name: str, iterations: int, gpus: int) -> AppSpec:
    job = JobSpec(JobId("j"), serial_iteration_time=1.0, max_gpus=gpus)
    return AppSpec(AppId(name), OwnerId(f"of-{name}"), (job,), (Phase(1, iterations),))


SCRIPT: tuple[ev.Event, ...] = (
    ev.AppArrived(0.0, app("ann", 900, 3)),
    ev.AppArrived(1.0, app("bob", 600, 2)),
    ev.AppArrived(40.0, app("cat", 300, 4)),
    ev.ProgressMeasured(130.0, AppId("ann"), (ev.ProgressSample(JobId("j"), 150, 120.0),)),
    ev.AppSuspended(200.0, AppId("bob"), Reason.PAUSED_BY_USER),
    ev.GpuQuarantined(250.0, GpuId(3), "too hot"),
    ev.AppResumed(300.0, AppId("bob"), Reason.PAUSED_BY_USER),
    ev.AppEnded(310.0, AppId("nobody")),
    ev.GpuRestored(420.0, GpuId(3)),
    ev.WeightChanged(430.0, 2.5, app=AppId("cat")),
    ev.QuotaChanged(500.0, OwnerId("of-ann"), 1),
    ev.AppEnded(700.0, AppId("cat")),
)


class Toy:
    """Carries out an arbiter's commands."""

    def __init__(self, arbiter: Arbiter, log: LogWriter) -> None:
        self.arbiter = arbiter
        self.log = log
        self.heap = [(event.at, order, event) for order, event in enumerate(SCRIPT)]
        self.count = len(SCRIPT)

    def push(self, event: ev.Event) -> None:
        heapq.heappush(self.heap, (event.at, self.count, event))
        self.count += 1

    def run(self) -> None:
        while self.heap and self.heap[0][0] <= END:
            at, _, event = heapq.heappop(self.heap)
            for command in self.log.handle(self.arbiter, event):
                self.carry_out(at, command)

    def carry_out(self, at: float, command: do.Command) -> None:
        match command:
            case do.Ask(app=name, offer=offer):
                self.push(ev.BidReceived(at + 0.5, name, offer.round, bid(name, len(offer.gpus))))
            case do.Solve(round=number, problem=problem, work=work):
                solution = solver("brute-force").solve(problem, work)
                self.push(ev.Solved(at + 0.5, number, solution))
            case do.Assign(app=name, granted=granted, revoked=revoked):
                if granted:
                    gpus = tuple(lease.gpu for lease in granted)
                    self.push(ev.JobStarted(at + 1.0, name, JobId("j"), gpus))
                if revoked:
                    slots = tuple((lease.gpu, lease.token) for lease in revoked)
                    self.push(ev.GpusVacated(at + 5.0, slots))
            case do.WakeMe(at=when):
                self.push(ev.Woken(when))
            case _:
                pass


def bid(name: AppId, offered: int) -> Bid:
    counts = range(1, min(4, offered) + 1)
    rows = tuple(Row((Chunk(CLUSTER, count),), 600.0 / count + 35.0) for count in counts)
    return Bid(name, rows, tuple(TableRow(CLUSTER, count, 600.0 / count) for count in counts))


def write_log(path: Path, name: str, **options: Any) -> Path:
    arbiter = Arbiter(TOPOLOGY, policy(name, **options), SETTINGS, seed=7)
    header = header_of(TOPOLOGY, name, SETTINGS, seed=7, options=options)
    with LogWriter(path, header) as log:
        Toy(arbiter, log).run()
    return path


@pytest.fixture(scope="module")
def themis_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("logs") / "themis.jsonl", "themis", f=0.5)


@pytest.fixture(scope="module")
def fifo_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("logs") / "fifo.jsonl", "fifo")


@pytest.fixture(params=["themis", "fifo"])
def log(request: pytest.FixtureRequest, themis_log: Path, fifo_log: Path) -> Path:
    return themis_log if request.param == "themis" else fifo_log


def kinds(path: Path) -> set[type]:
    with EventLogReader(path) as reader:
        return {type(item) for entry in reader for item in (entry.event, *(entry.commands or ()))}


def edited(path: Path, line: int, edit: Any, into: Path) -> Path:
    """A copy of a log in which the object on one line was changed."""
    lines = path.read_text().splitlines(keepends=True)
    data = json.loads(lines[line - 1])
    edit(data)
    lines[line - 1] = dumps(data) + "\n"
    copy = into / "edited.jsonl"
    copy.write_text("".join(lines))
    return copy


def line_with(path: Path, kind: type, skip: int = 0) -> int:
    """The line of an entry whose event or one of whose commands is of this kind."""
    with EventLogReader(path) as reader:
        found = [
            entry.line
            for entry in reader
            if any(isinstance(item, kind) for item in (entry.event, *(entry.commands or ())))
        ]
    return found[skip]


# Replays


def test_the_toy_run_has_every_kind_of_command(themis_log: Path) -> None:
    commands = {
        do.Ask,
        do.Solve,
        do.Assign,
        do.End,
        do.WakeMe,
        do.Refuse,
        do.RecordRound,
        do.RecordApp,
    }
    assert commands <= kinds(themis_log)


def test_a_log_replays_to_the_same_commands(log: Path) -> None:
    result = replay(log)
    assert result.first_difference is None
    assert result.same
    assert result.finished
    assert result.events == len(log.read_text().splitlines()) - 2 > 30
    assert (result.resolved, result.failure) == (0, "")


def test_a_replay_runs_no_solver(themis_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_solver(name: str) -> None:
        raise AssertionError(f"{name} was asked for")

    monkeypatch.setattr("themis.recording.replay.solver", no_solver)
    assert replay(themis_log).same
    with pytest.raises(AssertionError, match="brute-force was asked for"):
        replay(themis_log, resolve=True)


def test_auctions_can_be_solved_again(themis_log: Path) -> None:
    result = replay(themis_log, resolve=True)
    assert result.same
    assert result.resolved == themis_log.read_text().count('"event":{"type":"solved"') > 2


def test_a_changed_command_is_the_first_difference(log: Path, tmp_path: Path) -> None:
    line = line_with(log, do.Assign, skip=2)
    place: list[int] = []

    def later_end(data: dict[str, Any]) -> None:
        place.extend(i for i, item in enumerate(data["commands"]) if item["type"] == "assign")
        assign = data["commands"][place[0]]
        leases = assign["granted"] or assign["renewed"] or assign["revoked"]
        leases[0]["end"] += 1.0

    result = replay(edited(log, line, later_end, tmp_path))
    difference = result.first_difference
    assert difference is not None
    assert difference.line == line
    assert result.events == line - 1
    assert not result.finished
    assert f"command {place[0] + 1} (assign): " in difference.text
    assert "[0].end was " in difference.text
    assert difference.expected != difference.got


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        pytest.param(lambda c: c.pop(), "command 2 is wake-me, there was none", id="one more"),
        pytest.param(
            lambda c: c.append(c[-1]), "command 3 was wake-me, is missing", id="one missing"
        ),
        pytest.param(lambda c: c.reverse(), "command 1 was wake-me, is ask", id="another kind"),
        pytest.param(
            lambda c: c[0]["offer"]["gpus"].pop(),
            "command 1 (ask): offer.gpus had 3 entries, has 4",
            id="a longer list",
        ),
        pytest.param(
            lambda c: c[0].update(app="eve"),
            "command 1 (ask): app was 'eve', is 'ann'",
            id="a field",
        ),
    ],
)
def test_difference_is_described_briefly(
    edit: Any, text: str, themis_log: Path, tmp_path: Path
) -> None:
    path = edited(themis_log, 2, lambda data: edit(data["commands"]), tmp_path)
    difference = replay(path).first_difference
    assert difference is not None
    assert (difference.line, difference.text) == (2, text)


def test_a_changed_event_shows_in_the_commands(themis_log: Path, tmp_path: Path) -> None:
    line = line_with(themis_log, ev.Solved)

    def nobody_wins(data: dict[str, Any]) -> None:
        data["event"]["solution"] |= {"winners": {}, "kept": {}, "value": 0.0}

    difference = replay(edited(themis_log, line, nobody_wins, tmp_path)).first_difference
    assert difference is not None
    assert difference.line == line


def test_swapped_events_are_a_difference(log: Path, tmp_path: Path) -> None:
    lines = [json.loads(text) for text in log.read_text().splitlines()]
    lines[1]["event"], lines[2]["event"] = lines[2]["event"], lines[1]["event"]
    path = tmp_path / "swapped.jsonl"
    path.write_text("".join(dumps(data) + "\n" for data in lines))
    difference = replay(path).first_difference
    assert difference is not None
    assert difference.line == 2


def test_swapped_lines_are_damage(log: Path, tmp_path: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    lines[10], lines[11] = lines[11], lines[10]
    path = tmp_path / "swapped.jsonl"
    path.write_text("".join(lines))
    with pytest.raises(CorruptLogError, match="out of order") as caught:
        replay(path)
    assert (caught.value.file, caught.value.line) == (str(path), 11)


def test_a_run_that_was_cut_short_replays_as_unfinished(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "short.jsonl"
    path.write_text("".join(log.read_text().splitlines(keepends=True)[:20]))
    result = replay(path)
    assert (result.same, result.finished, result.events) == (True, False, 19)


def test_another_setting_is_noticed(themis_log: Path, tmp_path: Path) -> None:
    def longer(data: dict[str, Any]) -> None:
        data["settings"]["lease"] = 240.0

    assert not replay(edited(themis_log, 1, longer, tmp_path)).same


def test_the_values_of_solutions_are_compared(themis_log: Path, tmp_path: Path) -> None:
    # A worse solution, as a broken solver would give: consistent, but not the best there is.
    line = line_with(themis_log, ev.Solved)

    def nobody_wins(data: dict[str, Any]) -> None:
        data["event"]["solution"] |= {"winners": {}, "kept": {}, "value": 0.0}

    path = edited(themis_log, line, nobody_wins, tmp_path)
    difference = replay(path, resolve=True).first_difference
    assert difference is not None
    assert difference.line == line
    assert "by brute-force: value was 0.0, is " in difference.text


def test_impossible_solution_is_reported_as_such(themis_log: Path, tmp_path: Path) -> None:
    line = line_with(themis_log, ev.Solved)

    def too_good(data: dict[str, Any]) -> None:
        data["event"]["solution"]["value"] += 1.0

    path = edited(themis_log, line, too_good, tmp_path)
    difference = replay(path, resolve=True).first_difference
    assert difference is not None
    assert "cannot be: value " in difference.text


def test_a_solver_that_is_not_there_is_named_with_its_line(
    themis_log: Path, tmp_path: Path
) -> None:
    line = line_with(themis_log, ev.Solved)

    def renamed(data: dict[str, Any]) -> None:
        data["event"]["solution"]["solver"] = "magic"

    path = edited(themis_log, line, renamed, tmp_path)
    with pytest.raises(ConfigError, match="magic") as caught:
        replay(path, resolve=True)
    assert caught.value.where == f"{path}:{line}"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"policy": "fivo"}, id="a policy that is not there"),
        pytest.param({"policy": "os:PathLike"}, id="code from outside"),
        pytest.param({"options": {"nonsense": 1}}, id="an unknown option"),
        pytest.param({"policy": "themis", "options": {"rank": [1]}}, id="an odd option"),
        pytest.param({"policy": "themis", "options": {"f": "much"}}, id="a wrong option"),
    ],
)
def test_a_policy_that_cannot_be_made_is_refused(
    change: dict[str, Any], fifo_log: Path, tmp_path: Path
) -> None:
    path = edited(fifo_log, 1, lambda data: data.update(change), tmp_path)
    with pytest.raises(ConfigError) as caught:
        replay(path)
    assert caught.value.where == f"{path}:1"


# Policies from outside, and failures


class Lists(DirectPolicy):
    """Everything to the first app, in lists where tuples are declared."""

    name = "lists"

    def plan(self, view: View, rng: Any) -> Plan:
        first = view.apps[0]
        gpus: Any = list(view.offer[: first.room])
        return Plan((Allotment(first.app, gpus, LeaseSource.DIRECT),) if gpus else ())


def test_a_policy_from_outside_is_replayed_when_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    with LogWriter(path, header_of(TOPOLOGY, "mine:Lists", SETTINGS, seed=7)) as log:
        Toy(Arbiter(TOPOLOGY, Lists(), SETTINGS, seed=7), log).run()
    assert do.RecordRound in kinds(path)
    assert replay(path, policy=Lists()).same
    assert not replay(path, policy=policy("fifo")).same


@dataclass
class Broken:
    """An arbiter that fails at one event."""

    arbiter: Arbiter
    at: float

    def __call__(self, *_: object, **__: object) -> "Broken":
        return self

    def handle(self, event: ev.Event) -> list[do.Command]:
        if event.at >= self.at:
            raise InvariantError("a bug")
        return self.arbiter.handle(event)


def broken_run(path: Path) -> None:
    broken: Any = Broken(Arbiter(TOPOLOGY, policy("fifo"), SETTINGS, seed=7), at=40.0)
    with (
        pytest.raises(InvariantError, match="a bug"),
        LogWriter(path, header_of(TOPOLOGY, "fifo", SETTINGS, seed=7)) as log,
    ):
        Toy(broken, log).run()


def test_a_failure_of_the_arbiter_is_in_the_log_and_happens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broken.jsonl"
    broken_run(path)
    again = Broken(Arbiter(TOPOLOGY, policy("fifo"), SETTINGS, seed=7), at=40.0)
    monkeypatch.setattr("themis.recording.replay.Arbiter", again)
    result = replay(path)
    assert (result.same, result.finished) == (True, False)
    assert result.failure == "InvariantError: a bug"


def test_recovered_failure_is_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    broken_run(path)
    difference = replay(path).first_difference
    assert difference is not None
    assert isinstance(difference.event, ev.AppArrived)
    assert difference.expected is None
    assert "failed when the log was written" in difference.text


def test_a_new_failure_is_a_difference(fifo_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = Broken(Arbiter(TOPOLOGY, policy("fifo"), SETTINGS, seed=7), at=40.0)
    monkeypatch.setattr("themis.recording.replay.Arbiter", again)
    difference = replay(fifo_log).first_difference
    assert difference is not None
    assert difference.got is None
    assert difference.text == "the arbiter fails: InvariantError: a bug"


def test_a_command_that_cannot_be_logged_is_a_difference(
    fifo_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(_: Arbiter, event: ev.Event) -> list[do.Command]:
        lease = Lease(GpuId(0), AppId("ann"), 1, event.at, float("inf"), LeaseSource.DIRECT)
        return [do.Assign(AppId("ann"), (lease,))]

    monkeypatch.setattr(Arbiter, "handle", endless)
    difference = replay(fifo_log).first_difference
    assert difference is not None
    assert "cannot be logged" in difference.text


# What follows from it


def test_a_result_can_be_printed_as_json(themis_log: Path, tmp_path: Path) -> None:
    path = edited(themis_log, 2, lambda data: data["commands"].pop(), tmp_path)
    result = replay(path)
    printed: Any = loads(dumps(result))
    assert set(printed) == set(ReplayResult.__dataclass_fields__)
    assert printed["first_difference"]["event"]["type"] == "app-arrived"
    assert replace(result, first_difference=None).same


@pytest.mark.parametrize("name", ["themis", "fifo"])
def test_a_log_is_the_same_bytes_under_any_hash_seed(name: str, tmp_path: Path) -> None:
    written = []
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.jsonl"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, __file__, name, str(path)]
        subprocess.run(command, check=True, env=environment)
        written.append(path.read_bytes())
    assert written[0] == written[1]


if __name__ == "__main__":
    write_log(Path(sys.argv[2]), sys.argv[1])
