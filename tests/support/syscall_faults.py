"""Kill a process at an exact system call, or let one fail, by strace.

    counts = writes_of([sys.executable, "crasher.py", ...])
    for point in spread(counts, 200):
        run = run_into(point, [sys.executable, "crasher.py", ...])
        run.printed, run.killed

Only calls that change files count, because nothing is different on disk between two of them.
"""

import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.requirements import require_tool

CALLS = (
    *("write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "msync", "ftruncate"),
    *("truncate", "fallocate", "rename", "renameat", "renameat2", "link", "linkat", "unlink"),
    *("unlinkat",),
)
HANGS_AFTER_SECONDS = 120

_LINE = re.compile(r"^(?:\d+ +)?(\w+)\(")


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """The n-th call of one kind, from 1."""

    call: str
    number: int


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a process."""

    printed: tuple[str, ...]
    errors: str
    code: int

    @property
    def killed(self) -> bool:
        """Whether it ended by SIGKILL."""
        return self.code == -signal.SIGKILL


def writes_of(command: Sequence[str]) -> Counter[str]:
    """How often a process makes each call that changes files. It must succeed."""
    with tempfile.NamedTemporaryFile("r", prefix="themis-strace-") as log:
        calls = ",".join(f"?{call}" for call in CALLS)
        run = _traced(["-e", f"trace={calls}", "-o", log.name], command)
        if run.code:
            raise RuntimeError(f"{' '.join(command)}: {run.errors}")
        found = (_LINE.match(line) for line in Path(log.name).read_text().splitlines())
        return Counter(match.group(1) for match in found if match)


def spread(counts: Mapping[str, int], wanted: int) -> list[Point]:
    """So many points over all calls: each kind gets as much as the rarest ones leave over."""
    points: list[Point] = []
    kinds = sorted(counts, key=lambda call: (counts[call], call))
    for index, call in enumerate(kinds):
        share = min(counts[call], (wanted - len(points)) // (len(kinds) - index))
        points += [Point(call, 1 + k * counts[call] // share) for k in range(share)]
    return points


def run_into(point: Point, command: Sequence[str], fault: str = "signal=KILL") -> Run:
    """Run a process until it enters this call, where it is killed.

    Args:
        point: Where.
        command: What to run.
        fault: Another fault in strace's words, such as `error=EIO`.
    """
    inject = f"inject={point.call}:{fault}:when={point.number}"
    return _traced(["-e", f"trace={point.call}", "-e", inject, "-o", "/dev/null"], command)


def _traced(options: Sequence[str], command: Sequence[str]) -> Run:
    strace = require_tool("strace", package="strace")
    done = subprocess.run(
        # Not with --seccomp-bpf, which would be quicker: strace 6.1 then injects no signals.
        [str(strace), "-f", "-qq", "-e", "signal=none", *options, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_SECONDS,
        check=False,
    )
    return Run(tuple(done.stdout.splitlines()), done.stderr, done.returncode)
