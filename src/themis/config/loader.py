"""Reads the service's configuration: flags over environment over file over defaults.

    loaded = load(Path("themis.yaml"), environ=os.environ, flags={"http": "127.0.0.1:0"})
    loaded.config.http, loaded.origins["http"]            # ..., "--http"
    examine(Path("themis.yaml")).mistakes                 # all of them, with their lines

Every value knows where it came from.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from themis.config.keys import KEYS, MAPPINGS, SECTIONS, VALIDATOR, Key, ServiceConfig
from themis.config.value_types import MAX_TEXT, has_password, shown_value
from themis.core.arbiter import SETTING_NAMES, Inputs, Settings
from themis.core.auction.solvers.registry import solver
from themis.core.policies import policy, policy_class, policy_options
from themis.core.steward.node_table import HEARTBEATS
from themis.errors import ConfigError, UnwantedKeyError, unknown_name
from themis.recording.validation import Mistake, line_of
from themis.recording.written_settings import settings_for
from themis.recording.written_values import parse_value
from themis.recording.yaml_documents import FilePosition, Steps, read_document, shown
from themis.security.bind_address import check_bind
from themis.security.token_files import state_folder

_CALLER_VARIABLES = frozenset({"THEMIS_CA", "THEMIS_SERVER", "THEMIS_TOKEN_FILE"})
"""Variables of commands that call a service."""


DEFAULT = "default"
"""The origin of values that no file, variable or flag gives."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that was checked, and what follows from it."""

    config: ServiceConfig
    origins: Mapping[str, str]
    """File and line, variable or flag of each value, by key; of entries by `set.lease`."""
    settings: Settings = field(default_factory=Settings)
    policy_options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Warnings: what is no mistake, but may be a slip."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A configuration, or everything found to be wrong with it."""

    loaded: Loaded | None
    mistakes: tuple[ConfigError, ...] = ()


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
    environ = environ or {}
    sources = _Sources()
    # Later ones win.
    if file is not None:
        sources.read_file(file)
    sources.read_environment(environ)
    sources.read_flags(flags or {})
    sources.data.setdefault("state_dir", str(state_folder(environ, root=root)))
    config, mistakes = sources.config()
    wrong = {mistake.key.partition(".")[0] for mistake in mistakes}
    for needs, check in _CHECKS:
        # A check of a value that is wrong itself would mislead.
        if not needs & wrong:
            mistakes += [sources.blamed(error) for error in check(config, sources.given)]
    if mistakes:
        return Examined(None, tuple(sorted(mistakes, key=line_of)))
    options, settings = _decided(config)
    notes = tuple(_slips(environ))
    return Examined(Loaded(config, sources.origins(), settings, options, notes))


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as it was given, and where."""

    value: object
    origin: str
    steps: Steps
    place: FilePosition | None = None

    def error(self, mistake: Mistake) -> ConfigError:
        """The error of a mistake in this value."""
        key, allowed, given = mistake.key, mistake.allowed, mistake.given
        if isinstance(self.value, str) and mistake.steps in _PATHS:
            given = shown(self.value)  # The document has it below the folder of its file.
        if self.place is None:
            return ConfigError(key, given, allowed, self.origin)
        at = self.place.at(*mistake.steps[len(self.steps) :])
        return ConfigError(key, at.written(given), allowed, at.where)

    def blame(self, error: ConfigError) -> ConfigError:
        """The error with the place of this value."""
        given = error.given if self.place is None else self.place.written(error.given)
        return type(error)(error.key, given, error.allowed, self.origin)


_PATHS = {tuple(name.split(".")) for name, key in KEYS.items() if key.metavar == "PATH"}


class _Sources:
    """The values of file, environment and flags, put together as one document."""

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        self.given: dict[Steps, _Given] = {}
        self._mistakes: list[ConfigError] = []

    def read_file(self, path: Path) -> None:
        """Take the values of a YAML file."""
        try:
            data, place = read_document(path)
        except ConfigError as error:
            self._mistakes.append(error)
            return
        # A file that says nothing is fine: there are defaults for everything.
        if data is not None and not isinstance(data, dict):
            self._mistakes.append(place.error(data, "a mapping of keys to values"))
        for steps, value in _leaves(data if isinstance(data, dict) else {}):
            at = place.at(*(step if isinstance(step, str) else str(step) for step in steps))
            # YAML takes the account 2001:50 for minutes and seconds.
            account = steps[0] in {"accounts", "job_account"}
            given = at.number_text(value) if account else value
            self._put(_Given(given, at.where, steps, at), path.parent)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Take the values of variables."""
        for key in KEYS.values():
            if text := environ.get(key.variable):
                self._put_text(key, text, key.variable)
        for variable, text in sorted(environ.items()):
            name = variable.removeprefix("THEMIS_SET_").lower()
            if variable.startswith("THEMIS_SET_") and name:
                self._put(_Given(parse_value(text[:MAX_TEXT]), variable, ("set", name)))

    def read_flags(self, flags: Mapping[str, object]) -> None:
        """Take the values of flags, by key."""
        for name, value in flags.items():
            if name not in KEYS:
                self._put(_Given(value, f"--{name}", (name,)))
                continue
            key = KEYS[name]
            origin = key.flag
            if has_password(value):
                allowed = "a URL without a password: others on this machine can read command lines"
                self._mistakes.append(ConfigError(name, "a password", allowed, key.flag))
            elif isinstance(value, list | tuple) and name in MAPPINGS:
                for item in value:
                    text = item if isinstance(item, str) else str(shown_value(item))
                    self._put_text(key, text, origin)
            elif isinstance(value, Mapping) and name in MAPPINGS:
                for entry, item in value.items():
                    self._put(_Given(item, origin, (name, entry)))
            elif isinstance(value, str):
                self._put_text(key, value, origin)
            else:
                self._put(_Given(value, origin, tuple(name.split("."))))

    def _put_text(self, key: Key, text: str, origin: str) -> None:
        """Take a value that is a text, where YAML would have a number or a mapping."""
        if key.name in MAPPINGS:
            for part in text.split(","):
                self._put_entry(key, part, origin)
            return
        value: object = text
        if key.name == "hosts":
            value = text.split(",")
        elif key.type in {bool, int, float}:
            value = parse_value(text[:MAX_TEXT])
        self._put(_Given(value, origin, tuple(key.name.split("."))))

    def _put_entry(self, key: Key, text: str, origin: str) -> None:
        name, equals, value = (part.strip() for part in text.partition("="))
        if equals and name:
            item = value if key.name == "accounts" else parse_value(value[:MAX_TEXT])
            self._put(_Given(item, origin, (key.name, name)))
        elif text.strip():
            allowed = "KEY=VALUE, with commas between them"
            self._mistakes.append(ConfigError(key.name, shown(text), allowed, origin))

    def _put(self, given: _Given, folder: Path = Path()) -> None:
        self.given[given.steps] = given
        *above, last = given.steps
        inner = self.data.setdefault(above[0], {}) if above else self.data
        if not isinstance(inner, dict):
            return  # The file has no mapping here, which pydantic reports.
        path = given.steps in _PATHS and isinstance(given.value, str) and given.value
        # Whole: nodes and jobs work in other folders, and outlive the service.
        inner[last] = str(folder.absolute() / str(given.value)) if path else given.value

    def config(self) -> tuple[ServiceConfig, list[ConfigError]]:
        """The configuration, without the values that are wrong, and what is wrong with them."""
        found = VALIDATOR.examine(self.data)
        errors = list(self._mistakes)
        if isinstance(found, list):
            for mistake in found:
                errors.append(self._error(mistake))
                _drop(self.data, mistake.steps)
            found = VALIDATOR.examine(self.data)
        config = ServiceConfig() if isinstance(found, list) else found
        if not config.store:
            config = replace(config, store=f"sqlite:///{config.state_dir}/themis.db")
        return config, errors

    def _error(self, mistake: Mistake) -> ConfigError:
        steps = mistake.steps
        for known in (steps[:2], steps[:1]):
            if known in self.given:
                return self.given[known].error(mistake)
        return ConfigError(mistake.key, mistake.given, mistake.allowed)

    def blamed(self, error: ConfigError) -> ConfigError:
        """The error with the place of the key that it is about, as far as that can be told."""
        names = [error.key, f"set.{error.given}", *(f"set.{word}" for word in error.key.split())]
        entries = [steps for steps in self.given if steps[:-1] == (error.key,)]
        for steps in (*(tuple(name.split(".", 1)) for name in names), *entries):
            if steps in self.given:
                return self.given[steps].blame(error)
        return error

    def origins(self) -> dict[str, str]:
        """Where each value came from."""
        found = {name: DEFAULT for name in KEYS if name not in MAPPINGS}
        given = {".".join(map(str, item.steps)): item.origin for item in self.given.values()}
        return found | given


