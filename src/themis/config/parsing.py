"""Values of the service's configuration: from what somebody wrote to what is meant.

    check_value(KEYS["http"], "0.0.0.0:7421")      # Address(host="0.0.0.0", port=7421)
    from_text(KEYS["limits.rows"], "100")          # environment and flags have only texts

Every refusal says what it was about, what was given and what is allowed.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from themis.config.keys import Address, Key, ValueKind
from themis.core.model.ids import check_count, check_name, check_number
from themis.errors import ConfigError, unknown_name
from themis.recording.written_values import parse_value, seconds
from themis.recording.yaml_documents import shown

MAX_TEXT = 4096
MAX_ENTRIES = 10_000

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")
_V6 = re.compile(r"[0-9A-Fa-f:.]{2,45}\Z")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(|[kKMGTP]i?)B?\Z")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_.-]{0,31}\Z|([0-9]{1,10})(?::([0-9]{1,10}))?\Z")
_PLAIN = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.,:@\[\]-]{0,4000})?\Z")
_STORE = re.compile(r"(sqlite:///|postgresql://)[^\s\0]+\Z")
ENGINES = ("local", "slurm", "ray")
RAY_ADDRESS = r"^ray://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$"
LABEL = r"^([A-Za-z0-9][A-Za-z0-9_./-]{0,250}(=[A-Za-z0-9_.-]{1,250})?)?$"
_PASSWORD = re.compile(r"(\w+://[^\s:/@]*):[^\s@]*@|([?&](?:ssl)?password=)[^\s&]*")
_TEXTUAL = {
    "address",
    "path",
    "text",
    "name",
    "name or empty",
    "choice",
    "store",
    "hosts",
    "account",
    "engine",
    "plain or empty",
    "label or empty",
}


def check_value(key: Key, value: object, folder: Path = Path()) -> Any:
    """The value that is meant; relative paths are below `folder`.

    Raises:
        ConfigError: It cannot be one of this key.
    """
    if key.kind.name == "path":
        return folder / check_text(key.name, value, "a path")
    return _CHECKS[key.kind.name](key.name, value, key.kind)


def from_text(key: Key, text: str) -> object:
    """A value as environment and flags have it, made into what YAML would give.

    Raises:
        ConfigError: Pairs that are none.
    """
    if key.kind.name in _TEXTUAL:
        return text
    if key.kind.name == "hosts":
        return text.split(",")
    if key.kind.name in {"scalars", "accounts"}:
        return dict(_pair(key.name, part) for part in text.split(",") if part.strip())
    return parse_value(text[:MAX_TEXT])


def entry_from_text(key: Key, text: str) -> object:
    """One entry of a mapping, from a text."""
    return text.strip() if key.kind.name == "accounts" else parse_value(text[:MAX_TEXT])


def check_text(name: str, value: object, allowed: str) -> str:
    """A short line without control characters.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(value, str) or not value:
        raise ConfigError(name, shown(value), allowed)
    if len(value) > MAX_TEXT:
        raise ConfigError(name, shown(value), f"{allowed}, of at most {MAX_TEXT} characters")
    if not value.isprintable():
        raise ConfigError(name, shown(value), f"{allowed}, without control characters")
    return value


def shown_value(value: object) -> object:
    """The value, or a few words for one that is too long; a password is left out."""
    return shown(without_password(value) if isinstance(value, str) else value)


def plain(value: object) -> Any:
    """A checked value as JSON and YAML write it, to be read again; a password is left out."""
    match value:
        case Address() | Path():
            return str(value)
        case str():
            return without_password(value)
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
        case _:
            return value


def without_password(url: str) -> str:
    """A URL that can be shown."""
    return _PASSWORD.sub(lambda found: f"{found[1]}:***@" if found[1] else f"{found[2]}***", url)


def has_password(url: object) -> bool:
    """Whether a URL has a password in it."""
    return isinstance(url, str) and _PASSWORD.search(url) is not None


def _pair(name: str, part: str) -> tuple[str, object]:
    key, equals, value = part.partition("=")
    if not equals or not key.strip():
        raise ConfigError(name, shown(part), "KEY=VALUE, with commas between them")
    text = value.strip()
    return key.strip(), text if name == "accounts" else parse_value(text[:MAX_TEXT])


def _address(name: str, value: object, kind: ValueKind) -> Address:
    allowed = "HOST:PORT, such as 127.0.0.1:7421 or [::1]:7421"
    text = check_text(name, value, allowed)
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    known = _V6.match(bare) if bracketed else _HOST.match(host)
    if not colon or not known or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ConfigError(name, shown(value), allowed)
    return Address(bare, int(port))


def _hosts(name: str, value: object, kind: ValueKind) -> tuple[str, ...]:
    allowed = "a list of names with ports, such as [themis.lab:7421]"
    if not isinstance(value, list | tuple) or len(value) > MAX_ENTRIES:
        raise ConfigError(name, shown(value), allowed)
    found = []
    for item in value:
        text = check_text(name, item.strip() if isinstance(item, str) else item, allowed)
        if not re.fullmatch(r"[A-Za-z0-9.\[\]:-]{1,260}", text):
            raise ConfigError(name, shown(item), allowed)
        found.append(text.lower())
    return tuple(found)


def _name(name: str, value: object, kind: ValueKind) -> str:
    return check_name(name, shown(value))


