"""Slurm's short form of many names: n[0-3,7],login -> n0 n1 n2 n3 n7 login."""

import re

MOST = 100_000
_PART = re.compile(r"([^\[\],]*)(?:\[([^\]]*)\])?")


def expand(text: str) -> tuple[str, ...]:
    """The names that a list stands for, in its order.

    Raises:
        ValueError: It is none, or far too long.
    """
    names: list[str] = []
    if text.count("[") != text.count("]"):
        raise ValueError(f"no list of names: {text[:80]!r}")
    for part in _split(text):
        found = [""]
        if not re.fullmatch(r"(?:[^\[\],]|\[[^\[\]]+\])+", part):
            raise ValueError(f"no list of names: {text[:80]!r}")
        for match in _PART.finditer(part):
            head, ranges = match.groups()
            middle = _ranges(ranges) if ranges is not None else [""]
            if len(names) + len(found) * len(middle) > MOST:
                raise ValueError(f"more than {MOST} names: {text[:80]!r}")
            found = [f"{one}{head}{number}" for one in found for number in middle]
        names += found
    return tuple(names)


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    parts = re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text.strip())
    return [part for part in parts if part not in {"", "(null)"}]


def _ranges(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"no range of numbers: {part[:80]!r}")
        end = int(last) if dash else int(first)
        if end - int(first) > MOST:
            raise ValueError(f"more than {MOST} names")
        found += [f"{number:0{len(first)}d}" for number in range(int(first), end + 1)]
    return found
