"""Every module, function and class that a text of the project names exists.

Modules are named in strings too: processes are started by module name, verbs and solvers are
looked up, tests replace attributes by path, and docs point at files. None of these is seen by mypy.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_project import ROOT, tracked_files

SOURCE = ROOT / "src" / "themis"
SUFFIXES = {".md", ".py", ".sh", ".toml", ".service", ".yaml", ""}
DOTTED = re.compile(r"(?<![\w/.-])themis((?:\.[A-Za-z_]\w*)+)")
IMPORTED = re.compile(r"from themis((?:\.\w+)*) import ((?:\w+(?: as \w+)?(?:, )?)+)")
FILE = re.compile(r"(?<![\w/.-])(?:src/themis/|tests/|benchmarks/|scripts/)[\w/-]+\.py")
NOT_MODULES = {
    "__file__", "db", "interactive", "jsonl", "lab", "md", "page", "rapport", "service", "source",
    "json", "proto", "test", "v1", "yaml",
}  # fmt: skip
"""What follows `themis.` in names of files, units, hosts and browser objects."""


@cache
def names_in(module: str) -> frozenset[str] | None:
    """The names at the top of a module and the modules in it; None when there is no such module."""
    path = SOURCE.joinpath(*module.split(".")) if module else SOURCE
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.exists():
        return None
    found = {item.stem for item in path.iterdir()} if path.is_dir() else set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                found |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            case ast.Constant(value=str(name)):  # names that `__getattr__` gives
                found.add(name)
            case _:
                pass
    return frozenset(found)


def missing(dotted: str) -> bool:
    """Whether `a.b.Name`, below themis, leads nowhere."""
    parts = dotted.split(".")
    for count in range(len(parts), -1, -1):
        names = names_in(".".join(parts[:count]))
        if names is not None:
            return count < len(parts) and parts[count] not in names
    return True


def wrong_names(text: str) -> list[str]:
    wrong = [
        f"themis.{dotted}"
        for dotted in (found.group(1)[1:] for found in DOTTED.finditer(text))
        if dotted.partition(".")[0] not in NOT_MODULES and missing(dotted)
    ]
    for found in IMPORTED.finditer(text):
        module = found.group(1)[1:]
        names = (item.partition(" as ")[0] for item in found.group(2).split(", "))
        wrong += [
            f"from themis{found.group(1)} import {name}"
            for name in names
            if name and missing(f"{module}.{name}".removeprefix("."))
        ]
    wrong += [path for path in FILE.findall(text) if not (ROOT / path).exists()]
    return wrong


def test_every_module_that_a_text_names_exists() -> None:
    wrong = []
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        told = name.startswith(("docs/results", "tests/replay/golden"))
        if path.suffix not in SUFFIXES or told or path.name == Path(__file__).name:
            continue
        text = path.read_text(errors="replace")
        wrong += [f"{name}: {each}" for each in wrong_names(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "spawn('themis.engines.no_such_module', file)",
        "monkeypatch.setattr('themis.engines.base.NoSuchEngine', None)",
        "from themis.engines import no_such_engine",
        "see src/themis/engines/no_such_file.py",
    ],
)
def test_a_name_that_leads_nowhere_is_found(text: str) -> None:
    assert wrong_names(text)
