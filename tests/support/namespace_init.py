"""The first process of a test's cluster: starts its daemons, and ends them, all at its own end.

    python -I namespace_init.py FOLDER < commands

It is number one of a PID namespace, so the kernel ends everything in there with it; it ends when
its input does, which is when whoever started it is gone, killed or not. It imports the standard
library only, and is started by its path.

Each line of input is `start NAME`, `kill NAME`, `stop NAME` or `continue NAME`, where NAME is a
program of the plan: a daemon, or a node; each is answered by a line. A node is a namespace of its
own: to kill it is what a power cut is to a machine.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class NamespaceInit:
    """All daemons of one cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self) -> None:
        """Until the input ends."""
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for address in self.plan["addresses"]:
            subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True)
        say("ready")
        for line in self.lines():
            word, _, name = line.partition(" ")
            try:
                self.obey(word, name)
                say("ok")
            except (OSError, KeyError) as error:
                say(f"error {error!r}")

    def lines(self) -> Iterator[str]:
        """Lines of the input as they come, with orphans reaped meanwhile."""
        rest = b""
        while True:
            if select.select([0], [], [], 0.5)[0]:
                data = os.read(0, 65536)
                if not data:
                    return
                *whole, rest = (rest + data).split(b"\n")
                yield from (line.decode() for line in whole)
            for child in self.children.values():
                child.poll()
            self.reap()

    def reap(self) -> None:
        """Collect what became ours when its parent ended."""
        own = {child.pid for child in self.children.values() if child.returncode is None}
        for pid in set(offspring(os.getpid(), deep=False)) - own:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def end(self) -> None:
        """Kill all there is in this namespace."""
        while left := offspring(os.getpid()):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            time.sleep(0.01)

    def obey(self, word: str, name: str) -> None:
        """Do what a line says."""
        if word == "start":
            with (self.folder / "log" / f"{name}.out").open("ab") as log:
                self.children[name] = subprocess.Popen(
                    self.plan["programs"][name],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.plan["env"],
                )
            return
        child = self.children[name]
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}[word]
        for pid in (*reversed(offspring(child.pid)), child.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if word == "kill":
            child.wait()


def offspring(pid: int, *, deep: bool = True) -> list[int]:
    """The processes below this one, the nearest first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                text = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
                parent = int(text.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found, front = [], [pid]
    while front:
        front = [child for one in front for child in children.get(one, ())]
        found += front
        if not deep:
            break
    return found


def say(line: str) -> None:
    """One line of answer."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    init = NamespaceInit(place)
    try:
        init.serve()
    finally:
        # Who gave the commands may have been killed, and nobody else tidies up. Daemons first: they
        # would go on writing into the folder while it is being removed.
        init.end()
        shutil.rmtree(place, ignore_errors=True)
