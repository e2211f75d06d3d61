"""Reads the service's configuration: flags over environment over file over defaults.

    loaded = load(Path("themis.yaml"), environ=os.environ, flags={"http": "127.0.0.1:0"})
    loaded.config.http, str(loaded.origins["http"])       # ..., "--http"
    examine(Path("themis.yaml")).mistakes                 # all of them, with their lines

Every value knows where it came from.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from themis.config.keys import KEYS, SECTIONS, Key, ServiceConfig, config_from
from themis.config.parsing import check_value, entry_from_text, from_text, has_password, shown_value
from themis.core.arbiter import SETTING_NAMES, Inputs, Settings
from themis.core.auction.solvers.registry import solver
from themis.core.policies import policy, policy_class, policy_options
from themis.core.steward.state import HEARTBEATS
from themis.errors import ConfigError, UnwantedKeyError, unknown_name
from themis.recording.written_settings import settings_for
from themis.recording.yaml_documents import FilePosition, read_document
from themis.security.bind_address import check_bind
from themis.security.token_files import state_folder

MAPPINGS = ("set", "accounts")
"""Keys with entries of which each may come from somewhere else."""


_FOR_CALLERS = frozenset({"THEMIS_CA", "THEMIS_SERVER", "THEMIS_TOKEN_FILE"})
"""Variables of commands that call a service."""


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """Where a value came from."""

    kind: str
    """default, file, environment or flag."""
    where: str = ""

    def __str__(self) -> str:
        return self.where or self.kind


DEFAULT = ValueOrigin("default")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that was checked, and what follows from it."""

    config: ServiceConfig
    origins: Mapping[str, ValueOrigin]
    """By key; entries of `set` and `accounts` by `set.lease`."""
    settings: Settings = field(default_factory=Settings)
    policy_options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What is no mistake, but may be a slip."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A configuration, or everything found to be wrong with it."""

    loaded: Loaded | None
    mistakes: tuple[ConfigError, ...] = ()


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as somebody wrote it."""

    value: object
    origin: ValueOrigin
    folder: Path
    place: FilePosition | None = None

    def blame(self, error: ConfigError) -> ConfigError:
        """The error with the place of this value."""
        if self.place is not None:
            return type(error)(
                error.key, self.place.written(error.given), error.allowed, self.place.where
            )
        return type(error)(error.key, error.given, error.allowed, str(self.origin))


def load(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    root: bool = False,
) -> Loaded:
    """The configuration from all the places where it can be.

    Args:
        file: The YAML file, if there is one.
        environ: The environment.
        flags: What the command line says, by key.
        root: Whether the service runs as root, and so keeps its state where systems do.

    Raises:
        ConfigError: The first mistake: file and line (or flag, or variable), key, what is allowed.
    """
    found = examine(file, environ=environ, flags=flags, root=root)
    if found.loaded is None:
        raise found.mistakes[0]
    return found.loaded


def examine(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    root: bool = False,
) -> Examined:
    """The configuration, or all mistakes in it, those of the file in the order of their lines."""
    mistakes: list[ConfigError] = []
    given: dict[str, _Given] = {}
    # Later ones win.
    if file is not None:
        given |= _from_file(file, mistakes)
    given |= _from_environment(environ or {}, mistakes)
    given |= _from_flags(flags or {}, mistakes)
    values: dict[str, Any] = {}
    for name, item in given.items():
        try:
            values[name] = _checked(name, item)
        except ConfigError as error:
            mistakes.append(item.blame(error))
    notes = tuple(_slips(environ or {}))
    wrong = {mistake.key for mistake in mistakes} | (given.keys() - values.keys())
    values.setdefault("state_dir", state_folder(environ or {}, root=root))
    values.setdefault("store", f"sqlite:///{values['state_dir']}/themis.db")
    config = config_from(_merged(values))
    for needs, check in _CHECKS:
        # What depends on a value that is wrong itself can only be misleading.
        if not any(name.partition(".")[0] in needs for name in wrong):
            mistakes += [_blamed(error, given) for error in check(config, given)]
    if mistakes:
        return Examined(None, tuple(sorted(mistakes, key=_line)))
    options, settings = _decided(config)
    origins = {name: DEFAULT for name in KEYS if name not in MAPPINGS}
    origins |= {name: item.origin for name, item in given.items()}
    return Examined(Loaded(config, origins, settings, options, notes))


def _merged(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by key, those of mappings put together."""
    merged = {name: value for name, value in values.items() if name in KEYS}
    for name in MAPPINGS:
        prefix = f"{name}."
        merged[name] = {
            key.removeprefix(prefix): value
            for key, value in values.items()
            if key.startswith(prefix)
        }
    return merged


# Checks of values that have to fit each other. Each yields all that is wrong.


def _check_solver(config: ServiceConfig, _: Mapping[str, _Given]) -> Iterator[ConfigError]:
    try:
        solver(config.solver)
    except ConfigError as error:
        yield error


