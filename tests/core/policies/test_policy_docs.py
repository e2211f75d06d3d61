"""What the pages say about policies is true."""

import re
from pathlib import Path
from typing import Any

import pytest

from themis.core.model import Machine, Topology
from themis.core.policies import POLICIES, policy_options
from themis.testing.policy_fakes import FakeApp, drive, fake_view

DOCS = Path(__file__).parents[3] / "docs"


def _page(name: str) -> str:
    return (DOCS / "reference" / "policies" / f"{name.replace('+', '-')}.md").read_text()


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_has_a_page(name: str) -> None:
    page = _page(name)
    assert page.startswith(f"# {name}\n")
    if not policy_options(POLICIES[name]):
        assert "Options: none." in page


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"themis-paper"}))
def test_pages_list_options_with_their_defaults(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", _page(name), flags=re.MULTILINE)
    defaults = {key: _shown(value) for key, value in policy_options(POLICIES[name]).items()}
    assert dict(rows) == defaults


def test_the_page_of_the_paper_names_both_defaults() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `?([\w.-]+)[^|]*\| `?([\w.-]+)[^|]*\|",
        _page("themis-paper"),
        flags=re.MULTILINE,
    )
    paper, ours = (policy_options(POLICIES[name]) for name in ("themis-paper", "themis"))
    different = {key for key in paper if paper[key] != ours[key]}
    assert {key for key, _, _ in rows} == different
    for key, literal, best in rows:
        assert _same(literal, paper[key])
        assert _same(best, ours[key])


def _same(shown: str, value: object) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(shown) == value
    return shown == _shown(value)


def test_the_guides_policy_works() -> None:
    guide = (DOCS / "guides" / "own-policy.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    names: dict[str, Any] = {
        "FakeApp": FakeApp,
        "Machine": Machine,
        "Topology": Topology,
        "drive": drive,
        "fake_view": fake_view,
    }
    exec(blocks[0], names)
    exec(blocks[2], names)
    assert policy_options(names["ShortestFirst"]) == {"weighted": True}
