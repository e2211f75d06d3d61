"""The explanations of an experiment: a Markdown file beside its module.

The paragraphs above the first heading are notes for every reader; each section below explains the
claims that name its heading. The text is plain: paragraphs, and `code` between backquotes.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class ExperimentNotes:
    """The notes of an experiment, and its sections by heading."""

    notes: tuple[str, ...] = ()
    sections: tuple[tuple[str, str], ...] = ()


@cache
def explanation(module: str) -> ExperimentNotes:
    """Read the file beside an experiment's module; a module outside this package has none."""
    package, _, name = module.rpartition(".")
    if package != f"{__package__}.experiments":
        return ExperimentNotes()
    head, *sections = re.split(
        r"^## ", files(package).joinpath(f"{name}.md").read_text("utf-8"), flags=re.MULTILINE
    )
    notes = tuple(_flat(part) for part in head.split("\n\n") if part.strip())
    parts = (section.partition("\n") for section in sections)
    return ExperimentNotes(notes, tuple((title.strip(), _flat(text)) for title, _, text in parts))


def _flat(text: str) -> str:
    """A paragraph as one line."""
    return " ".join(text.split())