def _leaves(data: Mapping[Any, Any]) -> Iterator[tuple[Steps, Any]]:
    """The values of a document, with the way to each."""
    for key, value in data.items():
        if isinstance(value, dict) and value and key in (*SECTIONS, *MAPPINGS):
            for inner, item in value.items():
                yield (key, inner), item
        else:
            yield (key,), value


def _drop(data: dict[Any, Any], steps: Steps) -> None:
    """Take a value out of a document."""
    if not steps:
        data.clear()
        return
    inner = data.get(steps[0]) if len(steps) > 1 else None
    mapping, step = (inner, steps[1]) if isinstance(inner, dict) else (data, steps[0])
    # Pydantic names keys that are no texts in its own way.
    odd = [key for key in mapping if not isinstance(key, str)]
    for key in [step] if step in mapping else odd:
        del mapping[key]


# Checks of values that have to fit each other. Each yields all mistakes.


def _check_solver(config: ServiceConfig, _: Mapping[Steps, _Given]) -> Iterator[ConfigError]:
    try:
        solver(config.solver)
    except ConfigError as error:
        yield error


def _check_set(config: ServiceConfig, _: Mapping[Steps, _Given]) -> Iterator[ConfigError]:
    try:
        known = {*policy_options(policy_class(config.policy)), *SETTING_NAMES}
    except ConfigError as error:
        yield error
        return
    left = {key: value for key, value in config.set.items() if key in known}
    for key in config.set:
        if key not in known:
            yield unknown_name(f"key for policy {config.policy}", key, known)
    # Some values are right only together with others: leave out each wrong one, and report what is
    # wrong without it too.
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


