"""Metrics files are their owners' to spoil; reading them is always safe."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import themis
from tests.support.requirements import missing
from themis.engines.metrics import jsonl, points
from themis.engines.metrics.jsonl import MOST_LINE, MetricsReader, parse_sample
from themis.engines.metrics.points import MetricSample


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_the_metric_of_the_app_is_never_among_the_values_left_out() -> None:
    many = {f"v{n}": float(n) for n in range(12)}
    line = json.dumps({"it": 1, "loss": 3.0, **many, "accuracy": 0.9}).encode()
    sample = parse_sample(line, "accuracy")
    assert sample is not None
    assert len(sample.values) == points.MOST_VALUES
    assert dict(sample.values)["accuracy"] == 0.9
    assert dict(sample.values)["loss"] == 3.0
    early = parse_sample(line, "v2")
    assert early is not None
    assert [name for name, _ in early.values] == ["loss", *(f"v{n}" for n in range(7))]


def iterations(samples: tuple[MetricSample, ...]) -> list[float]:
    return [sample.iteration for sample in samples]


def line(number: float) -> str:
    return f'{{"it": {number}}}\n'


@pytest.mark.parametrize(
    ("text", "sample"),
    [
        pytest.param(
            '{"it": 12, "loss": 0.31, "t": 1699.2}', MetricSample(12, 0.31, 1699.2), id="whole"
        ),
        pytest.param('{"it": 12}', MetricSample(12, None, None), id="an iteration only"),
        pytest.param(
            '{"it": 1, "loss": 2, "acc": 0.5, "tag": "x", "up": true, "lr": 1e-3}',
            MetricSample(1, 2.0, None, (("acc", 0.5), ("lr", 1e-3))),
            id="other numbers have their names",
        ),
        pytest.param(
            json.dumps({"it": 1, "": 1, "x" * 65: 1, "y" * 64: 1, "\ud800": 1, "a\nb": 1}),
            MetricSample(1, None, None, (("y" * 64, 1.0),)),
            id="odd names are left out",
        ),
        pytest.param(
            json.dumps({"it": 1, **{f"v{n}": n for n in range(9)}, "loss": 3}),
            MetricSample(1, 3.0, None, tuple((f"v{n}", float(n)) for n in range(7))),
            id="eight values, the loss among them",
        ),
        pytest.param(
            '{"it": 1, "loss": NaN, "t": Infinity}', MetricSample(1, math.nan, None), id="no number"
        ),
        pytest.param('{"it": 1, "loss": "low"}', MetricSample(1, None, None), id="a loss in words"),
        pytest.param('{"it": 1, "loss": 1e300}', MetricSample(1, math.nan, None), id="a huge loss"),
        pytest.param('{"it": true}', None, id="a truth is no number"),
        pytest.param('{"it": -1}', None, id="less than nothing"),
        pytest.param('{"it": 1' + "0" * 400 + "}", None, id="a huge number"),
        pytest.param('{"loss": 1}', None, id="no iteration"),
        pytest.param("[1, 2]", None, id="a list"),
        pytest.param("[" * 4000, None, id="deep"),
        pytest.param("it=3", None, id="not JSON"),
        pytest.param("", None, id="empty"),
    ],
)
def test_line_gives_its_reading(text: str, sample: MetricSample | None) -> None:
    assert parse_sample(text.encode()) == sample


@given(st.binary(max_size=200))
def test_no_line_makes_trouble(text: bytes) -> None:
    found = parse_sample(text)
    assert found is None or found.iteration >= 0


def test_new_lines_are_read_once_and_half_lines_when_they_are_whole(file: Path) -> None:
    reader = MetricsReader(str(file))
    assert reader.read() == ()
    file.write_text(line(1) + line(2) + '{"it"')
    assert iterations(reader.read()) == [1, 2]
    assert reader.read() == ()
    with file.open("a") as out:
        out.write(": 3}\n")
    assert iterations(reader.read()) == [3]


def test_a_file_that_was_emptied_or_replaced_is_read_from_its_beginning(file: Path) -> None:
    reader = MetricsReader(str(file))
    file.write_text(line(1) * 3)
    assert len(reader.read()) == 3
    file.write_text(line(2))
    assert iterations(reader.read()) == [2]
    other = file.with_name("other")
    other.write_text(line(3) * 9)
    other.replace(file)
    assert iterations(reader.read()) == [3] * 9


def test_a_line_without_end_is_skipped_and_the_next_one_is_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MOST_READ", 2 * MOST_LINE)
    reader = MetricsReader(str(file))
    file.write_text(line(1) + "x" * 10 * MOST_LINE)
    found = [iterations(reader.read()) for _ in range(8)]
    assert found[0] == [1]
    assert not any(found[1:])
    with file.open("a") as out:
        out.write('{"it": 2}\n' + line(3))
    assert iterations(reader.read()) == [3]


def test_a_flood_is_read_in_parts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MOST_READ", 1000)
    file.write_text("".join(line(n) for n in range(500)))
    reader = MetricsReader(str(file))
    parts = []
    while part := reader.read():
        parts.append(part)
    assert len(parts) > 3
    assert [n for part in parts for n in iterations(part)] == list(range(500))


def test_links_pipes_folders_and_devices_are_no_metrics(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_text(line(1))
    (tmp_path / "link").symlink_to(good)
    os.mkfifo(tmp_path / "pipe")  # opening it the usual way would wait forever
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "nothing"):
        assert MetricsReader(str(tmp_path / name)).read() == ()
    assert MetricsReader("/dev/zero").read() == ()
    assert iterations(MetricsReader(str(good)).read()) == [1]


def test_root_reads_only_what_the_owner_could_and_owns(state: Path) -> None:
    if os.geteuid() != 0:
        missing("root")
    nobody = 65534
    state.mkdir(0o755)
    private = state / "private"
    private.write_text(line(1))
    private.chmod(0o600)
    public = state / "public"
    public.write_text(line(2))
    public.chmod(0o644)
    mine = state / "mine"
    mine.write_text(line(3))
    os.chown(mine, nobody, nobody)
    read = {
        path.name: iterations(MetricsReader(str(path), (nobody, nobody)).read())
        for path in (private, public, mine)
    }
    assert read == {"private": [], "public": [], "mine": [3]}
    assert private.read_text()  # this thread is root again


def test_program_reports_to_its_configured_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEMIS_METRICS", str(file))
    themis.report(1, 0.5)
    themis.report(2.5, float("nan"))
    themis.report(3, accuracy=0.75, it_count=4)
    samples = MetricsReader(str(file)).read()
    assert [(sample.iteration, str(sample.loss)) for sample in samples] == [
        (1, "0.5"),
        (2.5, "nan"),
        (3, "None"),
    ]
    assert all(sample.time is not None for sample in samples)
    assert samples[2].values == (("accuracy", 0.75), ("it_count", 4.0))
    assert json.loads(file.read_text().splitlines()[0])["it"] == 1


def test_outside_themis_reports_are_dropped_and_full_disk_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("THEMIS_METRICS", raising=False)
    themis.report(1, 0.5)
    monkeypatch.setenv("THEMIS_METRICS", str(tmp_path / "no" / "such" / "folder"))
    themis.report(1, 0.5)
    with pytest.raises(AttributeError, match="no attribute 'rapport'"):
        themis.rapport  # noqa: B018 - that is the test


def test_a_reader_goes_on_from_where_another_was(file: Path) -> None:
    file.write_text("".join(line(n) for n in range(1, 8)) + "nonsense\n")
    first = MetricsReader(str(file)).batch(0, 3)
    assert (iterations(first.samples), first.more) == ([1, 2, 3], True)
    assert first.end == first.samples[-1].end
    second = MetricsReader(str(file)).batch(first.samples[1].end, 100)
    assert (iterations(second.samples), second.more) == ([3, 4, 5, 6, 7], False)
    assert second.end == file.stat().st_size, "what is no sample is not read again"
    file.write_text(line(9))
    assert iterations(MetricsReader(str(file)).batch(second.end, 100).samples) == [9]


def test_many_lines_without_samples_are_got_over(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MOST_READ", 100)
    file.write_text("nonsense\n" * 40 + line(1))
    reader, place = MetricsReader(str(file)), 0
    found: list[float] = []
    while (part := reader.batch(place, 10)).more:
        place = part.end
        found += iterations(part.samples)
    assert [*found, *iterations(part.samples)] == [1]


def test_the_rest_of_a_line_that_is_too_long_is_no_line(file: Path) -> None:
    rest = '{"it": 7}'
    file.write_text(line(1) + "x" * (jsonl.MOST_LINE + 1))
    first = MetricsReader(str(file)).batch(0, 10)
    assert (iterations(first.samples), first.end) == ([1], file.stat().st_size)
    with file.open("a") as out:
        out.write(f"{rest}\n{line(2)}")
    second = MetricsReader(str(file)).batch(first.end, 10)
    assert iterations(second.samples) == [2]
    assert MetricsReader(str(file)).batch(second.end, 10).samples == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(line(1), "", id="samples"),
        pytest.param("\n\n" + line(1), "", id="empty lines"),
        pytest.param("loss 0.3\n", "is not like {\"it\": 12, ...}: 'loss 0.3'", id="garbage"),
        pytest.param("x" * 5000 + "\n", "longer than 4096 bytes", id="a long line"),
        pytest.param("x" * 5000, "longer than 4096 bytes", id="a long line without an end"),
    ],
)
def test_omitted_values_are_reported(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    reader = MetricsReader(str(file))
    stretch = reader.batch(0, 10)
    assert stretch.trouble == reader.trouble
    assert (told in stretch.trouble) if told else not stretch.trouble


def test_non_file_is_reported_and_missing_file_is_not(tmp_path: Path) -> None:
    assert MetricsReader(str(tmp_path / "none")).batch(0, 10).trouble == ""
    (tmp_path / "link").symlink_to(tmp_path / "none")
    assert "cannot be read" in MetricsReader(str(tmp_path / "link")).batch(0, 10).trouble
    assert "no plain file" in MetricsReader(str(tmp_path)).batch(0, 10).trouble


def test_readable_file_clears_its_earlier_error(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    os.symlink(tmp_path, path)
    reader = MetricsReader(str(path))
    assert "cannot be read" in reader.batch(0, 10).trouble
    path.unlink()
    path.write_text(line(1))
    assert reader.batch(0, 10).trouble == ""


def test_a_folder_that_the_owner_is_about_to_get_is_no_trouble(state: Path) -> None:
    if os.geteuid() != 0:
        missing("root")
    state.mkdir(0o700)
    path = state / "metrics.jsonl"
    reader = MetricsReader(str(path), (65534, 65534))
    assert reader.batch(0, 10).trouble == "", "its supervisor has not begun"
    os.chown(state, 65534, 65534)
    path.write_text(line(1))
    path.chmod(0o600)
    assert "cannot be read" in reader.batch(0, 10).trouble, "it is root's"
    os.chown(path, 65534, 65534)
    assert len(reader.batch(0, 10).samples) == 1
