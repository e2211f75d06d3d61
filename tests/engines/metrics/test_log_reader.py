"""Logs are whatever jobs print; what looks like a reading is read once."""

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirements import missing
from themis.engines.metrics import JobLogReader, log_patterns, log_reader, matcher
from themis.engines.metrics.log_patterns import MOST_PATTERN, group_of
from themis.engines.metrics.points import MetricSample
from themis.engines.supervisor.bounded_log import BoundedFile
from themis.errors import ConfigError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def follow(path: Path, pattern: str = "") -> JobLogReader:
    return JobLogReader(str(path), matcher(pattern))


def line(number: int) -> str:
    return f"step {number} loss: {number / 10}\n"


def numbers(readings: tuple[MetricSample, ...] | list[MetricSample]) -> list[float]:
    return [each.iteration for each in readings]


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as out:
        out.write(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize(
    ("pattern", "text", "step", "values"),
    [
        pytest.param(
            "tensorflow",
            "INFO:tensorflow:loss = 1.23, step = 100 (0.5 sec)",
            100,
            {"loss": 1.23, "sec": 0.5},
            id="TensorFlow",
        ),
        pytest.param(
            "tensorflow",
            "I1 10:00 basic.py:260] accuracy = 1e-3, global_step = 0",
            0,
            {"accuracy": 0.001},
            id="TensorFlow without a time",
        ),
        pytest.param(
            "hf",
            "{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 0.1, 'step': 40}",
            40,
            {"loss": 0.5, "learning_rate": 5e-05, "epoch": 0.1},
            id="a Trainer",
        ),
        pytest.param(
            "hf", "10%|#| {'loss': '0.5', 'step': '40'}", 40, {"loss": 0.5}, id="numbers as text"
        ),
        pytest.param("hf", '{"loss": 0.5, "step": 4}', 4, {"loss": 0.5}, id="JSON"),
        pytest.param("generic", "step 7: loss: 0.5", 7, {"loss": 0.5}, id="a step"),
        pytest.param(
            "generic",
            "[2026-01-01 10:00:00] Iteration: 7, loss=0.5, lr: 1e-3",
            7,
            {"loss": 0.5, "lr": 0.001},
            id="an iteration",
        ),
        pytest.param(
            "generic", "iter 100: loss 2.5, time 12.34ms", 100, {"loss": 2.5}, id="without a colon"
        ),
        pytest.param(
            "generic", "Epoch: 2 [Step 3/10] val/loss = -.5", 3, {"val/loss": -0.5}, id="of many"
        ),
        pytest.param("generic", "global_step=9 lr=nan", 9, {}, id="what is no number"),
    ],
)
def test_line_gives_its_reading(
    pattern: str, text: str, step: int, values: dict[str, float]
) -> None:
    found = matcher(pattern).match(text)
    assert found is not None
    assert (found.iteration, dict(found.values)) == (step, values)
    assert matcher().match(text) is not None


@pytest.mark.parametrize("pattern", ["tensorflow", "hf", "generic"])
@pytest.mark.parametrize("loss", ["nan", "inf", "-inf", "1e40"])
def test_non_finite_metric_is_reported_as_such(pattern: str, loss: str) -> None:
    text = f"{{'loss': {loss}, 'step': 9}}" if pattern == "hf" else f"loss = {loss}, step = 9"
    found = matcher(pattern).match(text)
    assert found is not None
    assert found.iteration == 9
    assert found.loss is not None
    assert math.isnan(found.loss)
    other = matcher(pattern, "accuracy").match(text)
    assert other is None or other.values == ()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("tensorflow", "Saving checkpoints for 100 into model.ckpt."),
        ("tensorflow", "step = many, loss = 1.0"),
        ("tensorflow", "global_step/sec: 12.3"),  # of which step, nobody knows
        ("hf", "{'loss': 0.5, 'epoch': 0.1}"),
        ("hf", "{'step': -1, 'loss': 0.5}"),
        ("generic", "step 7"),
        ("generic", "the next step is loss: 7"),
        ("generic", "step 1.5 loss: 1"),
        ("generic", "stepping 5 loss: 1"),
        ("generic", "step 99999999999999999999 loss: 1"),
        ("", ""),
        ("", "\0\ufffd{{{'''==="),
    ],
)
def test_lines_without_readings_are_ignored(pattern: str, text: str) -> None:
    assert matcher(pattern).match(text) is None


