"""Records in place: read whole or not at all, private, and writable on a full disk."""

from pathlib import Path

import pytest

from themis.engines.attempt.record_file import (
    PAGE,
    PageTooLongError,
    create_page,
    read_page,
    write_page,
)


def test_latest_record_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "page")
    create_page(path, {"end": 1.5, "text": "é" * 100})
    write_page(path, {"end": 2.5})
    assert read_page(path) == {"end": 2.5}
    about = (tmp_path / "page").stat()
    assert (about.st_mode & 0o777, about.st_size) == (0o600, PAGE)


def test_writing_needs_no_new_space(tmp_path: Path) -> None:
    """The same file, of the same length: a rename would need a second one."""
    path = tmp_path / "page"
    create_page(str(path), {"n": 0})
    before = path.stat()
    for n in range(50):
        write_page(str(path), {"n": n, "text": "x" * 40 * n})
    after = path.stat()
    assert (before.st_ino, before.st_blocks) == (after.st_ino, after.st_blocks)


@pytest.mark.parametrize("at", [0, 5, 9, 12, 4000, PAGE - 1])
def test_a_damaged_page_is_not_believed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "page"
    create_page(str(path), {"end": 1.5})
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    assert read_page(str(path)) is None


def test_truncated_and_missing_pages_are_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "page"
    create_page(str(path), {"end": 1.5})
    path.write_bytes(path.read_bytes()[:100])
    assert read_page(str(path)) is None
    assert read_page(str(tmp_path / "nothing")) is None


def test_invalid_record_is_refused_without_effect(tmp_path: Path) -> None:
    path = str(tmp_path / "page")
    create_page(path, {"a": 1})
    with pytest.raises(PageTooLongError):
        write_page(path, {"a": "x" * PAGE})
    with pytest.raises(FileExistsError):
        create_page(path, {})
    assert read_page(path) == {"a": 1}


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    create_page(str(tmp_path / "page"), {"a": 1})
    (tmp_path / "link").symlink_to(tmp_path / "page")
    with pytest.raises(OSError, match="symbolic"):
        write_page(str(tmp_path / "link"), {"a": 2})