def _check_addresses(config: ServiceConfig, _: Mapping[Steps, _Given]) -> Iterator[ConfigError]:
    for key in ("grpc", "http"):
        try:
            check_bind(key, getattr(config, key), config.tls)
        except ConfigError as error:
            yield error
    if config.grpc == config.http and config.grpc.port:
        yield ConfigError("http", str(config.http), "another address than that of grpc")


def _check_ttl(config: ServiceConfig, _: Mapping[Steps, _Given]) -> Iterator[ConfigError]:
    try:
        settings = _decided(config)[1]
    except ConfigError:
        return  # The check of `set` reports it.
    least = HEARTBEATS * settings.heartbeat
    if config.node_ttl < least:
        allowed = f"at least {HEARTBEATS} heartbeats ({least:g} s)"
        yield ConfigError("node_ttl", config.node_ttl, allowed)


def _check_accounts(config: ServiceConfig, given: Mapping[Steps, _Given]) -> Iterator[ConfigError]:
    if config.trust_tenants and config.accounts:
        reason = "with trust_tenants all jobs run as job_account: leave one of them out"
        yield UnwantedKeyError("accounts", f"those of {len(config.accounts)} owners", reason)
    if ("job_account",) in given and not config.trust_tenants:
        reason = "it is used with trust_tenants only"
        yield UnwantedKeyError("job_account", config.job_account, reason)


def _decided(config: ServiceConfig) -> tuple[dict[str, Any], Settings]:
    """The policy's options and the arbiter's settings, from `set`."""
    kind = policy_class(config.policy)
    known = policy_options(kind)
    options = {key: value for key, value in config.set.items() if key in known}
    policy(config.policy, **options)
    names = {name for name in SETTING_NAMES if name not in known}
    settings = settings_for(kind, {key: config.set[key] for key in config.set if key in names})
    if settings.inputs is Inputs.CLAIMED:
        raise ConfigError("inputs", "claimed", "computed: claims are believed in simulations only")
    return options, settings


def _check_tls(config: ServiceConfig, _: Mapping[Steps, _Given]) -> Iterator[ConfigError]:
    for name in ("tls", "node"):
        section = getattr(config, name)
        for one, other in (("cert", "key"), ("key", "cert")):
            if getattr(section, one) and not getattr(section, other):
                given = str(getattr(section, one))
                yield ConfigError(f"{name}.{one}", given, f"only together with {name}.{other}")
    if config.tls.require_client and not (config.tls.ca and config.tls.cert):
        allowed = "false, or tls.cert, tls.key and tls.ca as well"
        yield ConfigError("tls.require_client", True, allowed)


_Check = Callable[[ServiceConfig, Mapping[Steps, _Given]], Iterator[ConfigError]]

_CHECKS: tuple[tuple[frozenset[str], _Check], ...] = (
    (frozenset({"policy", "set"}), _check_set),
    (frozenset({"solver"}), _check_solver),
    (frozenset({"tls", "node"}), _check_tls),
    (frozenset({"grpc", "http", "tls"}), _check_addresses),
    (frozenset({"node_ttl", "policy", "set"}), _check_ttl),
    (frozenset({"trust_tenants", "accounts", "job_account"}), _check_accounts),
)
"""The checks, and the keys that they depend on."""


def _slips(environ: Mapping[str, str]) -> Iterator[str]:
    """Variables that look like misspelt keys."""
    known = [key.variable for key in KEYS.values()]
    for variable in sorted(environ.keys() - _CALLER_VARIABLES):
        ours = variable.startswith("THEMIS_") and not variable.startswith("THEMIS_SET_")
        if ours and variable not in known:
            close = difflib.get_close_matches(variable, known, n=1, cutoff=0.87)
            if close:
                yield f"{variable} is no key (did you mean {close[0]}?)"
