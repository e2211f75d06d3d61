"""The training program where jobs find it, and a Python that they can run it with.

where = copy_program(folder, account)     # where.python, where.folder

When the demo runs as root, jobs run as another user, who may not be able to read this package or to
run this interpreter. The program needs the standard library alone, so jobs get a copy of it, and
the first interpreter that works for them.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import themis
from themis.engines.host.accounts import Account
from themis.engines.supervisor.spawn import ENVIRONMENT
from themis.errors import ConfigError

MODULE = "themis.demo.train"
_FILES = ("__init__.py", "reporting.py", "demo/__init__.py", "demo/toy_models.py", "demo/train.py")
_OTHERS = ("python3", "python3.13", "python3.12", "python3.11")
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class ProgramLocation:
    """The folder of the training program, and the interpreter that runs it."""

    folder: Path
    python: str

    @property
    def borrowed(self) -> bool:
        """Whether jobs run with another interpreter than the demo."""
        return self.python != sys.executable


def copy_program(folder: Path, account: Account | None) -> ProgramLocation:
    """Copy the program, and find an interpreter for this account (None: this user).

    Raises:
        ConfigError: No Python here can be run by that account.
    """
    package = Path(themis.__file__).parent
    for name in _FILES:
        target = folder / "themis" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / name, target)
        target.chmod(0o644)
    for place in (folder, folder / "themis", folder / "themis/demo"):
        place.chmod(0o755)
    for python in _candidates():
        if _works(python, folder, account):
            return ProgramLocation(folder, python)
    who = account.name if account else "this user"
    raise ConfigError(
        "python", sys.executable, f"one that {who} can run; or start the demo without root"
    )


def _candidates() -> Iterable[str]:
    yield sys.executable
    for name in _OTHERS:
        found = shutil.which(name, path=ENVIRONMENT["PATH"])
        if found is not None:
            yield found


def _works(python: str, folder: Path, account: Account | None) -> bool:
    """Whether the program can be loaded with it, as a job would."""
    try:
        done = subprocess.run(
            [python, "-S", "-c", f"import {MODULE}"],
            cwd=folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else account.groups,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
