"""The exit code of the example of a tuner: scripts go by it."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from themis import OwnTuner

SCRIPT = Path(__file__).parents[2] / "examples" / "own-tuner" / "tuner.py"


def test_ctrl_c_ends_the_tuner_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: OwnTuner, app: str, **_: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(OwnTuner, "run", run)
    monkeypatch.setattr(sys, "argv", ["tuner.py"])
    with pytest.raises(SystemExit, match="training goes on"):
        runpy.run_path(str(SCRIPT), run_name="__main__")


@pytest.mark.parametrize(
    ("outcome", "code"), [("finished", 0), ("failed: it exited with 1", 1), ("cancelled", 1)]
)
def test_the_tuner_exits_with_0_only_if_its_app_finished(
    monkeypatch: pytest.MonkeyPatch, outcome: str, code: int
) -> None:
    def run(self: OwnTuner, app: str, **_: Any) -> dict[str, Any]:
        return {"app": "own-tuner", "outcome": outcome, "best": None, "jobs": []}

    monkeypatch.setattr(OwnTuner, "run", run)
    monkeypatch.setattr(sys, "argv", ["tuner.py"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code == code
