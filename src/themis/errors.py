"""Every error Themis raises on purpose.

    ThemisError
      RefusedError           the caller's doing; says what was wrong, and whose it was
        InvalidBidError        a bid that cannot be taken
        UnknownAppError        no such app
        DuplicateError         the name is taken
        StaleAnswerError       an answer to a question no longer open
      UnavailableError       the weather; safe to retry
      ConfigError            found at start-up; names the file and the key
        MissingFileError       a file that is not there
        UnwantedKeyError       a key that means nothing together with the others
        NamedFileError         a mistake in a file that another file names
      CorruptLogError        a file that cannot be read back: file, line, reason
      InvariantError         our bug; carries the last events that touched the object

Errors carry fields, not only prose, so that callers need not parse messages.
"""

import difflib
import re
from collections.abc import Iterable
from enum import Enum


def written(value: object) -> str:
    """A value as messages tell it: in the words of files, not of Python."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value.value if isinstance(value, Enum) else value)


class ThemisError(Exception):
    """The root: catching it catches everything Themis raises on purpose."""


class RefusedError(ThemisError):
    """The caller asked for something that cannot be."""

    def __init__(self, who: str, reason: str) -> None:
        super().__init__(f"{who}: {reason}")
        self.who = who
        self.reason = reason


class InvalidBidError(RefusedError):
    """A bid that cannot be taken; the round goes on without it."""


class UnknownAppError(RefusedError):
    """No app of that name."""


class DuplicateError(RefusedError):
    """The name is taken already."""


class StaleAnswerError(RefusedError):
    """An answer to a question that is no longer open."""


class UnavailableError(ThemisError):
    """Nobody's fault; safe to retry."""


class ConfigError(ThemisError):
    """A setting that cannot be: what it is, what was given, what is allowed, and where."""

    def __init__(self, key: str, given: object, allowed: str, where: str = "") -> None:
        place = f"{where}: " if where else ""
        super().__init__(place + self._told(key, given, allowed))
        self.key = key
        self.given = given
        self.allowed = allowed
        self.where = where

    @staticmethod
    def _told(key: str, given: object, allowed: str) -> str:
        return f"{key}: got {written(given)}, allowed: {allowed}"


class MissingFileError(ConfigError):
    """A file that is not there; `given` is its path."""

    def __init__(
        self, key: str, given: object, allowed: str = "a file that is there", where: str = ""
    ) -> None:
        super().__init__(key, given, allowed, where)

    @staticmethod
    def _told(key: str, given: object, allowed: str) -> str:
        return f"{given}: there is no such file"


class UnwantedKeyError(ConfigError):
    """A key that no value would be right for here; `allowed` says why."""

    @staticmethod
    def _told(key: str, given: object, allowed: str) -> str:
        return f"{key}: got {written(given)}, but {allowed}"


class NamedFileError(ConfigError):
    """A mistake in a file that a configuration names; `allowed` tells it with its own line."""

    @staticmethod
    def _told(key: str, given: object, allowed: str) -> str:
        return f"{key}: {allowed}"


class CorruptLogError(ThemisError):
    """A recorded file that cannot be read back."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason


class InvariantError(ThemisError):
    """Our bug. Carries what last touched the object."""

    def __init__(self, what: str, history: Iterable[object] = ()) -> None:
        self.history = tuple(history)
        tail = "".join(f"\n  {item!r}" for item in self.history)
        super().__init__(what + tail)
        self.what = what


def unknown_name(key: str, given: object, allowed: Iterable[str], where: str = "") -> ConfigError:
    """A `ConfigError` for what is no name in a list, with the closest one suggested."""
    names = sorted(allowed, key=_natural)
    close = difflib.get_close_matches(str(given), names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return ConfigError(key, given, ", ".join(names) + hint, where)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts numbers within names by their size: E2 before E10."""
    parts = re.findall(r"([0-9]+)|([^0-9]+)", name)
    return [(int(digits or 0), text) for digits, text in parts]
