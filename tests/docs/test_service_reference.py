"""The guide for operators against roles and commands."""

import re
from pathlib import Path
from typing import Any

from themis.security.tokens import Role

DOCS = Path(__file__).parents[2] / "docs"


def test_the_guide_knows_every_role() -> None:
    guide = (DOCS / "guides" / "operate.md").read_text(encoding="utf-8")
    assert [role for role in Role if f"| `{role}` |" not in guide] == []


def test_commands_in_the_guide_are_there() -> None:
    from typer.main import get_command  # noqa: PLC0415 - typer is slow to import

    from themis.cli.app import tree  # noqa: PLC0415 - see above

    guide = (DOCS / "guides" / "operate.md").read_text(encoding="utf-8")
    there: Any = get_command(tree())
    not_yet = {"node"}
    for first, second in re.findall(r"(?:^|`)themis ([a-z]+)(?: ([a-z]+))?", guide, re.MULTILINE):
        if first in not_yet:
            continue
        assert first in there.commands, first
        below = getattr(there.commands[first], "commands", None)
        if below is not None and second:
            assert second in below, f"{first} {second}"
