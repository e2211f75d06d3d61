"""Where results come from: the version, the commit of the checkout, the seeds, the command.

commit_here()           # "24c6ca3", "24c6ca3, changed", or "unknown" outside a checkout
seed_text([101, 102, 103, 7])      # "7, 101-103"
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import themis
from themis.sim.runs.run_timing import UNKNOWN

_PACKAGE = Path(themis.__file__).parent
_PATIENCE = 10.0


def commit_here(package: Path = _PACKAGE) -> str:
    """The commit that the running code is of; `changed` when files of it differ from that."""
    # An installed package may lie within an unrelated repository.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return UNKNOWN
    commit = _git(package, "rev-parse", "--short=10", "HEAD")
    if not commit:
        return UNKNOWN
    changes = _git(package, "status", "--porcelain", "--", ".")
    return f"{commit}, changed" if changes else commit


def _git(folder: Path, *words: str) -> str | None:
    """The output of git, or None where git is missing or fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def seed_text(seeds: Iterable[int]) -> str:
    """Seeds as ranges: 7, 101-103."""
    parts: list[tuple[int, int]] = []
    for seed in sorted(set(seeds)):
        if parts and parts[-1][1] == seed - 1:
            parts[-1] = (parts[-1][0], seed)
        else:
            parts.append((seed, seed))
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
