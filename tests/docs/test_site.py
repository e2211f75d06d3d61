"""The documentation as a site: whole, and strict about what is not."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.requirements import missing

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"


@pytest.fixture(autouse=True)
def _installed() -> None:
    for name in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed (`make docs` brings it)")


def build(tree: Path, out: Path, *pages: str, builder: str = "dummy") -> str:
    """Build a tree strictly; what was wrong with it."""
    command = [sys.executable, "-m", "sphinx", "--builder", builder, "--fail-on-warning"]
    command += ["--keep-going", "--quiet", "--conf-dir", str(SITE), str(tree), str(out), *pages]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return f"{done.returncode}\n{done.stderr}" if done.returncode else ""


def configuration() -> ModuleType:
    spec = importlib.util.spec_from_file_location("themis_docs_conf", SITE / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_builds_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    assert build(ROOT, tmp_path / "out") == ""


def small(folder: Path, text: str) -> Path:
    """A tree with an index and one page."""
    docs = folder / "docs"
    docs.mkdir(parents=True)
    (docs / "README.md").write_text(f"# Top\n\n## Guides\n\n{text}")
    (docs / "a.md").write_text("# A\n\nText.\n")
    return folder


def test_broken_page_fails_the_build(tmp_path: Path) -> None:
    broken = "[gone](nowhere.md), [no such heading](a.md#elsewhere), nothing in a list\n"
    told = build(small(tmp_path / "tree", broken), tmp_path / "out")
    for complaint in ("nowhere.md", "elsewhere", "isn't included in any toctree"):
        assert complaint in told


def test_a_page_that_fetches_something_fails_the_build(tmp_path: Path) -> None:
    text = "- [A](a.md)\n\n![remote](https://example.org/x.svg)\n"
    told = build(small(tmp_path / "tree", text), tmp_path / "out", builder="html")
    assert "fetches https://example.org/x.svg" in told


def test_navigation_is_made_of_the_lists_of_the_index() -> None:
    made = configuration().toctrees((ROOT / "docs" / "README.md").read_text("utf-8"))
    captions = [line[10:] for line in made.splitlines() if line.startswith(":caption: ")]
    assert captions[:5] == ["Tutorial", "Guides", "Concepts", "Reference", "Results"]
    for entry in (
        "Tutorial <tutorial.md>",
        "rho <concepts/rho.md>",
        "Decisions <decisions/README.md>",
    ):
        assert f"\n{entry}\n" in made


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://cdn.example/x.js">', ["https://cdn.example/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', ["//fonts.example/a.css"]),
        ("@import 'https://fonts.example/b.css'", ["https://fonts.example/b.css"]),
        ('<a href="https://example.org/">', []),
        ('<img src="_images/a.svg">', []),
    ],
)
def test_only_what_a_browser_fetches_counts_as_elsewhere(text: str, found: list[str]) -> None:
    assert configuration().fetched(text) == found
