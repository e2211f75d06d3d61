"""Secrets, and the default folder of state. Small, because every command reads its token."""

import re
from pathlib import Path
from typing import Any

TOKEN = re.compile(r"themis_([0-9a-f]{12})_([A-Za-z0-9]{43})")
STATE = Path("/var/lib/themis")
"""The state folder of a service that runs as root; `themis.config.loader` finds that of others."""


class Secret:
    """A text that does not show itself in messages, logs or tracebacks."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for the one place where it is meant to go."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> str | tuple[Any, ...]:
        # Pickles and copies end up in files without protection.
        raise TypeError("a secret is not copied or pickled")
