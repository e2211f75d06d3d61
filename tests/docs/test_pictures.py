"""The pictures of the concepts: as docs/site/pictures.py draws them, harmless, in words too."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
CONCEPTS = ROOT / "docs" / "concepts"
NAMES = ("rho", "auction", "payments", "leases")
SVG = "{http://www.w3.org/2000/svg}"


def test_the_pictures_are_what_the_script_draws() -> None:
    command = [sys.executable, str(ROOT / "docs" / "site" / "pictures.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, ""), f"draw them: {done.stderr}"


@pytest.mark.parametrize("name", NAMES)
def test_picture_has_alternative_text_and_is_readable_in_dark_mode(name: str) -> None:
    text = (CONCEPTS / f"{name}.svg").read_text("utf-8")
    drawn = ET.fromstring(text)
    assert drawn.findtext(f"{SVG}title")
    assert len(drawn.findtext(f"{SVG}desc") or "") > 80
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<script|\bon\w+=|href|@import|url\(", text)
    page = (CONCEPTS / f"{name}.md").read_text("utf-8")
    (alternative,) = re.findall(rf"!\[([^\]]+)\]\({name}\.svg\)", page)
    assert len(alternative) > 80


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_is_drawn_is_inside_the_picture(name: str) -> None:
    drawn = ET.parse(CONCEPTS / f"{name}.svg").getroot()
    width, height = (float(word) for word in drawn.attrib["viewBox"].split()[2:])
    for item in drawn.iter():
        x, y = (float(item.attrib.get(key, 0)) for key in ("x", "y"))
        wide, high = (float(item.attrib.get(key, 0)) for key in ("width", "height"))
        if item is not drawn:
            assert 0 <= x <= x + wide <= width, ET.tostring(item)
            assert 0 <= y <= y + high <= height, ET.tostring(item)


def test_the_page_on_payments_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (CONCEPTS / "payments.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    names: dict[str, object] = {}
    for code, shown in examples:
        exec(compile(code, "payments.md", "exec"), names)
        assert capsys.readouterr().out == shown