def _check_set(config: ServiceConfig, _: Mapping[str, _Given]) -> Iterator[ConfigError]:
    try:
        known = {*policy_options(policy_class(config.policy)), *SETTING_NAMES}
    except ConfigError as error:
        yield error
        return
    left = {key: value for key, value in config.set.items() if key in known}
    for key in config.set:
        if key not in known:
            yield unknown_name(f"key for policy {config.policy}", key, known)
    # Some values are right only beside others: each one that is wrong is left out, and what is
    # wrong without it is told too.
    while True:
        try:
            _decided(replace(config, set=left))
        except ConfigError as error:
            yield error
            named = [key for key in (error.key, *error.key.split()) if key in left]
            if not named:
                return
            del left[named[0]]
        else:
            return


def _check_addresses(config: ServiceConfig, _: Mapping[str, _Given]) -> Iterator[ConfigError]:
    for key in ("grpc", "http"):
        try:
            check_bind(key, getattr(config, key), config.tls)
        except ConfigError as error:
            yield error
    if config.grpc == config.http and config.grpc.port:
        yield ConfigError("http", str(config.http), "another address than that of grpc")


def _check_ttl(config: ServiceConfig, _: Mapping[str, _Given]) -> Iterator[ConfigError]:
    try:
        _, settings = _decided(config)
    except ConfigError:
        return  # It is told by the check of `set`.
    least = HEARTBEATS * settings.heartbeat
    if config.node_ttl < least:
        allowed = f"at least {HEARTBEATS} heartbeats ({least:g} s)"
        yield ConfigError("node_ttl", config.node_ttl, allowed)


def _check_accounts(config: ServiceConfig, given: Mapping[str, _Given]) -> Iterator[ConfigError]:
    if config.trust_tenants and config.accounts:
        reason = "with trust_tenants all jobs run as job_account: leave one of them out"
        yield UnwantedKeyError("accounts", f"those of {len(config.accounts)} owners", reason)
    if "job_account" in given and not config.trust_tenants:
        reason = "it is used with trust_tenants only"
        yield UnwantedKeyError("job_account", config.job_account, reason)


def _decided(config: ServiceConfig) -> tuple[dict[str, Any], Settings]:
    """Options of the policy, and the arbiter's settings."""
    kind = policy_class(config.policy)
    known = policy_options(kind)
    options = {key: value for key, value in config.set.items() if key in known}
    policy(config.policy, **options)
    names = {name for name in SETTING_NAMES if name not in known}
    settings = settings_for(kind, {key: config.set[key] for key in config.set if key in names})
    if settings.inputs is Inputs.CLAIMED:
        raise ConfigError("inputs", "claimed", "computed: claims are believed in simulations only")
    return options, settings


def _check_tls(config: ServiceConfig, _: Mapping[str, _Given]) -> Iterator[ConfigError]:
    for name in ("tls", "node"):
        section = getattr(config, name)
        for one, other in (("cert", "key"), ("key", "cert")):
            if getattr(section, one) and not getattr(section, other):
                given = str(getattr(section, one))
                yield ConfigError(f"{name}.{one}", given, f"only together with {name}.{other}")
    if config.tls.require_client and not (config.tls.ca and config.tls.cert):
        allowed = "false, or tls.cert, tls.key and tls.ca as well"
        yield ConfigError("tls.require_client", True, allowed)


_Check = Callable[[ServiceConfig, Mapping[str, _Given]], Iterator[ConfigError]]

_CHECKS: tuple[tuple[frozenset[str], _Check], ...] = (
    (frozenset({"policy", "set"}), _check_set),
    (frozenset({"solver"}), _check_solver),
    (frozenset({"tls", "node"}), _check_tls),
    (frozenset({"grpc", "http", "tls"}), _check_addresses),
    (frozenset({"node_ttl", "policy", "set"}), _check_ttl),
    (frozenset({"trust_tenants", "accounts", "job_account"}), _check_accounts),
)
"""The checks, and the keys that they depend on."""


