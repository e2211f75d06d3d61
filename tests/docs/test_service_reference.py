"""The reference of the service's configuration against its keys."""

import re
from pathlib import Path
from typing import Any

from themis.live.config import KEYS
from themis.live.credentials import Role

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `([\w.]+)` \| `(\w+)` \| (.*?) \| (yes|) ?\| (.+) \|$", re.MULTILINE)


def test_every_key_is_in_the_reference_as_it_is() -> None:
    rows = ROW.findall((DOCS / "reference" / "service.md").read_text(encoding="utf-8"))
    told = {name: (variable, live == "yes", text) for name, variable, _, live, text in rows}
    assert told == {key.name: (key.variable, key.reload, key.help) for key in KEYS.values()}
    assert [row[0] for row in rows] == list(KEYS)


def test_defaults_in_the_reference_are_those_of_the_keys() -> None:
    rows = ROW.findall((DOCS / "reference" / "service.md").read_text(encoding="utf-8"))
    for name, _, default, _, _ in rows:
        value = KEYS[name].default
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        if default.strip():
            assert default.strip().startswith(f"`{shown}`"), name
        else:
            assert value in (None, "", (), {}), name


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
