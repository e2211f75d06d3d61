"""The reference of the HTTP API against its routes and the table of access."""

import re
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from themis.live.access import TABLE, Access, Verb
from themis.live.api import ENDPOINTS, Endpoint
from themis.live.credentials import Role
from themis.live.gate import problem_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"


def who(verb: Verb) -> str:
    """Who may, as the page says it."""
    if TABLE[verb, None, False] is Access.ALLOW:
        return "everybody"
    told = []
    for role in Role:
        own, others = (TABLE[verb, role, mine] for mine in (True, False))
        if others is Access.ALLOW:
            told.append(str(role))
        elif others is Access.ANONYMOUS:
            told.append(f"{role} (sealed)")
        elif own is not Access.DENY:
            told.append(f"{role} (own)")
    return ", ".join(told)


def row(item: Endpoint) -> str:
    body = ", ".join(
        f"`{name}`" if name in item.body.get("required", ()) else f"`{name}`?"
        for name in item.body["properties"]
    ) if item.body else ""  # fmt: skip
    cells = (item.method, f"`{item.path}`", f"`{item.verb}`", who(item.verb), body, item.summary)
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def test_every_route_is_in_the_reference_as_it_is() -> None:
    rows = [
        line for line in PAGE.read_text("utf-8").splitlines() if re.match(r"\| [A-Z]+ \|", line)
    ]
    assert rows == [row(item) for item in ENDPOINTS]


def test_statuses_of_errors_are_those_of_the_service() -> None:
    from themis import errors  # noqa: PLC0415 - looked into by name

    text = PAGE.read_text("utf-8")
    for name in ("UnknownCaller", "Denied", "Missing", "UnknownApp", "Duplicate", "Refused"):
        problem = problem_of(getattr(errors, f"{name}Error")("who", "why"))
        line = next(item for item in text.splitlines() if f"`{name}Error`" in item)
        assert line.startswith(f"| {int(problem.status)} |")
        assert f"`{problem.error}`" in line
