import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis import __version__
from themis.core.arbiter import Arbiter, Settings
from themis.core.arbiter.commands import Command, Refuse, WakeMe
from themis.core.arbiter.events import AppArrived, AppEnded, Event, MachineLeft, Woken
from themis.core.model import AppId, AppSpec, JobId, JobSpec, Machine, OwnerId, Phase, Topology
from themis.core.policies.registry import policy
from themis.errors import ConfigError, CorruptLogError, InvariantError
from themis.recording.event_log import EventEntry, EventLogReader, LogHeader, LogWriter, header_of

TOPOLOGY = Topology((Machine("m0", "r0", (1,)),))
HEADER = header_of(TOPOLOGY, "themis", Settings(), seed=3, options={"f": 0.5, "payment": "gpus"})
PAIRS: list[tuple[Event, list[Command]]] = [
    (Woken(0.0), []),
    (AppEnded(1.0, AppId("ann")), [Refuse("ann", "who is that?"), WakeMe(2.0)]),
    (MachineLeft(2, "m0"), [WakeMe(3.5)]),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "events.jsonl"
    with LogWriter(file, HEADER) as log:
        for event, commands in PAIRS:
            log.write(event, commands)
    return file


def read(path: Path) -> list[EventEntry]:
    with EventLogReader(path) as log:
        return list(log)


def corrupted(path: Path, line: int, change: Callable[[bytes], bytes]) -> CorruptLogError:
    """What reading says when one line was changed."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = change(lines[line - 1])
    path.write_bytes(b"".join(lines))
    with pytest.raises(CorruptLogError) as caught:
        read(path)
    assert caught.value.file == str(path)
    assert caught.value.line == line
    return caught.value


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def changed(raw: bytes) -> bytes:
        data = json.loads(raw)
        change(data)
        return json.dumps(data).encode() + b"\n"

    return changed


# Writing and reading


def test_a_log_gives_back_what_was_written(path: Path) -> None:
    with EventLogReader(path) as log:
        assert log.header == HEADER
        before, entries, after = log.finished, list(log), log.finished
    assert (before, after) == (False, True)
    assert [(entry.event, list(entry.commands or ())) for entry in entries] == PAIRS
    assert [entry.line for entry in entries] == [2, 3, 4]


def test_the_header_says_what_an_arbiter_is_made_from(path: Path) -> None:
    first = json.loads(path.read_text().splitlines()[0])
    assert list(first) == [
        "themis_log",
        "version",
        "seed",
        "policy",
        "options",
        "settings",
        "topology",
    ]
    assert (first["themis_log"], first["version"], first["seed"]) == (1, __version__, 3)
    assert first["options"] == {"f": 0.5, "payment": "gpus"}


def test_every_line_is_there_before_the_next_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with LogWriter(path, HEADER) as log:
        for count, (event, commands) in enumerate(PAIRS, start=1):
            log.write(event, commands)
            assert len(read(path)) == count


def test_a_run_that_ends_in_an_error_is_not_finished(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = LogWriter(path, HEADER)
    log.write(*PAIRS[0])
    with pytest.raises(ZeroDivisionError), log:
        _ = 1 / 0
    with EventLogReader(path) as reader:
        assert len(list(reader)) == 1
        assert not reader.finished


def test_a_log_can_be_closed_twice(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = LogWriter(path, HEADER)
    log.close()
    log.close()
    assert path.read_text().count('{"events":0}') == 1


def test_existing_log_is_overwritten_only_on_request(path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist yet"):
        LogWriter(path, HEADER)
    assert len(read(path)) == len(PAIRS)
    LogWriter(path, HEADER, overwrite=True).close()
    assert read(path) == []


def test_a_log_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a file to write"):
        LogWriter(tmp_path / "nowhere" / "events.jsonl", HEADER)
    with pytest.raises(ConfigError, match="a readable file"):
        EventLogReader(tmp_path / "nothing.jsonl")
    with pytest.raises(ConfigError, match="a readable file"):
        EventLogReader(tmp_path)
    with pytest.raises(ConfigError, match="a readable file"):
        EventLogReader("a\0b")


def test_an_event_that_cannot_be_written_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with LogWriter(path, HEADER) as log:
        with pytest.raises(InvariantError):
            log.write(Woken(float("nan")), [])
        log.write(*PAIRS[0])
    assert len(read(path)) == 1


def test_the_writer_lets_the_arbiter_handle_events(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    job = JobSpec(JobId("j"), 1.0)
    app = AppSpec(AppId("ann"), OwnerId("ann"), (job,), (Phase(1, 10),))
    with LogWriter(path, header_of(TOPOLOGY, "fifo", Settings())) as log:
        arbiter = Arbiter(TOPOLOGY, policy("fifo"), Settings())
        commands = log.handle(arbiter, AppArrived(0.0, app))
    assert commands
    assert read(path) == [EventEntry(2, AppArrived(0.0, app), tuple(commands))]


def test_an_event_at_which_the_arbiter_fails_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Arbiter, event: Event) -> list[Command]:
        raise InvariantError(f"no idea what to do at {event.at}")

    monkeypatch.setattr(Arbiter, "handle", fail)
    path = tmp_path / "events.jsonl"
    arbiter = Arbiter(TOPOLOGY, policy("fifo"), Settings())
    with pytest.raises(InvariantError, match=r"at 5\.0"), LogWriter(path, HEADER) as log:
        log.handle(arbiter, Woken(5.0))
    assert read(path) == [EventEntry(2, Woken(5.0), None)]


def test_reading_keeps_one_line_at_a_time(path: Path) -> None:
    with EventLogReader(path) as log:
        entries = iter(log)
        assert next(entries).line == 2
        assert log.line == 2


# Damage


def test_truncated_log_is_reported_with_file_and_line(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        line = whole[:length].count(b"\n") + 1
        if length and whole[length - 1 : length] == b"\n":
            # Between two lines nothing is damaged; the run has just not come to its end.
            with EventLogReader(path) as log:
                assert len(list(log)) == line - 2
                assert not log.finished
            continue
        with pytest.raises(CorruptLogError) as caught:
            read(path)
        assert (caught.value.file, caught.value.line) == (str(path), line)


def test_a_damaged_byte_anywhere_is_survived(path: Path) -> None:
    whole = path.read_bytes()
    lines: set[int] = set()
    for place in range(0, len(whole), 3):
        byte = (b"\xff", b"\n", b"0", b'"')[place % 4]
        path.write_bytes(whole[:place] + byte + whole[place + 1 :])
        # A digit or letter may change unseen, anything else must be told.
        with contextlib.suppress(CorruptLogError), EventLogReader(path) as log:
            lines.update(entry.line for entry in log)
    assert lines == {2, 3, 4}


@pytest.mark.parametrize("line", [1, 2, 5])
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"hello\n", "Expecting value", id="no JSON"),
        pytest.param(b"\n", "Expecting value", id="an empty line"),
        pytest.param(b'"\xff\xfe"\n', "byte 2 is not UTF-8", id="not UTF-8"),
        pytest.param(b"[1,2]\n", "a list of 2' is not an object", id="a list"),
        pytest.param(b'{"a":NaN}\n', "NaN is not a number", id="NaN"),
        pytest.param(b'{"n":1,"n":1}\n', "twice", id="a repeated key"),
        pytest.param(b"[" * 100_000 + b"\n", "nested too deeply", id="a deep hole"),
        pytest.param(b"{}\n", "", id="an empty object"),
    ],
)
def test_non_record_line_is_reported(path: Path, line: int, raw: bytes, reason: str) -> None:
    assert reason in corrupted(path, line, lambda _: raw).reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda d: d.pop("themis_log"), "does not begin with the header", id="none"),
        pytest.param(lambda d: d.update(themis_log=2), "format 2, this version reads 1", id="new"),
        pytest.param(lambda d: d.update(themis_log=True), "format true", id="a bool"),
        pytest.param(lambda d: d.pop("version"), "version is missing", id="no version"),
        pytest.param(lambda d: d.update(mood="good"), "no field 'mood'", id="unknown key"),
        pytest.param(lambda d: d.update(seed=1.5), "Header.seed: 1.5", id="a broken seed"),
        pytest.param(lambda d: d["settings"].update(lease=-1), "Header.settings: ", id="a setting"),
        pytest.param(
            lambda d: d["topology"]["machines"].append(d["topology"]["machines"][0]),
            "two machines have this name",
            id="a cluster that cannot be",
        ),
    ],
)
def test_wrong_header_is_reported(path: Path, change: Any, reason: str) -> None:
    assert reason in corrupted(path, 1, edit(change)).reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda d: d["event"].update(type="slept"), "of type 'slept'", id="type"),
        pytest.param(lambda d: d["event"].update(at="x"), "app-ended.at: 'x'", id="a wrong value"),
        pytest.param(lambda d: d.update(event=None), "null is not an object", id="no event"),
        pytest.param(lambda d: d.update(commands={}), "is not a list", id="no list"),
        pytest.param(lambda d: d["commands"].append(7), "7 is not an object", id="a number"),
        pytest.param(lambda d: d["commands"][1].update(at=[]), "wake-me.at", id="a wrong command"),
        pytest.param(lambda d: d.update(n=7), "event 7 where 2 was due", id="out of order"),
        pytest.param(lambda d: d.update(n=2.0), "event 2.0 where 2 was due", id="a float"),
        pytest.param(lambda d: d.update(extra=1), "neither an event nor the end", id="more"),
        pytest.param(lambda d: d.pop("commands"), "neither an event nor the end", id="less"),
    ],
)
def test_wrong_entry_is_reported(path: Path, change: Any, reason: str) -> None:
    assert reason in corrupted(path, 3, edit(change)).reason


def test_wrong_event_count_at_the_end_is_reported(path: Path) -> None:
    error = corrupted(path, 5, edit(lambda data: data.update(events=4)))
    assert error.reason == "the run had 4 events, 3 are here"


def test_nothing_may_follow_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"events":4}\n')
    with pytest.raises(CorruptLogError, match="follows the end"):
        read(path)


def test_an_empty_file_is_no_log(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(CorruptLogError, match=":1: the file is empty"):
        read(path)


def test_a_line_without_end_is_not_read_into_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = max(len(line) for line in path.read_bytes().splitlines(keepends=True))
    monkeypatch.setattr("themis.recording.event_log.MAX_LINE", longest)
    assert len(read(path)) == len(PAIRS)
    monkeypatch.setattr("themis.recording.event_log.MAX_LINE", longest - 1)
    with pytest.raises(CorruptLogError, match="longer than") as caught:
        read(path)
    assert caught.value.line == 1


def test_a_header_needs_no_options() -> None:
    header = header_of(TOPOLOGY, "fifo", Settings())
    assert header == LogHeader(__version__, 0, "fifo", {}, Settings(), TOPOLOGY)