def _name_or_empty(name: str, value: object, kind: ValueKind) -> str:
    return "" if value == "" else check_name(name, shown(value))


def _text(name: str, value: object, kind: ValueKind) -> str:
    return check_text(name, value, "a name")


def _choice(name: str, value: object, kind: ValueKind) -> str:
    if not isinstance(value, str) or value not in kind.choices:
        raise unknown_name(name, shown(value), kind.choices)
    return value


def _plain_or_empty(name: str, value: object, kind: ValueKind) -> str:
    if not isinstance(value, str) or not _PLAIN.match(value):
        raise ConfigError(name, shown(value), "letters, digits and ._,:@[]- as Slurm has them")
    return value


def _label_or_empty(name: str, value: object, kind: ValueKind) -> str:
    if not isinstance(value, str) or not re.match(LABEL, value):
        raise ConfigError(name, shown(value), "a label, or label=value, as Ray has them")
    return value


def _engine(name: str, value: object, kind: ValueKind) -> str:
    if isinstance(value, str) and re.match(RAY_ADDRESS, value):
        return value
    if not isinstance(value, str) or value not in ENGINES:
        raise unknown_name(name, shown(value), (*ENGINES, "ray://HOST:PORT"))
    return value


def _flag(name: str, value: object, kind: ValueKind) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(name, shown(value), "true or false")
    return value


def _count(name: str, value: object, kind: ValueKind) -> int:
    return check_count(name, shown(value), low=int(kind.low), high=int(kind.high))


def _number(name: str, value: object, kind: ValueKind) -> float:
    return check_number(name, shown(value), low=kind.low, high=kind.high)


def _seconds(name: str, value: object, kind: ValueKind) -> float:
    found = seconds(shown(value), name)
    if not kind.low <= found <= kind.high:
        allowed = f"a time from {_period(kind.low)} to {_period(kind.high)}"
        raise ConfigError(name, shown(value), allowed)
    return found


def _bytes(name: str, value: object, kind: ValueKind) -> int:
    allowed = f"a size from {int(kind.low)} to {int(kind.high)} bytes, such as 256KiB or 10G"
    if isinstance(value, str):
        found = _SIZE.match(value.strip())
        if found is None:
            raise ConfigError(name, shown(value), allowed)
        unit = 1024 if found[2].endswith("i") else 1000
        value = int(float(found[1]) * unit ** _POWERS[found[2].removesuffix("i")])
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not kind.low <= check_number(name, value, high=1e18) <= kind.high:
        raise ConfigError(name, shown(value), allowed)
    return int(str(value))


def _store(name: str, value: object, kind: ValueKind) -> str:
    allowed = "sqlite:///PATH or postgresql://USER@HOST/NAME"
    given = without_password(value) if isinstance(value, str) else value
    if not isinstance(value, str) or len(value) > MAX_TEXT or not _STORE.match(value):
        raise ConfigError(name, shown(given), allowed)
    check_text(name, given, allowed)
    return value


def _account(name: str, value: object, kind: ValueKind) -> str:
    allowed = "a user of the nodes, UID or UID:GID, not root: ann, 2001 or 2001:3000"
    text = str(shown(value)) if isinstance(value, int | str) else ""
    found = None if isinstance(value, bool) else _ACCOUNT.match(text)
    numbers = [int(part) for part in found.groups() if part] if found else []
    # Jobs of tenants never run as root; the last number means "no change" to the kernel.
    if found is None or text == "root" or not all(0 < part < 2**32 - 1 for part in numbers):
        raise ConfigError(name, shown(value), allowed)
    return text


def _accounts(name: str, value: object, kind: ValueKind) -> Mapping[str, str]:
    entries = _entries(name, value, "a mapping of owners and users, such as {vision: ann}")
    found = {}
    for owner, account in entries.items():
        check_name(f"owner in {name}", owner)
        found[owner] = _account(f"{name}.{owner}", account, kind)
    return found


def _scalars(name: str, value: object, kind: ValueKind) -> Mapping[str, Any]:
    entries = _entries(name, value, "a mapping of keys and values")
    for key, item in entries.items():
        endless = isinstance(item, int) and abs(item) > 10**18
        if endless or not isinstance(item, str | int | float):
            raise ConfigError(f"{name}.{key}", shown(item), "a number, true, false or a word")
        if isinstance(item, str):
            check_text(f"{name}.{key}", item, "a word")
    return entries


def _entries(name: str, value: object, allowed: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or len(value) > MAX_ENTRIES:
        raise ConfigError(name, shown(value), allowed)
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(name, shown(key), "keys that are words")
    return dict(value)


def _period(value: float) -> str:
    units = (("d", 86400.0), ("h", 3600.0), ("m", 60.0))
    sign, length = next((pair for pair in units if value >= pair[1]), ("s", 1.0))
    return f"{value / length:g}{sign}"


_CHECKS: dict[str, Callable[[str, object, ValueKind], Any]] = {
    "address": _address,
    "hosts": _hosts,
    "name": _name,
    "name or empty": _name_or_empty,
    "text": _text,
    "choice": _choice,
    "engine": _engine,
    "plain or empty": _plain_or_empty,
    "label or empty": _label_or_empty,
    "flag": _flag,
    "count": _count,
    "number": _number,
    "seconds": _seconds,
    "bytes": _bytes,
    "store": _store,
    "account": _account,
    "accounts": _accounts,
    "scalars": _scalars,
}
