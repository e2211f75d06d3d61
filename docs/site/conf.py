"""The documentation as a site: `make docs`.

The pages are plain Markdown and read well where they are. What is added here is navigation, made of
the lists of links in docs/README.md and in the indices of decisions and policies, so that there is
one list of each. The build is strict: a link that leads nowhere, or a page that no list has, fails.
"""

import re
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

project = "Themis"
author = "the Themis authors"
copyright = "the Themis authors; Apache-2.0"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser"]
root_doc = "docs/README"
# The tree is the source, so that links from the documentation to files beside it hold here too.
include_patterns = [
    "docs/**",
    "examples/README.md",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
exclude_patterns = ["docs/site", "docs/results/summary.md"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
pygments_style = "friendly"
highlight_language = "text"

html_theme = "furo"
html_title = "Themis"
# Nothing is fetched from elsewhere when somebody reads.
html_theme_options: dict[str, Any] = {"top_of_page_buttons": []}
html_extra_path = ["start"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_permalinks = True

INDICES = ("docs/README", "docs/decisions/README", "docs/reference/policies/README")
_HEADING = re.compile(r"^(?:#+ (.+)|\*\*([\w ]+)\*\*.*)$")
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#]+\.md)\)")


_FETCHED = re.compile(
    r"""(?:\bsrc=|<link\b[^>]*\bhref=|url\(|@import\s)["']?((?:https?:)?//[^"')\s>]+)"""
)


def toctrees(text: str) -> str:
    """The navigation that a page's lists of links stand for."""
    groups: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        heading, entry = _HEADING.match(line), _ENTRY.match(line)
        if heading:
            title = heading[1] or heading[2]
        elif entry:
            groups.setdefault(title, []).append(f"{entry[1]} <{entry[2]}>")
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: {caption}\n\n"
        + "\n".join(entries)
        + "\n```\n"
        for caption, entries in groups.items()
    )


def add_navigation(_: Any, page: str, source: list[str]) -> None:
    """Put it below the indices."""
    if page in INDICES:
        source[0] += toctrees(source[0])


def fetched(text: str) -> list[str]:
    """What a browser would fetch from elsewhere to show a page or a style sheet."""
    return [found[1] for found in _FETCHED.finditer(text)]


def check_offline(app: Any, error: Exception | None) -> None:
    """Let no page pass that is not whole by itself."""
    if error is not None or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).rglob("*")):
        if path.suffix in {".html", ".css"}:
            for address in fetched(path.read_text(encoding="utf-8")):
                raise ExtensionError(f"{path.name} fetches {address} when it is shown")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", check_offline)
