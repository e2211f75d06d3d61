"""Programs of an ordinary user, where the tests themselves run as root."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import themis

NOBODY = 65534
_NEEDED = "import sys, pytest; assert sys.version_info >= (3, 11); import themis.testing.engines"


def interpreter(more: str = "") -> str:
    """A Python that an unprivileged user may run; without one the running test is skipped.

    Args:
        more: What it has to be able to do besides.
    """
    for program in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if shutil.which(program) and run_as_nobody(program, f"{_NEEDED}\n{more}").returncode == 0:
            return program
    pytest.skip("no Python with pytest here that an unprivileged user may run")


def paths() -> str:
    """PYTHONPATH for it: packages may live in another place than that interpreter."""
    return os.pathsep.join([str(Path(themis.__file__).parents[1]), *sys.path])


def run_as_nobody(program: str, code: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run some Python to its end."""
    user = NOBODY if os.geteuid() == 0 else None
    try:
        return subprocess.run(
            [program, "-B", "-c", code, *args],
            cwd="/",
            env={"PYTHONPATH": paths(), "PATH": "/usr/bin:/bin"},
            check=False,
            capture_output=True,
            text=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )
    except PermissionError as error:
        return subprocess.CompletedProcess([program], 126, "", str(error))
