"""Every error Themis raises on purpose.

    ThemisError
      RefusedError           the caller's doing; says what was wrong, and whose it was
        InvalidBidError        a bid that cannot be taken
        MissingError           nothing under this name
          UnknownAppError        no such app
        DuplicateError         the name is taken
        StaleAnswerError       an answer to a question no longer open
        UnknownCallerError     no credential, or one that is not valid
        DeniedError            a credential that does not allow this
        LimitError             too much, or too often; says when to come again
        TunerError             somebody's own tuner answered what cannot be
      UnavailableError       the weather; safe to retry
        StoreLockedError       another service has the store; names it
        StoreFullError         no room to write; nothing was written
      ConfigError            found at start-up; names the file and the key
        MissingFileError       a file that is not there
        UnwantedKeyError       a key that means nothing together with the others
        NamedFileError         a mistake in a file that another file names
      CorruptLogError        a file that cannot be read back: file, line, reason
      StoreError             the durable store cannot be used; names it
        CorruptStoreError      damaged: says how to go on
        StoreVersionError      of a version that this one cannot use
        FatalStoreError        nobody knows what is on disk: the service must exit
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


class MissingError(RefusedError):
    """There is nothing under this name."""


class UnknownAppError(MissingError):
    """No app of that name."""


class DuplicateError(RefusedError):
    """The name is taken already."""


class StaleAnswerError(RefusedError):
    """An answer to a question that is no longer open."""


class UnknownCallerError(RefusedError):
    """Nobody we know: no credential, or one that is wrong, expired or revoked."""


class DeniedError(RefusedError):
    """Somebody we know, who may not do this."""


class LimitError(RefusedError):
    """More than is taken at once; `retry_after` seconds later it may be (None: never)."""

    def __init__(self, who: str, reason: str, retry_after: float | None = None) -> None:
        super().__init__(who, reason)
        self.retry_after = retry_after


class TunerError(RefusedError):
    """Somebody's own tuner answered what cannot be."""


class UnavailableError(ThemisError):
    """Nobody's fault; safe to retry."""


class StoreLockedError(UnavailableError):
    """Another service has the store. `holder` says which, as far as that is known."""

    def __init__(self, store: str, holder: str) -> None:
        super().__init__(f"{store}: in use by {holder}; a store serves one service at a time")
        self.store = store
        self.holder = holder


class StoreFullError(UnavailableError):
    """There is no room to write. Nothing of what was to be written is there."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store}: {reason}")
        self.store = store
        self.reason = reason


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


class StoreError(ThemisError):
    """The durable store cannot be used."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store}: {reason}")
        self.store = store
        self.reason = reason


class CorruptStoreError(StoreError):
    """The store is damaged and is left as it is. `damage` is what was found."""

    def __init__(
        self,
        store: str,
        damage: str,
        advice: str = "move it away, then `themis restore` brings back a backup",
    ) -> None:
        super().__init__(store, f"damaged: {damage}; {advice}")
        self.damage = damage


class StoreVersionError(StoreError):
    """The store has a schema that this version of Themis cannot use."""


class FatalStoreError(StoreError):
    """A write failed such that nobody knows what is on disk. Exit: a new start reads what is."""


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
