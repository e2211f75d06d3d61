"""The generated parts of the reference are those of this code."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = ("app-file.md", "cli.md", "http.md", "python.md", "service.md")


def check(folder: Path) -> "subprocess.CompletedProcess[str]":
    script = ROOT / "docs" / "site" / "reference.py"
    command = [sys.executable, str(script), "--check", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_reference_is_what_scripts_reference_writes() -> None:
    done = check(REFERENCE)
    assert (done.returncode, done.stdout) == (0, ""), f"run scripts/reference: {done.stderr}"


def test_a_changed_row_in_any_page_would_be_noticed(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(REFERENCE, tmp_path / "reference"))
    for name in PAGES:
        text = (folder / name).read_text("utf-8")
        begin = text.index("<!-- generated: ")
        ends = re.compile(r"[a-z](?=\.? \|$|\.$)", re.MULTILINE)
        changed = text[:begin] + ends.sub("x", text[begin:])
        assert changed != text
        (folder / name).write_text(changed, "utf-8")
    done = check(folder)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [f"out of date: {name}" for name in PAGES]


def test_everything_in_public_is_in_the_reference() -> None:
    import themis  # noqa: PLC0415 - as people do

    text = (REFERENCE / "python.md").read_text("utf-8")
    public = [name for name in themis.__all__ if not name.startswith("__")]
    assert [name for name in public if f"`themis.{name}" not in text] == []
    verbs = (REFERENCE / "cli.md").read_text("utf-8")
    for verb in ("submit", "serve", "sim compare", "auction show", "nodes drain", "config check"):
        assert re.search(rf"^###? themis {verb}$", verbs, re.MULTILINE), verb
