"""Starts small Python processes of Themis: quickly, and independent of the environment.

    command("themis.engines.supervisor.supervisor", task_file)

Isolated (-I: no PYTHON* variables, no user site, no current folder), without `site` (-S), and with
the folder that holds this package at the end of the path. Unlike `-m` this finds a checkout, or an
environment that was not activated.
"""

import os
import signal
import sys
from pathlib import Path

import themis

_PACKAGES = str(Path(themis.__file__).resolve().parent.parent)
_RUN = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from importlib import import_module as i; sys.exit(i(sys.argv[2]).main(*sys.argv[3:]))"
)
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
"""Its whole environment: a job of the same user could read its supervisor's."""


def command(module: str, *args: str, site: bool = False) -> list[str]:
    """The command line that calls `main` of a module; `site`: with what is installed."""
    options = ["-I"] if site else ["-I", "-S"]
    return [sys.executable, *options, "-c", _RUN, _PACKAGES, module, *args]


def spawn(module: str, *args: str, errors: str) -> int:
    """Start it in a session of its own, with its stderr in a file; returns its process id.

    Not by `subprocess`, which waits for its children: these outlive us.
    """
    line = command(module, *args)
    return os.posix_spawn(
        line[0],
        line,
        ENVIRONMENT,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM),
    )
