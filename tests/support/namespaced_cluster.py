"""Clusters of other schedulers for tests, in namespaces of their own that leave nothing behind.

    with keep(folder, plan) as kept:
        kept.start("ctld")

The programs of a plan run below an init process (`tests.support.namespace_init`) in a network and
PID namespace with loopback only. The init process ends when the process that started it does,
however it does, and with it all others; it removes the folder too. Needs root, and the Debian
packages in `NEEDED`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import namespace_init
from tests.support.requirements import missing, require_tool
from themis.errors import UnavailableError

NEEDED = {"unshare": "util-linux", "ip": "iproute2"}
"""Programs, and the Debian packages that bring them."""
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PATIENCE = 300.0


def require_programs(programs: Mapping[str, str]) -> None:
    """Skip the running test where one is missing, and name its package; or without root."""
    os.environ["PATH"] = _with_sbin(os.environ.get("PATH", ""))
    for program, package in programs.items():
        require_tool(program, package)
    if os.geteuid() != 0:
        missing("a cluster in a namespace of its own needs root")


def _with_sbin(path: str) -> str:
    return path if "/usr/sbin" in path.split(":") else f"{path}:/usr/sbin:/sbin"


@dataclass
class Kept:
    """The programs of one cluster."""

    folder: Path
    process: "subprocess.Popen[bytes]"
    inside: int = 0
    """The init process itself, below the `unshare` that made its namespaces."""

    def start(self, name: str) -> None:
        """Start a program of the plan."""
        self._tell(f"start {name}")

    def kill(self, name: str) -> None:
        """Kill it, with all that runs there."""
        self._tell(f"kill {name}")

    def stop(self, name: str) -> None:
        """Stop all processes there, as a machine that hangs."""
        self._tell(f"stop {name}")

    def go_on(self, name: str) -> None:
        """Let them go on."""
        self._tell(f"continue {name}")

    def wrapper(self, name: str, program: str, *, pids: bool = False) -> Path:
        """A script that runs a program inside, as a process and from a folder of outside.

        With `pids` it is in there with all of it, and ends with the cluster.
        """
        script = self.folder / "bin" / name
        script.parent.mkdir(exist_ok=True)
        where = "--net --pid" if pids else "--net"
        line = f'exec nsenter --target {self.inside} {where} -- {program} "$@"'
        script.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        script.chmod(0o755)
        return script

    def logs(self) -> str:
        """The ends of all logs."""
        files = [file for file in sorted((self.folder / "log").iterdir()) if file.is_file()]
        return "\n".join(f"{file.name}: {file.read_text('utf-8')[-600:]}" for file in files)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for something.

        Raises:
            UnavailableError: It never happens.
        """
        end = time.monotonic() + _PATIENCE
        while not holds():
            if time.monotonic() > end:
                raise UnavailableError(f"{what}\n{self.logs()}")
            time.sleep(0.1)

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().strip()
        if answer != "ok":
            raise UnavailableError(f"{line}: {answer}")


@contextmanager
def keep(
    folder: Path,
    programs: Mapping[str, Sequence[str]],
    env: Mapping[str, str],
    addresses: Sequence[str] = (),
) -> Iterator[Kept]:
    """Namespaces with an init process, until the context ends; no program is started yet.

    Args:
        folder: Whatever is in there goes with it.
        programs: What can be started, by names.
        env: Their environment.
        addresses: Further ones of the loopback device.
    """
    plan = {"addresses": list(addresses), "env": dict(env), "programs": dict(programs)}
    try:
        (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        (folder / "log").mkdir(mode=0o755, exist_ok=True)
        process = subprocess.Popen(
            ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc",
             sys.executable, "-I", namespace_init.__file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            raise UnavailableError("the namespaces of a cluster cannot be made here")
        (inside,) = namespace_init.offspring(process.pid, deep=False)
        yield Kept(folder, process, inside)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def machine(daemon: str) -> list[str]:
    """A machine is a PID namespace; its first process collects orphans, as an init does."""
    unshare = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    return [*unshare, "sh", "-c", f"({daemon}) & wait $!"]


def left_by_a_killed_test(module: str, maker: str) -> Callable[[], bool]:
    """Kill a process in the midst of its test, with a cluster; returns whether anything is left.

    Args:
        module: Where the cluster's context manager is.
        maker: Its name.
    """
    script = (
        f"import time; from {module} import {maker}\n"
        f"with {maker}(nodes=1, gpus=1) as cluster:\n"
        "    print(cluster.folder, flush=True); time.sleep(600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    folder = Path(child.stdout.readline().strip())
    assert folder.is_absolute(), "the cluster did not start"
    assert folder.is_dir()
    child.kill()
    child.wait()
    child.stdout.close()

    def left() -> bool:
        commands = [
            path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()
        ]
        return folder.exists() or any(bytes(folder) in command for command in commands)

    return left
