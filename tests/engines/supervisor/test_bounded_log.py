"""Logs keep their first and their last part, and stay within their limit."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from themis.engines.supervisor.bounded_log import BoundedFile, piece_of, tail

LIMIT = 1600


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    log = BoundedFile(str(tmp_path / "log"), LIMIT)
    writer = log.writer()
    os.write(writer, b"hello\n")
    assert log.trim() is False
    assert (tmp_path / "log").read_bytes() == b"hello\n"
    os.close(writer)


def test_a_long_log_keeps_its_head_and_its_latest_part(tmp_path: Path) -> None:
    log = BoundedFile(str(tmp_path / "log"), LIMIT)
    writer = log.writer()
    for part in (b"a", b"b", b"c"):
        os.write(writer, part * 2000)
        assert log.trim() is True
        assert (tmp_path / "log").stat().st_size == 0
    os.write(writer, b"end")
    assert (tmp_path / "log.head").read_bytes() == b"a" * (LIMIT // 16)
    assert (tmp_path / "log.old").read_bytes() == b"c" * (LIMIT // 4)
    assert tail(str(tmp_path / "log"), 5) == b"ccend"
    assert tail(str(tmp_path / "log"), 2) == b"nd"
    os.close(writer)


def test_a_log_that_grows_fast_is_looked_at_again_soon(tmp_path: Path) -> None:
    log = BoundedFile(str(tmp_path / "log"), LIMIT)
    writer = log.writer()
    os.write(writer, b"x" * (LIMIT // 8))
    assert log.trim() is True
    assert log.trim() is False
    os.close(writer)


def test_unkept_log_is_only_emptied(tmp_path: Path) -> None:
    file = BoundedFile(str(tmp_path / "metrics"), LIMIT, keep=False)
    (tmp_path / "metrics").write_bytes(b"x" * 2000)
    assert file.trim() is True
    assert [path.name for path in tmp_path.iterdir()] == ["metrics"]


def test_a_log_is_emptied_even_if_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BoundedFile, "_copy", full)
    log = BoundedFile(str(tmp_path / "log"), LIMIT)
    (tmp_path / "log").write_bytes(b"x" * 2000)
    log.trim()
    assert (tmp_path / "log").stat().st_size == 0


def test_the_name_may_lead_elsewhere_and_the_file_is_still_the_same(tmp_path: Path) -> None:
    """The owner may replace the name; root must not empty what it leads to."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"v" * 5000)
    log = BoundedFile(str(tmp_path / "log"), LIMIT)
    (tmp_path / "log").unlink()
    (tmp_path / "log").symlink_to(victim)
    log.trim()
    assert victim.stat().st_size == 5000
    with pytest.raises(FileExistsError):
        BoundedFile(str(tmp_path / "log"), LIMIT)


def test_the_tail_of_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert tail(str(tmp_path / "log"), 10) == b""


def test_offsets_go_on_counting_when_a_log_is_cut(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    log = BoundedFile(path, LIMIT)
    written = b""
    for number in range(400):
        line = b"line %d\n" % number
        written += line
        with open(path, "ab") as file:
            file.write(line)
        log.trim()
    assert (tmp_path / "log").stat().st_size < LIMIT < len(written)
    place, read = 0, []
    while (piece := piece_of(path, place, 100)).text:
        # Whatever is there is what stood there.
        assert written[piece.offset : piece.next] == piece.text.encode()
        assert piece.offset >= place
        assert piece.size == len(written)
        read.append(piece)
        place = piece.next
    assert read[0].offset == 0
    assert read[-1].next == len(written)
    assert any(after.offset > before.next for before, after in pairwise(read)), "nothing was cut"


def test_reader_during_truncation_keeps_its_position(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * LIMIT + b"end")
    (tmp_path / "log.cut").write_bytes(b"5000 %d %d" % (5000 + LIMIT + 3, LIMIT))
    before = piece_of(str(path), 5000 + LIMIT, 100)
    assert (before.text, before.size) == ("end", 5000 + LIMIT + 3)
    path.write_bytes(b"")
    assert piece_of(str(path), before.next, 100).size == before.next


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
def test_no_character_is_torn(tmp_path: Path, most: int) -> None:
    path = tmp_path / "log"
    path.write_bytes("aé€😀b".encode() + b"\xff" + "ü".encode()[:1])
    text, place = "", 0
    while (piece := piece_of(str(path), place, max(most, 4))).text:
        text, place = text + piece.text, piece.next
    assert text == "aé€😀b\ufffd"
    with path.open("ab") as file:
        file.write("ü".encode()[1:])
    assert piece_of(str(path), place, 10).text == "ü"


def test_half_a_character_at_the_end_of_a_closed_log_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\xc3")
    assert piece_of(str(path), 0, 10).next == 1
    last = piece_of(str(path), 1, 10, final=True)
    assert (last.text, last.next) == ("\ufffd", 2)
