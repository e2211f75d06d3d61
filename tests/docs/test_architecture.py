"""ARCHITECTURE.md names only paths, modules, events and commands that exist, and stays short."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "themis"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[a-z_]+(?:/[A-Za-z_.-]+)+/?|[a-z_]+\.(?:py|toml|js)")
CLASS = re.compile(r"_?[A-Z][A-Za-z]+|_?[A-Z_]{4,}")


def paths_in(page: str) -> set[str]:
    """Paths in backquotes, and the folders and files of the tree."""
    found = {text for text in QUOTED.findall(page) if PATH.fullmatch(text)}
    tree = page.rsplit("## The tree", maxsplit=1)[-1].split("```")
    if len(tree) > 1:
        found |= set(re.findall(r"^ {2,4}([a-z_]+(?:/|\.py)) ", tree[1], re.MULTILINE))
    return found


def exists(path: str) -> bool:
    places = (ROOT, SOURCE, SOURCE / "core")
    return any((place / path).exists() for place in places)


@cache
def source() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))


def classes_in(page: str) -> set[str]:
    code = set(re.findall(r"case (\w+)\(\)", page))
    return code | {text for text in QUOTED.findall(page) if CLASS.fullmatch(text)}


def defined(name: str) -> bool:
    return re.search(rf"^(?:class {name}\b|{name}\b[:\s].*=)", source(), re.MULTILINE) is not None


def test_every_path_it_names_exists() -> None:
    assert len(paths_in(PAGE)) > 40
    assert [path for path in sorted(paths_in(PAGE)) if not exists(path)] == []


def test_every_event_and_command_it_names_exists() -> None:
    assert len(classes_in(PAGE)) > 15
    assert [name for name in sorted(classes_in(PAGE)) if not defined(name)] == []


def test_it_can_be_read_in_one_sitting() -> None:
    assert len(PAGE.splitlines()) <= 250


@pytest.mark.parametrize("path", ["core/arbiter/no_such_file.py", "nowhere/at_all/"])
def test_a_path_that_leads_nowhere_is_found(path: str) -> None:
    assert [each for each in paths_in(f"see `{path}`") if not exists(each)] == [path]


def test_a_command_that_does_not_exist_is_found() -> None:
    assert [name for name in classes_in("`NoSuchCommand`") if not defined(name)]
