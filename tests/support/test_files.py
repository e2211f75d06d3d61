"""Looking for files where somebody else is at work."""

import shutil
from pathlib import Path

from tests.support.files import files_below, files_named


def test_files_of_a_name_are_found_in_any_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "ran").mkdir(parents=True)
    for name in ("ran", "a/b", "a/ran/ran"):
        (tmp_path / name).touch()
    assert sorted(files_named("ran", tmp_path)) == [tmp_path / "a/ran/ran", tmp_path / "ran"]


def test_a_folder_that_goes_while_it_is_looked_for_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("first", "folder/second"):
        (tmp_path / name).touch()
    found = files_below(tmp_path)
    assert next(found) == tmp_path / "first"
    shutil.rmtree(tmp_path / "folder")
    assert list(found) == []
