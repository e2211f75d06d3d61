r"""The process in a lease: a Ray node on the leased GPUs, for one trial. Standard library only.

    python -m themis.integrations.ray_tune.seat --driver HOST:PORT --ray HOST:PORT \
        --trial 07 --mark themis-6f- --node '{"CPU": 1}'

It runs under a supervisor like any job. The Ray node is its child, and what the trial does are
children of that, so all of it ends with the lease, whatever the script or Ray believe.

It talks to the script in lines of JSON:

| from the seat | |
|---|---|
| `{"trial", "secret", "run", "rank", "world", "gpus", "grace"}` | first of all |
| `{"leave": true}` | it was told to go: the trial has the grace to save |

| from the script | |
|---|---|
| `{"it": 12, "values": {...}}` | a result of the trial, to be reported as the job's |
| `{"go": true}` | the trial is not here any more |
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

SECRET_VARIABLE = "TUNE_SEAT_SECRET"
"""What a seat shows the script, so that nobody else is taken for one."""
OPTIONS_VARIABLE = "TUNE_SEAT_RAY_OPTIONS"
"""More options of `ray start`, as JSON."""
LABEL = "themis-seat"
"""Of the node, with the trial: an engine on the same Ray must not take it for another machine."""
GRACE_VARIABLE = "THEMIS_GRACE"
RAY_OPTIONS = ("--object-store-memory", str(512 * 1024**2))
"""Of a node: several share a machine, and each would take a third of its memory."""
_MOST_LINE = 65536
_CALM_END = 3.0
"""Seconds that the Ray node has to say goodbye; the cluster else believes in it for a while."""
_PATIENCE = 30.0
_LONG = 14
"""Characters of a folder, beyond which the names of Ray's sockets in it are too long for them."""
_WATCHED = {
    socket.TCP_KEEPIDLE: 15,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 6,
    socket.TCP_USER_TIMEOUT: 45_000,  # the same when something was said, in milliseconds
}
"""Three quarters of a minute without an answer."""


class ScriptConnection:
    """The way to the script: lines of JSON over one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def fileno(self) -> int:
        """For select."""
        return self._connection.fileno()

    def say(self, words: dict[str, Any]) -> None:
        """Send one; a script that is gone is noticed when reading."""
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(words).encode() + b"\n")

    def heard(self) -> Iterator[dict[str, Any]]:
        """What is there to be read.

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
    """Have the kernel notice when the other machine is gone: by itself it would take two hours."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _WATCHED.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def connect(address: str) -> socket.socket:
    """A connection to the script.

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
    """How the Ray node is started."""
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
    """The labels among the options, and the others: of two `--labels` Ray forgets the first."""
    labels, others, words = list[str](), list[str](), iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--labels":
            labels += filter(None, [value if equals else next(words, "")])
        else:
            others.append(word)
    return labels, others


def node_folder() -> Path:
    """A place for Ray's sockets, whose names have to be short; the same for all runs of a job."""
    whose = f"{os.environ.get(reporting.CHECKPOINT_VARIABLE)} {os.environ.get('THEMIS_RANK')}"
    mark = hashlib.sha256(whose.encode()).hexdigest()[:10]
    root = tempfile.gettempdir()
    return Path(root if len(root) <= _LONG else "/tmp") / f"themis-{os.geteuid()}" / mark


def make_private(folder: Path) -> None:
    """Make a folder that is ours alone: Ray opens its own to everybody, and others know its name.

    Raises:
        OSError: It cannot be made, or somebody else has been quicker.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder} is no folder")
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is that of user {found.st_uid}, not ours")
    if found.st_mode & 0o077:
        raise PermissionError(f"{folder} is open to others (mode {found.st_mode & 0o777:o})")


class SeatProcess:
    """From the first word to the last."""

    def __init__(self, line: ScriptConnection, node: "subprocess.Popen[bytes]") -> None:
        self._line = line
        self._node = node

    def serve(self) -> int:
        """Until it is told to go; returns the exit code."""
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
        """Whether to stay."""
        if "it" in words:
            values = dict(words.get("values") or {})
            reporting.report(words["it"], values.pop("loss", None), **values)
        return not words.get("go")


def main() -> int:
    """The whole life of a seat."""
    parser = argparse.ArgumentParser(prog="themis.integrations.ray_tune.seat")
    for name in ("driver", "ray", "trial", "mark", "node"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    reporting.stop_notice.watch()
    environ = os.environ
    secret = environ.pop(SECRET_VARIABLE, "")  # Not for Ray, nor for what it starts.
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
    code = SeatProcess(line, node).serve()
    with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
        node.send_signal(signal.SIGTERM)
        node.wait(_CALM_END)
    shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
