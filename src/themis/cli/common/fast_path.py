"""Verbs that people type all day, when nothing about their words is unusual.

    call = quick_call(["status", "resnet", "--json"])
    code = call()           # None if it is for typer: help, a mistake, a flag that is not below

Typer reads pydantic before it looks at a single word, which is more than a third of the time that
`themis ls` takes. What is understood here means the same there; tests compare the two.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUICK = {
    "ls": (), "status": ("app",), "explain": ("app",), "pause": ("app",), "resume": ("app",),
    "cancel": ("app",), "retry": ("app",), "hold": ("app",), "release": ("app",),
}  # fmt: skip
"""Functions of `themis.cli.apps`, and what each is called with beside the flags below."""
_VALUES = {"--server": "THEMIS_SERVER", "--ca": "THEMIS_CA"}
"""Flags with a value, and the variables that stand for them."""
_STYLES = {"--quiet": "quiet", "-q": "quiet", "--no-color": "plain"}
_COMPLETING = "_THEMIS_COMPLETE"
"""Set by a shell that asks what could come next."""


def quick_call(args: Sequence[str]) -> Callable[[], int] | None:
    """What the words ask for, as a call that returns the exit code."""
    given: dict[str, Any] = {}
    operands: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if word in _STYLES:
            given[_STYLES[word]] = True
        elif word.startswith("-") and not operands:
            return None  # It is the verb's, and there is none yet.
        elif word == "--json":
            given["json"] = True
        elif name in _VALUES:
            given[name[2:]] = value if equals else next(words, "")
        elif word.startswith("-"):
            return None
        else:
            operands.append(word)
    names = QUICK.get(operands[0]) if operands else None
    if names is None or len(names) != len(operands) - 1 or _COMPLETING in os.environ:
        return None
    if not all(given.get(flag[2:], "-") for flag in _VALUES):
        return None  # A value that is missing, or empty.
    for flag, variable in _VALUES.items():
        if flag[2:] not in given and os.environ.get(variable):
            given[flag[2:]] = os.environ[variable]
    given |= zip(names, operands[1:], strict=True)
    return lambda: _run(operands[0], given)


def _run(verb: str, given: dict[str, Any]) -> int:
    import typer  # noqa: PLC0415 - it is quick as long as it builds no command

    from themis.cli.common.output import FAILED, OK, STYLE  # noqa: PLC0415 - see above

    STYLE.quiet, STYLE.color = given.pop("quiet", False), not given.pop("plain", False)
    if "ca" in given:
        given["ca"] = Path(given["ca"])
    try:
        getattr(import_module("themis.cli.apps"), verb)(**given)
        sys.stdout.flush()
    except typer.Exit as done:
        return done.exit_code
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        # Who read along has seen enough; nothing is to be said of it when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return OK