def _from_file(path: Path, mistakes: list[ConfigError]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    try:
        data, place = read_document(path)
        # A file that says nothing is fine: there are defaults for everything.
        top = {} if data is None else place.mapped(data, _below("", data, place, mistakes))
    except ConfigError as error:
        mistakes.append(error)
        return given
    for name, value, at in _leaves(top, place, mistakes):
        given[name] = _Given(
            _meant(name, value, at), ValueOrigin("file", at.where), path.parent, at
        )
    return given


def _meant(name: str, value: object, place: FilePosition) -> object:
    """The value; of accounts the text, for YAML takes 2001:50 for minutes and seconds."""
    account = name == "job_account" or name.startswith("accounts.")
    number = isinstance(value, int) and not isinstance(value, bool)
    return place.texts.get(place.steps, value) if account and number else value


def _leaves(
    top: Mapping[str, Any], place: FilePosition, mistakes: list[ConfigError]
) -> Iterator[tuple[str, object, FilePosition]]:
    for key, value in top.items():
        at = place.at(key)
        if key not in SECTIONS and key not in MAPPINGS:
            if key in KEYS:
                yield key, value, at
            continue
        if not isinstance(value, dict):
            mistakes.append(at.error(value, "a mapping"))
            continue
        known = _below(key, value, at, mistakes) if key in SECTIONS else list(value)
        for inner in known:
            if inner in value:
                if isinstance(inner, str):
                    yield f"{key}.{inner}", value[inner], at.at(inner)
                else:
                    mistakes.append(at.error(inner, "keys that are words"))


def _below(
    section: str, data: object, place: FilePosition, mistakes: list[ConfigError]
) -> list[Any]:
    """The keys that may be here; each that may not be becomes a mistake, and passes."""
    prefix = f"{section}." if section else ""
    known = [name.removeprefix(prefix) for name in KEYS if name.startswith(prefix)]
    if not section:
        known = [*(name for name in known if "." not in name), *SECTIONS]
    odd = [key for key in data if key not in known] if isinstance(data, dict) else []
    for key in odd:
        at = place.at(key if isinstance(key, str | int) else str(key))
        what = f"key in {section}" if section else "key of a service"
        mistakes.append(unknown_name(what, str(shown_value(key)), known, at.where))
    return [*known, *odd] if not section else known


def _from_environment(environ: Mapping[str, str], mistakes: list[ConfigError]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for key in KEYS.values():
        text = environ.get(key.variable)
        if text:
            origin = ValueOrigin("environment", key.variable)
            given |= _from_text(key, text, origin, mistakes)
    for variable, text in sorted(environ.items()):
        name = variable.removeprefix("THEMIS_SET_").lower()
        if variable.startswith("THEMIS_SET_") and name:
            value = entry_from_text(KEYS["set"], text)
            given[f"set.{name}"] = _Given(value, ValueOrigin("environment", variable), Path())
    return given


def _from_flags(flags: Mapping[str, object], mistakes: list[ConfigError]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for name, value in flags.items():
        if name not in KEYS:
            mistakes.append(unknown_name("key of a service", name, KEYS))
            continue
        key = KEYS[name]
        origin = ValueOrigin("flag", key.flag)
        if has_password(value):
            allowed = "a URL without a password: others on this machine can read command lines"
            mistakes.append(ConfigError(name, "a password", allowed, key.flag))
        elif isinstance(value, list | tuple) and name in MAPPINGS:
            for item in value:
                text = item if isinstance(item, str) else str(shown_value(item))
                given |= _from_text(key, text, origin, mistakes)
        elif isinstance(value, str):
            given |= _from_text(key, value, origin, mistakes)
        elif isinstance(value, Mapping) and name in MAPPINGS:
            entries = {f"{name}.{inner}": item for inner, item in value.items()}
            given |= {inner: _Given(item, origin, Path()) for inner, item in entries.items()}
        else:
            given[name] = _Given(value, origin, Path())
    return given


def _from_text(
    key: Key, text: str, origin: ValueOrigin, mistakes: list[ConfigError]
) -> dict[str, _Given]:
    try:
        value = from_text(key, text)
    except ConfigError as error:
        mistakes.append(ConfigError(error.key, error.given, error.allowed, str(origin)))
        return {}
    if key.name in MAPPINGS and isinstance(value, dict):
        return {f"{key.name}.{name}": _Given(item, origin, Path()) for name, item in value.items()}
    return {key.name: _Given(value, origin, Path())}


def _checked(name: str, item: _Given) -> Any:
    """The value that is meant, or for an entry of a mapping the entry's."""
    if name in KEYS:
        # Whole: nodes and jobs work in other folders, and outlive the service.
        return check_value(KEYS[name], item.value, item.folder.absolute())
    outer, _, inner = name.partition(".")
    return check_value(KEYS[outer], {inner: item.value})[inner]


def _blamed(error: ConfigError, given: Mapping[str, _Given]) -> ConfigError:
    """The error with the place of the key that it is about, as far as that can be told."""
    words = [f"set.{word}" for word in error.key.split()]
    entries = [name for name in given if name.startswith(f"{error.key}.")]
    for name in (error.key, f"set.{error.given}", *words, *entries):
        if name in given:
            return given[name].blame(error)
    return error


def _slips(environ: Mapping[str, str]) -> Iterator[str]:
    """Variables that look like a key's, misspelt."""
    known = [key.variable for key in KEYS.values()]
    for variable in sorted(environ.keys() - _FOR_CALLERS):
        ours = variable.startswith("THEMIS_") and not variable.startswith("THEMIS_SET_")
        if ours and variable not in known:
            close = difflib.get_close_matches(variable, known, n=1, cutoff=0.87)
            if close:
                yield f"{variable} is no key (did you mean {close[0]}?)"


def _line(error: ConfigError) -> int:
    line = error.where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0
