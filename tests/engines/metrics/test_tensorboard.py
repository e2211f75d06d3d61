"""Event files are their owners' to spoil; what is whole in them is read once."""

import math
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirements import missing
from themis.engines.metrics import TensorBoardReader, tensorboard
from themis.engines.metrics.points import MetricSample
from themis.engines.metrics.tfevents import MOST_RECORD, Event, masked_crc, parse_event

RECORDED = Path(__file__).parent / "recorded"
OLD, NEW = "events.out.tfevents.1700000000.m0", "events.out.tfevents.1700000100.m0.7.0"


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def framed(record: bytes) -> bytes:
    head = struct.pack("<Q", len(record))
    return (
        head + struct.pack("<I", masked_crc(head)) + record + struct.pack("<I", masked_crc(record))
    )


def event(step: int, time: float, values: Iterable[bytes] = ()) -> bytes:
    body = b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step)
    summary = b"".join(field(1, value) for value in values)
    return body + (field(5, summary) if summary else b"")


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag: str, body: bytes, plugin: bytes = b"scalars") -> bytes:
    return field(1, tag.encode()) + field(8, body) + field(9, field(1, field(1, plugin)))


def scalar(step: int, tag: str = "loss", value: float = 0.5) -> bytes:
    return framed(event(step, 1.0, [simple(tag, value)]))


def steps(readings: Iterable[MetricSample]) -> list[float]:
    return [each.iteration for each in readings]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.out.tfevents.100.m0"


def reader(folder: Path, below: str = "", **more: float) -> TensorBoardReader:
    return TensorBoardReader(str(folder), below, since=more.get("since", 0.0))


def test_the_checksum_is_that_of_the_format() -> None:
    # The check value of CRC-32C is 0xE3069283; masked as event files have it.
    crc = 0xE3069283
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc(b"123456789") == masked


def test_tensorboardx_file_is_read_and_reproduced_byte_for_byte() -> None:
    found = reader(RECORDED).read()
    expected = []
    for step in range(1, 6):
        expected += [(step, "loss", 1 / step), (step, "accuracy", step / 10)]
    old = [each for each in found if each.iteration < 100]
    assert [(each.iteration, each.values[0][0]) for each in old[:-1]] == [
        (step, tag) for step, tag, _ in expected
    ]
    values = [value for *_, value in expected]
    assert [each.values[0][1] for each in old[:-1]] == pytest.approx(values)
    assert [each.time for each in old[:3]] == [1700000001.5, 1700000001.5, 1700000002.5]
    assert old[-1] == MetricSample(6, math.nan, 1700000007.0)  # the loss was infinite
    written = b"".join(
        framed(event(step, 1700000000.5 + step, [simple(tag, value)]))
        for step, tag, value in expected
    )
    assert written in (RECORDED / OLD).read_bytes()


def test_torch_tensor_scalars_are_read_and_texts_and_histograms_are_not() -> None:
    found = [each for each in reader(RECORDED).read() if each.iteration >= 100]
    assert [each.values[0][0] for each in found] == ["train/loss", "train/exact", "old"] * 3
    values = [value for n in (1, 2, 3) for value in (2 / n, n / 10, n / 2)]
    assert [each.values[0][1] for each in found] == pytest.approx(values)
    assert steps(found) == [100] * 3 + [200] * 3 + [300] * 3


@pytest.mark.parametrize("name", [OLD, NEW])
def test_a_file_that_grows_byte_by_byte_gives_every_reading_once(tmp_path: Path, name: str) -> None:
    data = (RECORDED / name).read_bytes()
    whole = [each for each in reader(RECORDED).read() if (each.iteration >= 100) == (name == NEW)]
    same, place = reader(tmp_path), 0
    found: list[MetricSample] = []
    anew: list[MetricSample] = []
    with (tmp_path / name).open("wb") as out:
        for byte in data:
            out.write(bytes([byte]))
            out.flush()
            found += same.read()
            stretch = reader(tmp_path).batch(place, 10)  # as after a restart of the node
            anew += stretch.samples
            place = stretch.end
    assert found == whole
    assert anew == whole
    assert same.trouble == ""


