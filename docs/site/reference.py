"""Writes the generated parts of the reference: what the code says of itself, as Markdown.

    scripts/reference            # after a change of commands, keys, routes or docstrings
    scripts/reference --check    # exits 1 if something is out of date

A page is written by hand but for what stands between `<!-- generated: NAME -->` and
`<!-- end of NAME -->`. So nothing is said twice, and the words around it stay where they are.
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from commands import command_pages
from keys import app_keys, service_keys
from python_api import client_api, job_api, tuner_api
from routes import routes

REFERENCE = Path(__file__).parents[1] / "reference"
PARTS: Mapping[str, Callable[[], str]] = {
    "commands": command_pages,
    "app keys": app_keys,
    "service keys": service_keys,
    "routes": routes,
    "client": client_api,
    "job": job_api,
    "tuner": tuner_api,
}
_PART = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(\n<!-- end of \2 -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with its generated parts as they are now."""
    return _PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}{found[3]}", text)


def stale(folder: Path = REFERENCE) -> dict[Path, str]:
    """The pages that are not as they should be, and how they should be."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    wanted = {path: filled(text) for path, text in pages.items()}
    return {path: wanted[path] for path in pages if wanted[path] != pages[path]}


def main(words: list[str]) -> int:
    """Write, or with --check only look."""
    check = words[:1] == ["--check"]
    folders = words[1:] if check else words
    if len(folders) > 1 or any(word.startswith("-") for word in folders):
        sys.stderr.write("usage: scripts/reference [--check] [FOLDER]\n")
        return 2
    found = stale(Path(folders[0]) if folders else REFERENCE)
    for path, text in found.items():
        if not check:
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{'out of date' if check else 'written'}: {path.name}\n")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
