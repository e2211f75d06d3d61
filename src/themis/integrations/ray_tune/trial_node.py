r"""The process in a lease: a Ray node on the leased GPUs, for one trial. Standard library only.

    python -m themis.integrations.ray_tune.trial_node --driver HOST:PORT --ray HOST:PORT \
        --trial 07 --mark themis-6f- --node '{"CPU": 1}'

It runs under a supervisor like any job. The Ray node is its child, and the trial's processes are
children of the Ray node, so all of it ends with the lease, whatever the script or Ray believe.

It exchanges lines of JSON with the script:

| to the script | |
|---|---|
| `{"trial", "secret", "run", "rank", "world", "gpus", "grace"}` | the first line |
| `{"leave": true}` | the lease ends: the trial has the grace to save |

| from the script | |
|---|---|
| `{"it": 12, "values": {...}}` | a result of the trial, to be reported as the job's |
| `{"go": true}` | the trial has left |
"""

import argparse
import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from themis import reporting

SECRET_VARIABLE = "TUNE_NODE_SECRET"
"""The environment variable with the secret by which the script knows its nodes."""
OPTIONS_VARIABLE = "TUNE_NODE_RAY_OPTIONS"
"""The environment variable with more options of `ray start`, as JSON."""
LABEL = "themis-trial"
"""The label of the Ray node: an engine on the same Ray must not take it for a machine."""
GRACE_VARIABLE = "THEMIS_GRACE"
RAY_OPTIONS = ("--object-store-memory", str(512 * 1024**2))
"""Several nodes share a machine, and by default each takes a third of its memory."""
_MOST_LINE = 65536
_CALM_END = 3.0
"""Seconds that the Ray node has to leave its cluster, which else expects it for a while."""
_PATIENCE = 30.0
_LONG = 14
"""The longest folder in which the paths of Ray's sockets are short enough."""
_WATCHED = {
    socket.TCP_KEEPIDLE: 15,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 6,
    socket.TCP_USER_TIMEOUT: 45_000,  # for data that is not acknowledged, in milliseconds
}
"""Give a connection up after 45 seconds without an answer."""


class ScriptConnection:
    """Lines of JSON over one connection to the script."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def fileno(self) -> int:
        """For select."""
        return self._connection.fileno()

    def say(self, words: dict[str, Any]) -> None:
        """Send a line; a script that is gone is noticed when reading."""
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(words).encode() + b"\n")

    def heard(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that have arrived.

        Raises:
            EOFError: The script is gone.
        """
        try:
            data = self._connection.recv(_MOST_LINE)
        except OSError:
            data = b""
        if not data:
            raise EOFError
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MOST_LINE:
            raise EOFError
        for line in lines:
            with contextlib.suppress(ValueError):
                words = json.loads(line)
                if isinstance(words, dict):
                    yield words


def enable_keepalive(connection: socket.socket) -> None:
    """Have the kernel notice that the other machine is gone: by default it takes two hours."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _WATCHED.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def connect(address: str) -> socket.socket:
    """Connect to the script.

    Raises:
        OSError: It does not answer.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            made = socket.create_connection((host.strip("[]"), int(port)), timeout=5.0)
            made.settimeout(None)
            enable_keepalive(made)
            return made
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.5)


def node_command(
    address: str, offered: dict[str, float], gpus: int, folder: str, trial: str
) -> list[str]:
    """The command that starts the Ray node."""
    others = {name: value for name, value in offered.items() if name not in {"CPU", "GPU"}}
    labels, more = _labels(json.loads(os.environ.get(OPTIONS_VARIABLE, "[]")))
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--address", address),
        *("--num-gpus", str(gpus), "--num-cpus", str(int(offered.get("CPU", 0)))),
        *("--resources", json.dumps(others), "--temp-dir", folder),
        *("--labels", ",".join([*labels, f"{LABEL}={trial}"])),
        *RAY_OPTIONS,
        *more,
    ]