def test_reading_goes_on_after_any_reading(file: Path) -> None:
    file.write_bytes(b"".join(scalar(n) for n in range(9)))
    all_of_them = reader(file.parent).read()
    for index, each in enumerate(all_of_them):
        assert reader(file.parent).batch(each.end, 99).samples == all_of_them[index + 1 :]


def test_tensorboard_batches_keep_their_limit_and_report_more(file: Path) -> None:
    file.write_bytes(b"".join(scalar(n) for n in range(5)))
    file.with_name("events.out.tfevents.101.m0").write_bytes(scalar(5))
    place, found = 0, []
    for more in (True, True, False):
        stretch = reader(file.parent).batch(place, 2)
        found.append(steps(stretch.samples))
        place = stretch.end
        assert stretch.more is more
    assert found == [[0, 1], [2, 3], [4, 5]]


def test_files_are_read_in_order_of_seconds_and_then_counters(tmp_path: Path) -> None:
    names = ["9.m0", "100.a.7.2", "100.a.7.10.v2", "1000.z"]
    for step, name in enumerate(names):
        (tmp_path / f"events.out.tfevents.{name}").write_bytes(scalar(step))
    (tmp_path / "model.pt").write_bytes(b"not for us")
    assert steps(reader(tmp_path).read()) == [0, 1, 2, 3]


def test_superseded_file_is_read_to_its_end_despite_half_a_record(file: Path) -> None:
    follows = reader(file.parent)
    file.write_bytes(scalar(1) + scalar(2)[:-1])
    assert steps(follows.read()) == [1]
    file.with_name("events.out.tfevents.101.m0").write_bytes(scalar(3))
    assert steps(follows.read()) == [3]


def test_position_in_a_deleted_file_leads_to_later_files(file: Path) -> None:
    file.write_bytes(scalar(1) + scalar(2))
    stretch = reader(file.parent).batch(0, 1)
    file.unlink()
    for number in (99, 101):
        file.with_name(f"events.out.tfevents.{number}.m0").write_bytes(scalar(number))
    assert steps(reader(file.parent).batch(stretch.end, 9).samples) == [101]


def test_files_of_earlier_starts_are_left_alone(file: Path) -> None:
    file.write_bytes(scalar(1))
    os.utime(file, (1000, 1000))
    later = file.with_name("events.out.tfevents.50.m0")  # by a machine whose clock is behind
    later.write_bytes(scalar(2))
    assert steps(reader(file.parent, since=2000.0).read()) == [2]


@pytest.mark.parametrize("at", [0, 9, 14, 40, 60])
def test_damaged_file_is_skipped_with_a_message(file: Path, at: int) -> None:
    good = scalar(1)
    bad = bytearray(scalar(2) + scalar(3))
    bad[at] ^= 0x40
    file.write_bytes(good + bad)
    next_one = file.with_name("events.out.tfevents.101.m0")
    next_one.write_bytes(scalar(4))
    follows = reader(file.parent)
    assert steps(follows.read()) == ([1, 4] if at < 42 else [1, 2, 4])
    assert file.name in follows.trouble
    assert "damaged at byte" in follows.trouble
    with file.open("ab") as out:
        out.write(scalar(5))
    with next_one.open("ab") as out:
        out.write(scalar(6))
    assert steps(follows.read()) == [6]


def test_damaged_last_file_stays_skipped_for_new_readers(file: Path) -> None:
    file.write_bytes(b"garbage " * 10)
    stretch = reader(file.parent).batch(0, 9)
    assert (stretch.samples, stretch.more) == ((), False)
    file.write_bytes(scalar(1) * 9)
    file.with_name("events.out.tfevents.101.m0").write_bytes(scalar(2))
    assert steps(reader(file.parent).batch(stretch.end, 9).samples) == [2]


