"""A network of its own for a node, with one link to this machine that can be cut.

with open_link() as link:
    node = [*link.inside, "themis", "node", "--server", f"{link.here}:7420"]
    link.cut()          # nothing arrives any more, and nobody is told
    link.mend()

By a network namespace and a pair of virtual interfaces: needs root. Nothing else on the machine is
changed, and both are gone at the end.
"""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.support.requirements import require_tool

_NET = "198.18.{}.{}"
"""Set aside for tests of networks (RFC 2544): nobody's real addresses."""


@dataclass(frozen=True, slots=True)
class Link:
    """Two ends: `here` and, in the namespace, `there`."""

    name: str
    here: str
    there: str

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command that shall run there."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Lose every packet, in both directions, without a word to either end."""
        _ip("link", "set", f"{self.name}a", "down")

    def mend(self) -> None:
        """Let packets through again."""
        _ip("link", "set", f"{self.name}a", "up")


@contextmanager
def open_link() -> Iterator[Link]:
    """A link that works; skips the test where nobody may make one."""
    require_tool("ip", package="iproute2")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    name = f"th{secrets.token_hex(4)}"
    number = secrets.randbelow(250)
    link = Link(name, _NET.format(number, 1), _NET.format(number, 2))
    made = _try("netns", "add", name)
    if made:
        pytest.skip(f"network namespaces cannot be made here: {made}")
    try:
        _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        _ip("address", "add", f"{link.here}/30", "dev", f"{name}a")
        _ip("link", "set", f"{name}a", "up")
        _ip("-n", name, "address", "add", f"{link.there}/30", "dev", f"{name}b")
        _ip("-n", name, "link", "set", f"{name}b", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield link
    finally:
        # With it goes its end of the pair, and with that the other one.
        _try("netns", "delete", name)
        _try("link", "delete", f"{name}a")


def _ip(*arguments: str) -> None:
    trouble = _try(*arguments)
    if trouble:
        raise RuntimeError(f"ip {' '.join(arguments)}: {trouble}")


def _try(*arguments: str) -> str:
    """What was wrong, or nothing."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or "failed"