def _labels(options: list[str]) -> tuple[list[str], list[str]]:
    """The labels among the options, and the other options: Ray takes only one `--labels`."""
    labels, others, words = list[str](), list[str](), iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--labels":
            labels += filter(None, [value if equals else next(words, "")])
        else:
            others.append(word)
    return labels, others


def node_folder() -> Path:
    """A folder for Ray's sockets, whose paths have to be short; the same for all runs of a job."""
    whose = f"{os.environ.get(reporting.CHECKPOINT_VARIABLE)} {os.environ.get('THEMIS_RANK')}"
    mark = hashlib.sha256(whose.encode()).hexdigest()[:10]
    root = tempfile.gettempdir()
    return Path(root if len(root) <= _LONG else "/tmp") / f"themis-{os.geteuid()}" / mark


def make_private(folder: Path) -> None:
    """Make a folder that only this user can open: Ray makes its own readable for all.

    Raises:
        OSError: It cannot be made, or another user made it.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder} is no folder")
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to user {found.st_uid}")
    if found.st_mode & 0o077:
        raise PermissionError(f"{folder} is open to others (mode {found.st_mode & 0o777:o})")


class TrialNodeProcess:
    """Serves the script until the lease ends."""

    def __init__(self, line: ScriptConnection, node: "subprocess.Popen[bytes]") -> None:
        self._line = line
        self._node = node

    def serve(self) -> int:
        """Run until the trial has left; returns the exit code."""
        stop = reporting.stop_notice
        leaving = False
        while True:
            if stop.came and not leaving:
                leaving = True
                self._line.say({"leave": True})
            if self._node.poll() is not None:
                print(f"the Ray node ended by itself ({self._node.returncode})", flush=True)
                return 1
            ready, _, _ = select.select([self._line], [], [], 0.1)
            try:
                if ready and not all(map(self._take, self._line.heard())):
                    return reporting.GRACEFUL_EXIT
            except EOFError:
                print("the script is gone", flush=True)
                return reporting.GRACEFUL_EXIT

    def _take(self, words: dict[str, Any]) -> bool:
        """Take a line; returns whether to stay."""
        if "it" in words:
            values = dict(words.get("values") or {})
            reporting.report(words["it"], values.pop("loss", None), **values)
        return not words.get("go")


def main() -> int:
    """Start a Ray node, serve the script, and end the Ray node; returns the exit code."""
    parser = argparse.ArgumentParser(prog="themis.integrations.ray_tune.trial_node")
    for name in ("driver", "ray", "trial", "mark", "node"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    reporting.stop_notice.watch()
    environ = os.environ
    secret = environ.pop(SECRET_VARIABLE, "")  # Neither Ray nor its children may see it.
    gpus = len([gpu for gpu in environ.get("THEMIS_GPUS", "").split(",") if gpu])
    folder = node_folder()
    try:
        make_private(folder.parent)
    except OSError as error:
        print(f"no place for a Ray node: {error}", flush=True)
        return 1
    line = ScriptConnection(connect(options.driver))
    shutil.rmtree(folder, ignore_errors=True)
    offered = {**json.loads(options.node), f"{options.mark}{options.trial}": 1}
    command = node_command(options.ray, offered, gpus, str(folder), options.trial)
    node = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    line.say(
        {
            "trial": options.trial,
            "secret": secret,
            "run": int(environ.get("THEMIS_RUN_NUMBER", "0")),
            "rank": int(environ.get("THEMIS_RANK", "0")),
            "world": int(environ.get("THEMIS_WORLD_SIZE", "1")),
            "gpus": gpus,
            "grace": float(environ.get(GRACE_VARIABLE, "0")),
        }
    )
    code = TrialNodeProcess(line, node).serve()
    with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
        node.send_signal(signal.SIGTERM)
        node.wait(_CALM_END)
    shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
