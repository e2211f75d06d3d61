"""Types of configuration values: the check of each, its JSON Schema and what a flag's help shows.

    grpc: Annotated[Address, ADDRESS] = Address("127.0.0.1", 7420)

Every refusal says what was given and what is allowed.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from themis.config.addresses import Address, check_address
from themis.core.model.ids import check_name
from themis.errors import unknown_name
from themis.recording.validation import Checked, refused
from themis.recording.yaml_documents import shown

MAX_TEXT = 4096
MAX_ENTRIES = 10_000
ENGINES = ("local", "slurm", "ray")
Scalar = str | int | float | bool

_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.\[\]:-]{1,260}\Z")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(|[kKMGTP]i?)B?\Z")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_.-]{0,31}\Z|([0-9]{1,10})(?::([0-9]{1,10}))?\Z")
_SLURM_WORD = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.,:@\[\]-]{0,4000})?\Z")
_RAY_LABEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9_./-]{0,250}(=[A-Za-z0-9_.-]{1,250})?)?\Z")
_RAY_ADDRESS = re.compile(r"ray://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}\Z")
_STORE = re.compile(r"(sqlite:///|postgresql://)[^\s\0]+\Z")
_PASSWORD = re.compile(r"(\w+://[^\s:/@]*):[^\s@]*@|([?&](?:ssl)?password=)[^\s&]*")


def _line(value: object, allowed: str) -> str:
    """A short line without control characters."""
    if not isinstance(value, str) or not value:
        raise refused(value, allowed)
    if len(value) > MAX_TEXT:
        raise refused(value, f"{allowed}, of at most {MAX_TEXT} characters")
    if not value.isprintable():
        raise refused(value, f"{allowed}, without control characters")
    return value


def _hosts(value: object) -> tuple[str, ...]:
    allowed = "a list of names with ports, such as [themis.lab:7421]"
    if not isinstance(value, list | tuple) or len(value) > MAX_ENTRIES:
        raise refused(value, allowed)
    found = []
    for index, item in enumerate(value):
        text = item.strip() if isinstance(item, str) else ""
        if not _HOST_AND_PORT.match(text):
            raise refused(item, allowed, index)
        found.append(text.lower())
    return tuple(found)


def _slurm_word(value: object) -> str:
    if not isinstance(value, str) or not _SLURM_WORD.match(value):
        raise refused(value, "letters, digits and ._,:@[]- as Slurm has them")
    return value


def _ray_label(value: object) -> str:
    if not isinstance(value, str) or not _RAY_LABEL.match(value):
        raise refused(value, "a label, or label=value, as Ray has them")
    return value


def _engine(value: object) -> str:
    if isinstance(value, str) and (value in ENGINES or _RAY_ADDRESS.match(value)):
        return value
    raise unknown_name("engine", shown(value), (*ENGINES, "ray://HOST:PORT"))


def _store(value: object) -> str:
    allowed = "sqlite:///PATH or postgresql://USER@HOST/NAME"
    given = without_password(value) if isinstance(value, str) else value
    if not isinstance(value, str) or len(value) > MAX_TEXT or not _STORE.match(value):
        raise refused(given, allowed)
    _line(given, allowed)
    return value


def _account(value: object) -> str:
    allowed = "a user of the nodes, UID or UID:GID, not root: ann, 2001 or 2001:3000"
    text = str(shown(value)) if isinstance(value, int | str) else ""
    found = None if isinstance(value, bool) else _ACCOUNT.match(text)
    numbers = [int(part) for part in found.groups() if part] if found else []
    # Jobs of tenants never run as root; the last number means "no change" to the kernel.
    if found is None or text == "root" or not all(0 < part < 2**32 - 1 for part in numbers):
        raise refused(value, allowed)
    return text


def _scalar(value: object) -> Scalar:
    endless = isinstance(value, int) and abs(value) > 10**18
    if endless or not isinstance(value, str | int | float):
        raise refused(value, "a number, true, false or a word")
    return _line(value, "a word") if isinstance(value, str) else value


def size(low: int, high: int) -> Checked:
    """A number of bytes, with or without a unit."""
    allowed = f"a size from {low} to {high} bytes, such as 256KiB or 10G"

    def check(value: object) -> int:
        found = _SIZE.match(value.strip()) if isinstance(value, str) else None
        if found is not None:
            unit = 1024 if found[2].endswith("i") else 1000
            value = int(float(found[1]) * unit ** _POWERS[found[2].removesuffix("i")])
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise refused(value, allowed)
        return value

    number = {"type": "integer", "minimum": low, "maximum": high}
    return Checked(check, {"anyOf": [number, _pattern(_SIZE)]}, "BYTES")


def _pattern(pattern: re.Pattern[str]) -> dict[str, Any]:
    """The JSON Schema of texts that match from their beginning to their end."""
    return {"type": "string", "pattern": f"^{pattern.pattern}".replace("\\Z", "$")}


_ACCOUNTS = [{"type": "integer", "minimum": 1}, _pattern(_ACCOUNT)]
_TEXT = {"type": "string", "minLength": 1}

ADDRESS = Checked(
    check_address,
    {"type": "string", "pattern": r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$"},
    "HOST:PORT",
)
PATH = Checked(lambda value: Path(_line(value, "a path")), _TEXT, "PATH")
TEXT = Checked(lambda value: _line(value, "a name"), _TEXT, "TEXT")
NAME_OR_EMPTY = Checked(
    lambda value: "" if value == "" else check_name("name", shown(value)),
    {"type": "string", "maxLength": 63},
    "NAME",
)
HOSTS = Checked(_hosts, {"type": "array", "items": {"type": "string"}}, "NAME:PORT,...")
SLURM_WORD = Checked(_slurm_word, _pattern(_SLURM_WORD), "TEXT")
RAY_LABEL = Checked(_ray_label, _pattern(_RAY_LABEL), "LABEL")
ENGINE = Checked(_engine, {"anyOf": [{"enum": list(ENGINES)}, _pattern(_RAY_ADDRESS)]}, "ENGINE")
STORE = Checked(_store, {"type": "string", "pattern": "^(|sqlite:///.+|postgresql://.+)$"}, "URL")
ACCOUNT = Checked(_account, {"anyOf": _ACCOUNTS}, "USER")
SCALAR = Checked(_scalar, {"type": ["string", "number", "boolean"]})


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
