"""App files in the documentation can be submitted; the guide of sweeps names what there is."""

import re
from pathlib import Path
from typing import Any

import pytest

from themis.apps import app_schema, parse_app, plan_app
from themis.client import Client, job_app
from themis.core.model import AppId, OwnerId
from themis.recording.yaml_documents import parse_document

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference" / "app-file.md"
GUIDE = DOCS / "guides" / "sweeps.md"


def yaml_of(page: Path) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [REFERENCE, GUIDE], ids=lambda page: page.name)
def test_app_files_in_the_documentation_can_be_submitted(page: Path) -> None:
    found = yaml_of(page)
    assert found
    for text in found:
        written = parse_app(*parse_document(text, page.name))
        assert plan_app(written, AppId(written.name), OwnerId("me"), 1).trials


def test_the_example_of_the_reference_has_every_key() -> None:
    example, _ = parse_document(yaml_of(REFERENCE)[0], REFERENCE.name)
    # Two ways to say how long something takes: there is one of them.
    assert set(app_schema()["properties"]) - set(example) == {"duration"}


def test_verbs_in_the_guide_are_there() -> None:
    from typer.main import get_command  # noqa: PLC0415 - typer is slow to import

    from themis.cli.app import tree  # noqa: PLC0415 - see above

    there: Any = get_command(tree())
    text = GUIDE.read_text(encoding="utf-8")
    found = set(re.findall(r"(?:^|`|\$\()themis ([a-z]+)", text, re.MULTILINE))
    assert found <= set(there.commands)
    wanted = {"submit", "run", "ls", "status", "logs", "results", "wait", "retry", "fair", "cancel"}
    assert wanted <= found


def test_calls_in_the_guide_are_methods_of_the_client() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    called = set(re.findall(r"client\.([a-z_]+)\(", text))
    assert {"submit", "run", "wait", "results", "follow"} <= called
    assert [name for name in sorted(called) if not hasattr(Client, name)] == []
    assert job_app(["python", "train.py"])["name"] == "train"  # as the guide says
