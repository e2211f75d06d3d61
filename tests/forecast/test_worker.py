"""The process of a forecast among others."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = """
import json, os, resource
from pathlib import Path
from themis.forecast.worker import yield_to_others
nice = os.nice(0)
yield_to_others()
score = Path("/proc/self/oom_score_adj")
print(json.dumps({
    "nicer": os.nice(0) - nice,
    "memory": resource.getrlimit(resource.RLIMIT_AS),
    "score": int(score.read_text()) if score.exists() else None,
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and scores are as Linux has them")
@pytest.mark.parametrize("given", [None, 4 << 30], ids=["without a limit", "with a lower one"])
def test_a_worker_is_bounded_and_the_first_to_go(given: int | None) -> None:
    def lower() -> None:
        if given is not None:
            resource.setrlimit(resource.RLIMIT_AS, (given, given))

    before = resource.getrlimit(resource.RLIMIT_AS)[1]
    run = subprocess.run(
        [sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, preexec_fn=lower
    )
    told = json.loads(run.stdout)
    assert told["nicer"] >= 0
    assert told["memory"] == [given or 8 << 30, given or before]
    assert told["score"] in {None, 800}
    if Path("/proc/self/oom_score_adj").exists():
        assert told["score"] == 800
