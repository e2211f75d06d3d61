"""What a test needs from the machine: a program, measured data, or much time.

    dot = require_tool("dot", package="graphviz")

    @only_chaos
    def test_a_link_breaks_again_and_again() -> None: ...

A machine without it skips the test and says which package brings it. Where nothing may be missing
(`.ci/run`), THEMIS_REQUIRE_TOOLS=1 turns such a skip into a failure.
"""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

REQUIRE_VARIABLE = "THEMIS_REQUIRE_TOOLS"
DATA_VARIABLE = "THEMIS_DATA"
CHAOS_VARIABLE = "THEMIS_CHAOS"
ENGINES_VARIABLE = "THEMIS_ENGINES"

EXAMPLES = 50
"""Of a property test in an ordinary run."""

CHAOS = bool(os.environ.get(CHAOS_VARIABLE))
"""Whether this is `make chaos`: all kills and faults, and ten times as many."""

only_engines = pytest.mark.skipif(
    not (CHAOS or os.environ.get(ENGINES_VARIABLE)), reason="run by `make test-engines`"
)
"""For tests of engines that take minutes."""

only_chaos = pytest.mark.skipif(not CHAOS, reason="run by `make chaos`")
"""For tests that take too long for an ordinary run."""


def require_tool(name: str, package: str) -> Path:
    """The program's path; without it the test is skipped, or fails where tools are required.

    Args:
        name: What to look for on the PATH.
        package: The Debian package that brings it, for the message.
    """
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is not installed (Debian package {package})")
    return Path(found)


def require_data() -> Path:
    """The folder of measured data that THEMIS_DATA names.

    Unset, the test is skipped, or fails where tools are required. Set to something that is no
    folder, it always fails: somebody meant to have the data.
    """
    named = os.environ.get(DATA_VARIABLE, "")
    if not named:
        missing(f"{DATA_VARIABLE} is not set to the folder of measured data")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"{DATA_VARIABLE}={named}: no such folder", pytrace=False)
    return folder


def missing(what: str) -> NoReturn:
    """Skip the running test because of `what`, or fail it where tools are required.

    Outside of tests, all of the file.
    """
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{what}, and {REQUIRE_VARIABLE}=1 requires it", pytrace=False)
    pytest.skip(what, allow_module_level=True)


def examples(count: int) -> settings:
    """For a property test with so many examples in an ordinary run.

    A number given to `settings` itself would hold when fuzzing too, where there are to be more.
    """
    return settings(max_examples=max(1, count * settings().max_examples // EXAMPLES))