def test_records_that_are_too_long_are_stepped_over_without_being_read(file: Path) -> None:
    long = MOST_RECORD + 1
    head = struct.pack("<Q", long)
    with file.open("wb") as out:
        out.write(scalar(1) + head + struct.pack("<I", masked_crc(head)))
        out.seek(long + 4, os.SEEK_CUR)
        out.write(scalar(2))
    follows, found = reader(file.parent), []
    for _ in range(3):
        found += steps(follows.read())
    assert found == [1, 2]
    assert follows.trouble == ""


def test_oversized_record_is_not_awaited_and_does_no_harm(file: Path) -> None:
    head = struct.pack("<Q", (1 << 64) - 1)
    file.write_bytes(scalar(1) + head + struct.pack("<I", masked_crc(head)) + b"x" * 100)
    follows = reader(file.parent)
    assert steps(follows.read()) == [1]
    assert steps(follows.read()) == []
    file.with_name("events.out.tfevents.101.m0").write_bytes(scalar(2))
    assert steps(follows.read()) == [2]


def test_a_flood_is_read_in_parts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "MOST_READ", 1000)
    monkeypatch.setattr(tensorboard, "MOST_OPENED", 2)
    expected: list[int] = []
    for number in range(8):
        numbers = range(number * 40, number * 40 + 40)
        expected += numbers
        name = f"events.out.tfevents.{100 + number}.m0"
        file.with_name(name).write_bytes(b"".join(scalar(n) for n in numbers))
    follows, parts, place = reader(file.parent), [], 0
    while True:
        stretch = follows.batch(place, 10**6)
        parts.append(steps(stretch.samples))
        place = stretch.end
        if not stretch.more:
            break
    assert len(parts) > 8
    assert [n for part in parts for n in part] == expected


def test_folder_of_too_many_files_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "MOST_FILES", 3)
    for number in range(9):
        (tmp_path / f"events.out.tfevents.{number}").write_bytes(scalar(number))
    follows = reader(tmp_path)
    assert len(follows.read()) == 3
    assert "too many files" in follows.trouble


def test_links_pipes_folders_and_devices_are_no_event_files(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "events.out.tfevents.1").write_bytes(scalar(1))
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "events.out.tfevents.1").symlink_to(real / "events.out.tfevents.1")
    os.mkfifo(folder / "events.out.tfevents.2")  # opening it the usual way would wait forever
    (folder / "events.out.tfevents.3").mkdir()
    (folder / "events.out.tfevents.4").write_bytes(scalar(4))
    (tmp_path / "link").symlink_to(real)
    assert steps(reader(tmp_path, "runs").read()) == [4]
    for below in ("link", "runs/../real", "nothing", "real/events.out.tfevents.1", "a\0b"):
        assert reader(tmp_path, below).read() == ()
    assert steps(reader(tmp_path, "./real/").read()) == [1]
    assert reader(Path("/dev/zero")).read() == ()


def test_root_reads_only_event_files_that_the_owner_could_and_owns(state: Path) -> None:
    if os.geteuid() != 0:
        missing("root")
    nobody = 65534
    state.mkdir(0o755)
    for name, mode, owner in ((1, 0o600, 0), (2, 0o644, 0), (3, 0o600, nobody)):
        path = state / f"events.out.tfevents.{name}"
        path.write_bytes(scalar(name))
        path.chmod(mode)
        os.chown(path, owner, owner)
    assert steps(TensorBoardReader(str(state), owner=(nobody, nobody)).read()) == [3]
    state.chmod(0o700)
    assert TensorBoardReader(str(state), owner=(nobody, nobody)).read() == ()


FLOAT, DOUBLE, INT, LONG, HALF = 1, 2, 3, 9, 19


