"""The project as a whole: what importing it costs, what its files may say, what is pinned."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.requirements import require_tool

ROOT = Path(__file__).parent.parent
HEAVY = ("grpc", "matplotlib", "numba", "numpy", "optuna", "psycopg", "pydantic", "ray")
CONSTRAINT = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+")

# Written so that this file does not match itself.
NOT_IN_THE_TREE = {
    "a path of one machine": re.compile(r"(?<![\w.}])/(?:root|work|home/\w+|Users/\w+)/"),
    "a package index": re.compile(r"\bpypi\.\w|pythonhosted\.\w|https?://\S+/simple\b"),
    "an option naming an index": re.compile(r"--(?:extra-)?index-(?:url)|--find-(?:links)"),
}


# Held by the contract on training programs instead.
NOT_LAYERED = {f"integrations.{name}" for name in ("lightning", "optional_bases", "transformers")}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def constraint_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def pinned_names() -> set[str]:
    return {canonicalize_name(line.split("==")[0]) for line in constraint_lines()}


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    git = require_tool("git", package="git")
    # The tree may belong to another user, as in containers.
    command = [str(git), "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def heavy_modules_after(statement: str) -> str:
    show = f"print(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    command = [sys.executable, "-c", f"import sys\n{statement}\n{show}"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return run.stdout.strip()


def test_importing_themis_loads_no_heavy_library() -> None:
    assert heavy_modules_after("import themis") == ""


def test_the_check_for_heavy_libraries_would_notice_one() -> None:
    assert heavy_modules_after("import numpy") == "numpy"


def test_the_command_explains_itself_without_heavy_libraries() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "themis", "--help"]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    assert "Usage" in run.stdout
    imported = {line.rsplit("|", 1)[-1].strip() for line in run.stderr.splitlines()}
    assert "themis" in imported
    assert not imported.intersection(HEAVY)


def test_no_file_names_what_is_of_one_machine() -> None:
    found = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" in data:  # no text
            continue
        text = data.decode("utf-8", errors="replace")
        for what, pattern in NOT_IN_THE_TREE.items():
            for number, line in enumerate(text.splitlines(), start=1):
                if pattern.search(line):
                    where = f"{path.relative_to(ROOT)}:{number}"
                    found.append(f"{where}: {what}: {line.strip()[:100]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of one machine", "see /" + "root/.config"),
        ("a path of one machine", "open('/" + "home/ada/x')"),
        ("a package index", "https://pypi" + ".example/simple"),
        ("an option naming an index", "pip install --index" + "-url x"),
    ],
)
def test_the_scan_would_notice(what: str, line: str) -> None:
    assert NOT_IN_THE_TREE[what].search(line)


def test_no_property_test_holds_on_to_its_number_of_examples_when_fuzzing() -> None:
    fixed = re.compile(r"max_examples\s*=\s*\d|derandomize\s*=")
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    here = Path(__file__).resolve()
    assert [path.name for path in tests if path != here and fixed.search(path.read_text())] == []


def test_test_names_have_at_most_twelve_words() -> None:
    names = re.compile(r"^ *(?:async )?def test_(\w+)", re.MULTILINE)
    modules = [path for path in tracked_files() if path.suffix == ".py"]
    found = [name for path in modules for name in names.findall(path.read_text("utf-8"))]
    assert len(found) > 3000
    assert [name for name in found if name.count("_") >= 12] == []


def test_constraints_are_plain_pins() -> None:
    odd = [line for line in constraint_lines() if not CONSTRAINT.fullmatch(line)]
    assert odd == []


def test_every_dependency_named_in_pyproject_is_pinned() -> None:
    project = pyproject()["project"]
    named = [*project["dependencies"], *pyproject()["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        named += extra
    names = {canonicalize_name(Requirement(text).name) for text in named}
    assert names - pinned_names() == {"themis-scheduler"}


def test_no_extra_is_needed_to_simulate_or_to_serve() -> None:
    project = pyproject()["project"]
    base = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert {"numpy", "highspy", "grpcio", "protobuf", "starlette", "uvicorn"} <= base
    assert {"cryptography", "prometheus-client"} <= base
    assert not {"sim", "server"} & project["optional-dependencies"].keys()


def test_every_installed_dependency_of_a_dependency_is_pinned() -> None:
    assert reachable("themis-scheduler", {"all", "dev"}) - pinned_names() == {"themis-scheduler"}


def reachable(name: str, extras: set[str]) -> set[str]:
    """The installed distributions that `name` with its extras brings in, itself included."""
    seen: set[tuple[str, str]] = set()
    todo = [(canonicalize_name(name), extra) for extra in sorted({"", *extras})]
    while todo:
        here = todo.pop()
        if here in seen or not is_installed(here[0]):
            continue
        seen.add(here)
        for text in metadata.requires(here[0]) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": here[1]}):
                wanted = sorted({"", *needed.extras})
                todo += [(canonicalize_name(needed.name), extra) for extra in wanted]
    return {distribution for distribution, _ in seen}


def is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_every_module_has_its_place_in_the_import_contracts() -> None:
    contracts = {item["name"]: item for item in pyproject()["tool"]["importlinter"]["contracts"]}
    layers = contracts["imports point downwards"]["layers"]
    placed = {name.removeprefix("themis.") for layer in layers for name in layer.split(" | ")}
    source = ROOT / "src" / "themis"
    there = {path.stem for path in source.iterdir() if path.suffix == ".py"}
    there |= {path.parent.name for path in source.glob("*/__init__.py")}
    packages = there & {name.partition(".")[0] for name in placed}
    # What training programs import has a contract of its own.
    assert there - packages <= {"__init__", "__main__", "reporting", "integrations"}
    for package in packages - placed:
        parts = {
            f"{package}.{path.stem}"
            for path in (source / package).iterdir()
            if path.suffix == ".py"
        }
        parts |= {
            f"{package}.{path.parent.name}" for path in (source / package).glob("*/__init__.py")
        }
        assert parts - placed <= {f"{package}.__init__", *NOT_LAYERED}, package
    low = packages - {"cli", "demo", "errors", "evaluation", "integrations", "testing"}
    for name, own in (
        ("the client needs nothing but its errors", {"client", "answers", "display"}),
        ("training programs get nothing but the standard library", set()),
    ):
        forbidden = {name.removeprefix("themis.") for name in contracts[name]["forbidden_modules"]}
        assert low - own <= forbidden