def test_tensorflow_rate_belongs_to_the_step_before_even_for_new_readers(log: Path) -> None:
    append(log, "loss = 2.0, step = 0\n")
    first = follow(log).batch(0, 9)
    append(log, "global_step/sec: 12.5\nloss = 1.0, step = 100 (8.0 sec)\n")
    found = follow(log).batch(first.end, 9).samples
    assert [(each.iteration, dict(each.values)) for each in found] == [
        (0, {"global_step/sec": 12.5}),
        (100, {"loss": 1.0, "sec": 8.0}),
    ]


def test_new_lines_are_read_once_and_half_lines_when_they_are_whole(log: Path) -> None:
    reader = follow(log)
    assert reader.read() == ()
    append(log, line(1) + "hello\n" + line(2) + "step 3 lo")
    assert numbers(reader.read()) == [1, 2]
    assert reader.read() == ()
    append(log, "ss: 1\n")
    assert numbers(reader.read()) == [3]


def test_progress_bars_and_colours_do_not_hide_what_is_between_them(log: Path) -> None:
    append(log, "\r 1%|" * 3000 + "\r\x1b[32mstep 1\x1b[0m loss: \x1b[1m0.5\x1b[0m\r\n")
    assert numbers(follow(log).read()) == [1]


def test_growing_log_gives_every_reading_once(log: Path) -> None:
    text = "loss = 2.0, step = 1\nglobal_step/sec: 3\nnoise\r\n" + line(2) + "é\n" + line(3)
    reader, place = follow(log), 0
    found: list[MetricSample] = []
    anew: list[MetricSample] = []
    for byte in text.encode():
        append(log, bytes([byte]))
        found += reader.read()
        stretch = follow(log).batch(place, 9)
        anew += stretch.samples
        place = stretch.end
    assert numbers(found) == [1, 1, 2, 3]
    assert anew == found


def test_log_batches_keep_their_limit_and_resume_at_any_line(log: Path) -> None:
    append(log, "".join(map(line, range(9))) + "the end\n")
    whole = follow(log).read()
    for index, each in enumerate(whole):
        assert follow(log).batch(each.end, 99).samples == whole[index + 1 :]
    stretch = follow(log).batch(0, 4)
    assert (len(stretch.samples), stretch.more) == (4, True)
    assert not follow(log).batch(stretch.end, 99).more


def test_truncated_or_replaced_log_is_read_anew_even_if_longer(log: Path) -> None:
    file = BoundedFile(str(log), limit=100)
    reader = follow(log)
    append(log, line(1) * 9)
    first = follow(log).batch(0, 99)
    assert len(reader.read()) == 9
    file.trim()
    append(log, line(2))
    assert numbers(reader.read()) == [2]
    file.limit = 1
    file.trim()
    append(log, line(3) * 99)
    assert numbers(reader.read()) == [3] * 99
    assert len(follow(log).batch(first.end, 999).samples) == 99
    os.close(file._fd)
    other = log.with_name("other")
    other.write_text(line(4) * 200)
    other.replace(log)
    assert numbers(reader.read()) == [4] * 200


def test_a_line_without_end_is_skipped_and_the_next_one_is_read(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "MOST_READ", 8192)
    reader, place = follow(log), 0
    anew: list[MetricSample] = []
    append(log, line(1) + "x" * 40_000)
    found = [numbers(reader.read()) for _ in range(8)]
    assert found == [[1], *[[]] * 7]
    append(log, line(2) + line(3))
    assert numbers(reader.read()) == [3]
    for _ in range(8):
        stretch = follow(log).batch(place, 9)
        anew += stretch.samples
        place = stretch.end
    assert numbers(anew) == [1, 3]


