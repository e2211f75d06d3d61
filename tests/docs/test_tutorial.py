"""The tutorial, followed literally: every command of docs/tutorial.md in a fresh folder.

python tests/docs/test_tutorial.py      # writes what was printed into the page
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import themis
from themis.core.model.reasons import Reason
from themis.demo.training_program import copy_program
from themis.engines.host.accounts import Owners

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
HANG = 300.0
"""Seconds after which it never will come to an end."""

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_END = "==== end of command"


@dataclass(frozen=True)
class Step:
    """A command of the page, and what it is said to print."""

    command: str
    printed: str


def steps_of(block: str) -> list[Step]:
    steps: list[Step] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], ""))
        elif line.startswith("> ") and not steps[-1].printed:
            steps[-1] = Step(f"{steps[-1].command}\n{line[2:]}", "")
        else:
            steps[-1] = Step(steps[-1].command, f"{steps[-1].printed}{line}\n")
    return steps


def written(step: Step) -> str:
    first, *others = step.command.split("\n")
    return "\n".join([f"$ {first}", *(f"> {line}" for line in others)]) + "\n" + step.printed


@contextmanager
def machine() -> Iterator[tuple[Path, dict[str, str]]]:
    """A fresh folder in a copy of what the tutorial needs of the clone, and an environment."""
    # Not tmp_path, whose parents only root may enter: jobs run as another user then.
    with tempfile.TemporaryDirectory(prefix="themis-tutorial-") as name:
        top = Path(name)
        top.chmod(0o755)
        shutil.copytree(ROOT / "examples" / "plain", top / "examples" / "plain")
        folder = top / "tutorial"
        folder.mkdir()
        commands = top / ".venv" / "bin"
        commands.mkdir(parents=True)
        _write(
            commands / "themis", f'PYTHONPATH="{_source()}" exec {sys.executable} -m themis "$@"'
        )
        # As root, jobs may not be able to run the Python that runs this.
        account = Owners.trusting("nobody").everybody if os.geteuid() == 0 else None
        place = copy_program(top / "package", account)
        _write(commands / "python3", f'PYTHONPATH="{place.folder}" exec {place.python} "$@"')
        http, grpc = free_ports()
        environ = {
            "PATH": f"{commands}:/usr/bin:/bin",
            "HOME": str(top),
            "LANG": "C.UTF-8",
            "VIRTUAL_ENV": str(commands.parent),
            # In place of the ports that the page has, which others may use just now.
            "THEMIS_HTTP": f"127.0.0.1:{http}",
            "THEMIS_GRPC": f"127.0.0.1:{grpc}",
            "THEMIS_SERVER": f"http://127.0.0.1:{http}",
        }
        try:
            yield folder, environ
        finally:
            leave_nothing(folder)


def _source() -> Path:
    return Path(themis.__file__).parents[1]


def _write(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def free_ports() -> tuple[int, int]:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        return int(one.getsockname()[1]), int(two.getsockname()[1])


def leave_nothing(folder: Path) -> None:
    """End what a tutorial that failed half-way has left, by process id."""
    for lock in folder.glob("state-nodes/*/node.lock"):
        with suppress(ValueError, OSError):
            number = int(lock.read_text())
            # It may have ended long ago, and its number be somebody else's.
            if str(folder).encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                os.kill(number, signal.SIGTERM)


def follow(text: str, folder: Path, environ: dict[str, str]) -> list[list[Step]]:
    """Type everything into one shell; the same steps with what they really printed."""
    blocks = [steps_of(block) for block in _BLOCK.findall(text)]
    script = [f'{step.command}\necho "{_END} $?"\n' for steps in blocks for step in steps]
    shell = subprocess.Popen(
        ["bash", "--noprofile", "--norc"],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = shell.communicate("".join(script), timeout=HANG)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        raise
    printed = re.findall(rf"(.*?){_END} (\d+)\n", out, re.DOTALL)
    assert [code for _, code in printed if code not in {"0", "143"}] == [], out
    said = iter(text for text, _ in printed)
    return [[Step(step.command, next(said)) for step in steps] for steps in blocks]


def masked(text: str, folder: str = "") -> list[str]:
    """Lines without times, ids, numbers that depend on them, widths and the order of rows.

    Why an app waits depends on the moment: any reason is one, and what it says in words is not
    compared.
    """
    text = text.replace(folder, "HERE") if folder else text
    text = re.sub(r"/\S+?/tutorial/", "HERE/", text)
    text = re.sub(r"\b[0-9a-f]{8}([0-9a-f]{4})?\b", "ID", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(rf"\b({'|'.join(Reason)})\b", "REASON", text)
    text = re.sub(r"^(REASON: [\w-]+): .*", r"\1: ...", text, flags=re.MULTILINE)
    text = re.sub(r"^  (why|then): .*", r"  \1: ...", text, flags=re.MULTILINE)
    text = re.sub(r"\b\d+(\.\d+)? (s|min|seconds?|minutes?)\b", "TIME", text)
    text = re.sub(r"\bon m\d\b", "on MACHINE", text)
    text = re.sub(r"─+", "─", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]


MOVING = ("themis ls", "themis status", "themis fair", "themis nodes")
"""What is shown while things happen: the numbers in it are those of the moment."""
MAY_BE = {"─", "leases", "machine GPU token ends in", "LEASE OR MACHINE"}
"""Lines that are there as long as an app holds something."""


def alike(step: Step) -> list[str]:
    lines = masked(step.printed)
    command = re.sub(r"^THEMIS_TOKEN_FILE=\S+ ", "", step.command)
    if command.startswith(MOVING):
        lines = sorted({shape(line) for line in lines} - MAY_BE)
    return lines


def shape(line: str) -> str:
    """A line of a table that changes: what kind of line it is."""
    line = re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "N", line)
    line = re.sub(r"^mN .*", "LEASE OR MACHINE", line)
    line = re.sub(r"^N \w+ N N/N .*", "JOB", line)
    line = re.sub(r"^job state .*", "HEAD", line)
    line = re.sub(r": \w+, REASON$", ": STATE, REASON", line)
    return re.sub(r"^(ann|ben)-lr \w+ .*", "APP", line)


@pytest.mark.slow
def test_the_tutorial_ends_where_it_says_it_ends() -> None:
    text = PAGE.read_text("utf-8")
    said = [step for block in _BLOCK.findall(text) for step in steps_of(block)]
    with machine() as (folder, environ):
        began = time.monotonic()
        found = [step for steps in follow(text, folder, environ) for step in steps]
        assert time.monotonic() - began < HANG
        log = (folder / "serve.log").read_text()
    for wanted, got in zip(said, found, strict=True):
        assert alike(got) == alike(wanted), f"{wanted.command}\n{got.printed}\n{log[-3000:]}"


def test_a_page_that_says_something_else_would_be_noticed() -> None:
    step = Step("themis results x", "best: job 1, loss 0.009326 with lr=0.3486\n")
    assert alike(step) != alike(Step(step.command, step.printed.replace("0.3486", "0.4")))
    assert alike(step) != alike(Step(step.command, ""))
    shown = Step("themis ls", "app owner\nann-lr ann 4/4 1.17 4 s PARTLY_SERVED\n")
    assert alike(shown) == alike(Step("themis ls", "app   owner\nann-lr ann 1/1 2 9 s SERVED\n"))
    assert alike(shown) != alike(Step("themis ls", "app owner\nno such app\n"))


def rewrite() -> None:
    """Put what is printed now into the page."""
    text = PAGE.read_text("utf-8")
    with machine() as (folder, environ):
        blocks = iter(follow(text, folder, environ))
        here = str(folder.parent)
    port = environ["THEMIS_HTTP"].partition(":")[2]

    def block(_: re.Match[str]) -> str:
        shown = "".join(written(step) for step in next(blocks))
        shown = re.sub(r" +$", "", shown, flags=re.MULTILINE)
        shown = shown.replace(here, "/path/to/themis").replace(f":{port}", ":7421")
        return f"```console\n{shown}```"

    PAGE.write_text(_BLOCK.sub(block, text), "utf-8")


if __name__ == "__main__":
    rewrite()
