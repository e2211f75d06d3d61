"""The documentation against the tree: links lead somewhere, named tests exist, lists are whole."""

import ast
import re
from pathlib import Path

import pytest

from themis.core.model.presets import PRESETS
from themis.core.policies import POLICIES
from themis.sim.config import allowed_keys

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
ROW = re.compile(r"\| `([\w./]+\.py)`<br>`(test_\w+)` \|")


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def broken_links(text: str, folder: Path) -> list[str]:
    targets = [link.partition("#")[0] for link in LINK.findall(text)]
    local = [target for target in targets if target and "://" not in target]
    return [target for target in local if not (folder / target).exists()]


def defined_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_to_files(page: Path) -> None:
    assert broken_links(page.read_text(encoding="utf-8"), page.parent) == []


def test_a_broken_link_would_be_noticed() -> None:
    assert broken_links("[a](nowhere.md#x), [b](README.md), [c](#here)", ROOT) == ["nowhere.md"]


def test_every_test_that_the_paper_page_names_exists() -> None:
    rows = ROW.findall((DOCS / "paper.md").read_text(encoding="utf-8"))
    assert len(rows) >= 20
    missing = []
    for file, test in rows:
        path = ROOT / file if "/" in file else ROOT / "tests" / "paper" / file
        if test not in defined_in(path):
            missing.append((file, test))
    assert missing == []


def test_every_number_of_the_paper_folder_is_on_the_paper_page() -> None:
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    tests = {
        name
        for path in (ROOT / "tests" / "paper").glob("test_*.py")
        for name in defined_in(path)
        if name.startswith("test_")
    }
    assert sorted(name for name in tests if name not in text) == []


def test_decisions_have_numbers_of_their_own_and_are_listed() -> None:
    files = sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))
    assert len({name[:4] for name in files}) == len(files)
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert LINK.findall(index) == files


@pytest.mark.parametrize("policy", POLICIES)
def test_the_guide_knows_every_policy_preset_and_key(policy: str) -> None:
    guide = (DOCS / "guides" / "simulate.md").read_text(encoding="utf-8")
    wanted = [policy, *PRESETS, *allowed_keys(policy, "w2")]
    assert [name for name in wanted if f"`{name}`" not in guide] == []


def test_code_in_the_documentation_is_python() -> None:
    for page in PAGES:
        for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            ast.parse(code)