@pytest.mark.parametrize(
    ("body", "number"),
    [
        pytest.param(b"\x08\x01" + field(5, struct.pack("<f", 1.5)), 1.5, id="packed floats"),
        pytest.param(b"\x08\x01\x2d" + struct.pack("<f", 1.5), 1.5, id="a float"),
        pytest.param(b"\x08\x01" + field(4, struct.pack("<f", 1.5)), 1.5, id="bytes of a float"),
        pytest.param(b"\x08\x02\x31" + struct.pack("<d", 1.5), 1.5, id="a double"),
        pytest.param(b"\x08\x03" + field(7, b"\x07"), 7.0, id="packed integers"),
        pytest.param(b"\x08\x09\x50" + varint(-3), -3.0, id="a negative integer"),
        pytest.param(b"\x08\x13" + field(4, struct.pack("<e", 0.5)), 0.5, id="bytes of a half"),
        pytest.param(b"\x08\x01" + field(4, struct.pack("<2f", 1, 2)), None, id="two floats"),
        pytest.param(b"\x08\x01" + field(5, struct.pack("<2f", 1, 2)), None, id="two, packed"),
        pytest.param(b"\x08\x03" + field(7, b"\x01\x02"), None, id="two integers"),
        pytest.param(b"\x08\x07" + field(8, b"text"), None, id="text"),
        pytest.param(
            b"\x08\x01" + field(2, field(2, b"\x08\x02")) + field(5, struct.pack("<f", 1)),
            None,
            id="a vector that is filled with one number",
        ),
        pytest.param(b"\x08\x01", None, id="nothing in it"),
        pytest.param(b"", None, id="nothing"),
    ],
)
def test_which_tensors_are_numbers(body: bytes, number: float | None) -> None:
    found = parse_event(event(1, 2.0, [tensor("x", body)]))
    assert found == Event(1, 2.0, () if number is None else (("x", number),))


def test_tensors_for_others_are_no_scalars() -> None:
    body = b"\x08\x01\x2d" + struct.pack("<f", 1.5)
    assert parse_event(event(1, 2.0, [tensor("x", body, b"hparams")])) == Event(1, 2.0, ())


def test_names_and_numbers_that_cannot_be_sent_on_are_left_out(file: Path) -> None:
    values = [simple("x" * 65, 1.0), simple("a\nb", 1.0), simple("", 1.0), simple("nan", math.nan)]
    values += [simple(f"v{n}", n) for n in range(12)] + [simple("loss", 0.5), simple("loss", 9.0)]
    file.write_bytes(
        framed(event(-1, 1.0, [simple("loss", 1.0)]))
        + framed(event(1 << 60, 1.0, [simple("loss", 1.0)]))
        + framed(event(7, math.nan, values))
    )
    (found,) = reader(file.parent).read()
    assert found == MetricSample(7, 0.5, None, tuple((f"v{n}", float(n)) for n in range(7)))


@given(st.binary(max_size=300))
def test_no_record_makes_trouble(record: bytes) -> None:
    found = parse_event(record)
    assert found is None or isinstance(found.step, int)


@given(
    st.lists(
        st.one_of(
            st.integers(0, 99).map(scalar),
            st.binary(max_size=40),
            st.binary(max_size=40).map(framed),
        ),
        max_size=8,
    ),
    st.data(),
)
def test_whatever_is_written_and_however_it_grows_readers_agree(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("events")
    file, whole = folder / "events.out.tfevents.1", b"".join(parts)
    file.write_bytes(whole)
    at_once = reader(folder).read()
    file.write_bytes(b"")
    grows, place = reader(folder), 0
    found: list[MetricSample] = []
    anew: list[MetricSample] = []
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(whole)], strict=True):
        with file.open("ab") as out:
            out.write(whole[start:end])
        found += grows.read()
        stretch = reader(folder).batch(place, 99)
        place = stretch.end
        anew += stretch.samples
    assert tuple(found) == tuple(anew) == at_once