def test_a_flood_and_slow_patterns_are_read_in_parts(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, "".join(map(line, range(200))))
    monkeypatch.setattr(log_reader, "MOST_READ", 1000)
    for seconds in (9.9, 0.0):
        monkeypatch.setattr(log_reader, "MOST_SECONDS", seconds)
        reader, parts, place = follow(log), [], 0
        for _ in range(1000):
            stretch = reader.batch(place, 999)
            parts.append(stretch.samples)
            place = stretch.end
        found = [n for part in parts for n in numbers(part)]
        assert found == list(range(200))
        assert len([part for part in parts if part]) > 3


def test_links_pipes_folders_and_devices_are_no_logs(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_text(line(1))
    (tmp_path / "link").symlink_to(good)
    os.mkfifo(tmp_path / "pipe")  # opening it the usual way would wait forever
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "nothing"):
        assert follow(tmp_path / name).read() == ()
    assert follow(Path("/dev/zero")).read() == ()
    assert numbers(follow(good).read()) == [1]


@given(st.text(max_size=300))
def test_no_line_makes_trouble(text: str) -> None:
    for pattern in ("", *log_patterns.BUILT_IN):
        found = matcher(pattern).match(text)
        assert found is None or found.iteration >= 0


FRAGMENTS = st.sampled_from(
    ["step ", "step 1 ", "loss: ", "0.5", "\n", "\r", "'", "{", "x" * 5000, "é", "\x1b[1m", " = "]
)


@given(st.lists(st.one_of(FRAGMENTS, st.text(max_size=5)), max_size=20), st.data())
def test_whatever_is_written_and_however_it_grows_readers_agree(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], data: st.DataObject
) -> None:
    log, whole = tmp_path_factory.mktemp("logs") / "log", "".join(parts).encode()
    log.write_bytes(whole)
    at_once = follow(log).read()
    log.write_bytes(b"")
    grows, place = follow(log), 0
    found: list[MetricSample] = []
    anew: list[MetricSample] = []
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(whole)], strict=True):
        append(log, whole[start:end])
        found += grows.read()
        stretch = follow(log).batch(place, 99)
        place = stretch.end
        anew += stretch.samples
    assert tuple(found) == tuple(anew) == at_once


def test_custom_patterns_need_re2_without_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    with pytest.raises(ConfigError, match=r"pip install 'themis-scheduler\[patterns\]'"):
        matcher(r"(?P<it>\d+) (?P<loss>\S+)")
    with pytest.raises(ConfigError, match="at most 2048 characters"):
        matcher("x" * (MOST_PATTERN + 1))


def needs_re2() -> None:
    try:
        import re2  # noqa: F401, PLC0415 - whether it is there
    except ImportError:
        missing("google-re2 is not installed")


def test_custom_patterns_find_their_groups() -> None:
    needs_re2()
    found = matcher(
        r"b (?P<it>\d+) (?P<train_loss>\S+)(?: (?P<top1>\S+))?(?: @(?P<t>\d+))?", "train/loss"
    )
    assert group_of("train/loss") == "train_loss"
    assert found.match("b 3 0.5 0.9 @77") == MetricSample(
        3, None, 77, (("train/loss", 0.5), ("top1", 0.9))
    )
    assert found.match("b 3 low") == MetricSample(3, None, None)
    assert found.match("c") is None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing"),
        (r"(?P<it>\d+)(?=x)", "RE2"),
        (r"(?P<loss>\d+)", "group `it`"),
        (r"(?P<it>\d+)", "a group for the metric"),
        (r"(?P<it>((a{99}){99}){99})(?P<loss>1)", "RE2"),
    ],
)
def test_patterns_that_cannot_be_are_refused_with_the_reason(pattern: str, reason: str) -> None:
    needs_re2()
    with pytest.raises(ConfigError, match=reason):
        matcher(pattern)
