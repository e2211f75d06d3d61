"""The service's configuration: keys, where values come from, and everything that is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from themis.config.addresses import Address, is_loopback
from themis.config.keys import KEYS, SECTIONS, ServiceConfig, service_schema, value_of
from themis.config.loader import Loaded, examine, load
from themis.config.value_types import plain
from themis.errors import ConfigError, MissingFileError
from themis.service.process import described

FULL = """\
grpc: 127.0.0.1:9001
http: "[::1]:9002"
hosts: [themis.lab:9002]
state_dir: state
store: postgresql://themis:hunter2@db/themis
policy: themis
set: {lease: 5m, f: 0.7, payment: gpus}
accounts:
  vision: 2001
  ads: 2002:50
retention: {age: 7d, bytes: 2G}
limits: {message_bytes: 64KiB, requests: 10}
tls: {cert: server.pem, key: server.key}
node: {name: gpu-07, server: themis.lab:9001, pretend: 4}
log_level: debug
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "themis.yaml"


def written(file: Path, text: str) -> Path:
    file.write_text(text, "utf-8")
    return file


def test_without_anything_the_defaults_hold_and_stay_on_this_machine() -> None:
    loaded = load(environ={"HOME": "/h"})
    config = loaded.config
    assert is_loopback(config.grpc.host)
    assert is_loopback(config.http.host)
    assert not config.trust_tenants
    assert config.state_dir == Path("/h/.local/state/themis")
    assert config.store == "sqlite:////h/.local/state/themis/themis.db"
    assert {str(origin) for origin in loaded.origins.values()} == {"default"}
    limits = config.limits
    assert (limits.message_bytes, limits.rows) == (256 * 1024, 4096)
    assert config.retention.age == 30 * 86400


def test_a_whole_file_is_read(file: Path, tmp_path: Path) -> None:
    loaded = load(written(file, FULL))
    config = loaded.config
    assert (config.grpc, config.http) == (Address("127.0.0.1", 9001), Address("::1", 9002))
    assert config.state_dir == tmp_path / "state"
    assert config.tls.cert == tmp_path / "server.pem"
    assert config.accounts == {"vision": "2001", "ads": "2002:50"}
    assert (config.retention.age, config.retention.bytes) == (7 * 86400.0, 2 * 10**9)
    assert config.limits.message_bytes == 65536
    assert loaded.settings.lease == 300.0
    assert loaded.policy_options == {"f": 0.7, "payment": "gpus"}
    assert str(loaded.origins["accounts.ads"]) == f"{file}:10"


def test_flags_win_over_environment_over_file_over_defaults(file: Path) -> None:
    written(file, "http: 127.0.0.1:1\ngrpc: 127.0.0.1:2\nseed: 3\nset: {lease: 1h, grace: 1}\n")
    environ = {"THEMIS_HTTP": "127.0.0.1:11", "THEMIS_SEED": "13", "THEMIS_SET_GRACE": "11s"}
    flags = {"http": "127.0.0.1:21", "set": ["heartbeat=1"]}
    loaded = load(file, environ=environ, flags=flags)
    config, origins = loaded.config, loaded.origins
    assert (config.http.port, config.seed, config.grpc.port) == (21, 13, 2)
    assert (loaded.settings.lease, loaded.settings.grace) == (3600.0, 11.0)
    told = {key: str(origins[key]) for key in ("http", "seed", "grpc", "policy")}
    assert told == {
        "http": "--http",
        "seed": "THEMIS_SEED",
        "grpc": f"{file}:2",
        "policy": "default",
    }
    assert str(origins["set.lease"]) == f"{file}:4"
    assert str(origins["set.grace"]) == "THEMIS_SET_GRACE"
    assert str(origins["set.heartbeat"]) == "--set"


def test_every_key_has_one_name_everywhere() -> None:
    variables = [key.variable for key in KEYS.values()]
    flags = [key.flag for key in KEYS.values()]
    assert len(set(variables)) == len(set(flags)) == len(KEYS)
    assert all(re.fullmatch(r"THEMIS_[A-Z_]+", name) for name in variables)
    assert all(key.help.endswith(".") for key in KEYS.values())


@pytest.mark.parametrize("name", [name for name in KEYS if name not in {"set", "accounts"}])
def test_every_key_takes_from_a_text_what_it_shows(name: str) -> None:
    default = value_of(ServiceConfig(), name)
    shown = plain(default)
    if shown in (None, "", []):
        return
    text = str(shown).lower() if isinstance(shown, bool) else str(shown)
    # An account for all jobs means nothing where tenants are not trusted.
    environ = {"THEMIS_TRUST_TENANTS": "true"} if name == "job_account" else {}
    environ |= {KEYS[name].variable: text, "HOME": "/h"}
    assert value_of(load(environ=environ).config, name) == default


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("http: 127.0.0.1:1\nhtpp: 127.0.0.1:2\n", 2, ("'htpp'", "did you mean 'http'?")),
        ("tls:\n  crt: x\n", 2, ("'crt'", "did you mean 'cert'?")),
        ("http: nowhere\n", 1, ("http: got 'nowhere'", "HOST:PORT")),
        ("http: 127.0.0.1:70000\n", 1, ("127.0.0.1:70000",)),
        ("http: 127.0.0.1\n", 1, ("HOST:PORT",)),
        ("http: ::1:80\n", 1, ("HOST:PORT",)),
        ("http: 7421\n", 1, ("got 7421",)),
        ('http: "127.0.0.1:80\\0"\n', 1, ("HOST:PORT",)),
        ('state_dir: "a\\x1bb"\n', 1, ("control characters",)),
        ("state_dir: " + "x" * 5000 + "\n", 1, ("at most 4096",)),
        ("seed: true\n", 1, ("seed: got true", "whole number")),
        ("seed: 1.5\n", 1, ("seed: got 1.5",)),
        ("seed: -1\n", 1, ("seed: got -1",)),
        ("seed: '7'\n", 1, ("seed: got '7'",)),
        ("seed: " + "9" * 400 + "\n", 1, ("more than 18 digits",)),
        ("node_ttl: .nan\n", 1, ("node_ttl: got nan",)),
        ("node_ttl: .inf\n", 1, ("node_ttl: got inf",)),
        ("node_ttl: true\n", 1, ("node_ttl: got true",)),
        ("node_ttl: 1e400d\n", 1, ("node_ttl",)),
        ("node_ttl: soon\n", 1, ("90s, 10m",)),
        ("node_ttl: 2d\n", 1, ("a time from 1s to 1h",)),
        ("node_ttl: 3s\n", 1, ("at least 5 heartbeats",)),
        ("trust_tenants: 1\n", 1, ("true or false",)),
        ("trust_tenants: 'yes'\n", 1, ("true or false",)),
        ("log_level: loud\n", 1, ("log_level", "debug, error, info, warning")),
        ("engine: locl\n", 1, ("did you mean 'local'?",)),
        ("retention:\n  bytes: 1 GB of it\n", 2, ("retention.bytes", "256KiB")),
        ("retention:\n  bytes: true\n", 2, ("retention.bytes: got true",)),
        ("retention:\n  bytes: 1\n", 2, ("retention.bytes: got 1",)),
        ("retention: 7\n", 1, ("retention", "a mapping")),
        ("limits:\n  requests: .nan\n", 2, ("limits.requests: got nan",)),
        ("limits:\n  rows: 0\n", 2, ("limits.rows: got 0",)),
        ("accounts:\n  vision: 0\n", 2, ("accounts.vision: got '0'", "not root")),
        ("accounts:\n  vision: root\n", 2, ("accounts.vision", "not root")),
        ("accounts:\n  vision: a b\n", 2, ("accounts.vision",)),
        ("accounts:\n  vision: null\n", 2, ("accounts.vision",)),
        ("accounts:\n  vision: -5\n", 2, ("accounts.vision",)),
        ("accounts:\n  vision: true\n", 2, ("accounts.vision: got true",)),
        ("accounts:\n  vision: 4294967295\n", 2, ("accounts.vision",)),
        ("accounts:\n  Vision: 2001\n", 2, ("key in accounts: got 'Vision'", "a-z")),
        ("accounts:\n  vision: 2001:0\n", 2, ("accounts.vision: got '2001:0'",)),
        ("accounts: [2001]\n", 1, ("accounts", "a mapping")),
        ("policy: themsi\n", 1, ("did you mean 'themis'?",)),
        ("solver: magic\n", 1, ("solver",)),
        ("seed: 1\nset:\n  leese: 5m\n", 3, ("'leese'", "did you mean 'lease'?")),
        ("set:\n  lease: 1s\n", 2, ("lease", "lead of a round")),
        ("set:\n  lease: [1]\n", 2, ("set.lease",)),
        ("set:\n  payment: gold\n", 2, ("payment",)),
        ("set:\n  inputs: claimed\n", 2, ("inputs", "simulations only")),
        ("set:\n  1: 2\n", 2, ("keys that are words",)),
        ("store: mysql://db\n", 1, ("store", "sqlite:///PATH")),
        ("store: 'sqlite:///a b'\n", 1, ("store",)),
        ("local_nodes: [a]\n", 1, ("local_nodes", "a path")),
        ("node:\n  name: GPU_7\n", 2, ("node.name: got 'GPU_7'",)),
        ("hosts: [a b]\n", 1, ("hosts",)),
        ("hosts: lab\n", 1, ("hosts", "a list")),
        ("seed: 1\ngrpc: 127.0.0.1:5\nhttp: 127.0.0.1:5\n", 3, ("another address",)),
        ("tls: {cert: a.pem}\n", 1, ("tls.cert: got", "only together with tls.key")),
        ("tls: {require_client: true}\n", 1, ("tls.require_client",)),
        ("trust_tenants: true\naccounts: {a: 2001}\n", 2, ("leave one of them out",)),
        ("job_account: 2001\n", 1, ("with trust_tenants only",)),
        ("seed: 1\nseed: 2\n", 2, ("a second time",)),
        ("seed: &a 1\ngrpc: *a\n", 2, ("alias",)),
        ("seed: !!python/object:os.system {}\n", 1, ("file",)),
        ("- 1\n", 1, ("a mapping",)),
    ],
)
def test_a_mistake_comes_with_its_line(
    file: Path, text: str, line: int, words: tuple[str, ...]
) -> None:
    mistakes = examine(written(file, text)).mistakes
    assert mistakes
    told = str(mistakes[0])
    assert told.startswith(f"{file}:{line}: "), told
    for word in words:
        assert word in told


def test_all_mistakes_are_listed_in_line_order(file: Path) -> None:
    written(file, "htpp: 1\nseed: x\ntls:\n  crt: y\naccounts:\n  A: 1\n  b: 0\nhttp: 5\n")
    lines = [str(mistake).split(":")[1] for mistake in examine(file).mistakes]
    assert lines == ["1", "2", "4", "6", "7", "8"]


def test_missing_file_is_reported() -> None:
    with pytest.raises(MissingFileError):
        load(Path("none.yaml"))


def test_empty_settings_leave_the_defaults(file: Path) -> None:
    assert load(written(file, "# nothing yet\n")).config.http.port == 7421


@pytest.mark.parametrize(
    ("environ", "where"),
    [
        ({"THEMIS_SEED": "x"}, "THEMIS_SEED: seed"),
        ({"THEMIS_TRUST_TENANTS": "yes"}, "THEMIS_TRUST_TENANTS: trust_tenants"),
        ({"THEMIS_SET_LEASE": "soon"}, "THEMIS_SET_LEASE: lease"),
        ({"THEMIS_SET_LEESE": "5m"}, "THEMIS_SET_LEESE: key for policy themis"),
        ({"THEMIS_ACCOUNTS": "vision"}, "THEMIS_ACCOUNTS: accounts"),
        ({"THEMIS_ACCOUNTS": "vision=0"}, "THEMIS_ACCOUNTS: accounts.vision"),
        ({"THEMIS_LIMITS_ROWS": "9" * 5000}, "THEMIS_LIMITS_ROWS: limits.rows"),
        ({"THEMIS_NODE_TTL": "nan"}, "THEMIS_NODE_TTL: node_ttl"),
        ({"THEMIS_GRPC": "0.0.0.0:1"}, "THEMIS_GRPC: grpc"),
    ],
)
def test_a_mistake_in_the_environment_names_its_variable(
    environ: dict[str, str], where: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    assert str(caught.value).startswith(where)


@pytest.mark.parametrize("name", KEYS)
def test_infinite_number_is_refused_in_words(name: str) -> None:
    for value in (10**5000, -(10**5000), {"a": 10**5000}, [10**5000]):
        with pytest.raises(ConfigError) as caught:
            load(flags={name: value})
        assert len(str(caught.value)) < 1000


def test_unknown_keyword_is_reported() -> None:
    with pytest.raises(ConfigError, match="did you mean 'http'"):
        load(flags={"htpp": "127.0.0.1:1"})


def test_mappings_may_be_given_as_such() -> None:
    loaded = load(flags={"set": {"lease": "5m"}, "accounts": {"vision": "ann"}})
    assert loaded.settings.lease == 300.0
    assert loaded.config.accounts == {"vision": "ann"}


def test_variables_that_are_nearly_keys_are_noticed_and_others_are_not() -> None:
    environ = {"THEMIS_HTPP": "x", "THEMIS_DATA": "x", "THEMIS_JOB_ID": "x", "OTHER": "x"}
    (slip,) = load(environ=environ).notes
    assert "THEMIS_HTPP" in slip
    assert "THEMIS_HTTP" in slip


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "[::]", "themis.lab"])
def test_public_listening_without_tls_is_refused_with_advice(host: str) -> None:
    for key in ("grpc", "http"):
        with pytest.raises(ConfigError) as caught:
            load(flags={key: f"{host}:7430"})
        told = str(caught.value)
        for word in (
            f"--{key}: {key}: got",
            "themis cert",
            "tls.cert",
            "tls.key",
            "127.0.0.1:7430",
        ):
            assert word in told
        flags = {key: f"{host}:7430", "tls.cert": "a.pem", "tls.key": "a.key"}
        load(flags=flags)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False), ("", False),
    ],
)  # fmt: skip
def test_loopback_covers_only_addresses_unreachable_from_outside(host: str, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    "url", ["postgresql://u:hunter2@db/x", "postgresql://db/x?user=a&password=hunter2"]
)
def test_a_password_is_taken_from_the_file_and_shown_nowhere(file: Path, url: str) -> None:
    loaded = load(written(file, f"store: {url}\n"))
    assert loaded.config.store == url
    assert "hunter2" not in repr(loaded)
    assert "hunter2" not in plain(loaded.config.store)
    with pytest.raises(ConfigError, match="command lines") as caught:
        load(flags={"store": url})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load(written(file, f"store: 'x{url}'\n"))
    assert "hunter2" not in str(caught.value)


def properties(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, given in schema["properties"].items():
        inner = schema["$defs"].get(given.get("$ref", "").removeprefix("#/$defs/"), given)
        if name in SECTIONS:
            assert inner["additionalProperties"] is False
            found |= {f"{name}.{key}": value for key, value in inner["properties"].items()}
        else:
            found[name] = inner
    return found


def test_the_schema_has_every_key_with_its_default() -> None:
    schema = json.loads(json.dumps(service_schema()))
    found = properties(schema)
    assert set(found) == set(KEYS)
    assert schema["additionalProperties"] is False
    for name, about in found.items():
        assert KEYS[name].variable in about["description"]
        assert about.get("default") == (plain(KEYS[name].default) or about.get("default"))
        pattern = about.get("pattern")
        if pattern and about.get("default"):
            assert re.search(pattern, about["default"]), name


def test_a_configuration_that_was_loaded_is_frozen(file: Path) -> None:
    loaded: Loaded = load(written(file, FULL))
    with pytest.raises(AttributeError):
        loaded.config.seed = 2  # type: ignore[misc]  # that is what is tried


def test_paths_are_whole_wherever_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes work in other folders, and outlive the service."""
    monkeypatch.chdir(tmp_path)
    Path("themis.yaml").write_text("state_dir: state\n", encoding="utf-8")
    assert load(Path("themis.yaml")).config.state_dir == tmp_path / "state"
    assert load(flags={"state_dir": "other"}).config.state_dir == tmp_path / "other"


def test_conflicting_values_are_all_reported_beside_other_mistakes(tmp_path: Path) -> None:
    text = """\
grpc: 0.0.0.0:7420
http: 0.0.0.0:7421
seed: soon
set:
  leese: 5m
  lease: never
  f: 7
hosts: [themis.lab:7421]
job_account: nobody
solver: magic
tls: {ca: ca.pem, require_client: true}
"""
    mistakes = examine(written(tmp_path / "themis.yaml", text)).mistakes
    lines = [int(str(mistake).split(":")[1]) for mistake in mistakes]
    assert lines == [1, 2, 3, 5, 6, 7, 9, 10, 11], [str(mistake) for mistake in mistakes]


def test_a_node_ttl_is_compared_with_heartbeats_unless_those_are_wrong(tmp_path: Path) -> None:
    for heartbeat, keys in (("5s", ["node_ttl"]), ("never", ["heartbeat"])):
        text = f"node_ttl: 1s\nset: {{heartbeat: {heartbeat}}}\n"
        mistakes = examine(written(tmp_path / "themis.yaml", text)).mistakes
        assert [mistake.key for mistake in mistakes] == keys


def test_dependents_of_a_wrong_value_are_not_reported(tmp_path: Path) -> None:
    text = "grpc: 0.0.0.0:7420\ntls: {cert: [a], key: b}\npolicy: themsi\nset: {payment: gpus}\n"
    mistakes = examine(written(tmp_path / "themis.yaml", text)).mistakes
    assert [mistake.key for mistake in mistakes] == ["tls.cert", "policy"]


def test_settings_that_are_right_only_together_are_right(tmp_path: Path) -> None:
    text = "set: {lease: 8s, grace: 1s, guard: 0.5s, heartbeat: 0.5s, solve_budget: 1s}\n"
    found = examine(written(tmp_path / "themis.yaml", text + "node_ttl: 3s\n"))
    assert not found.mistakes, found.mistakes


def test_a_running_service_tells_where_entries_of_mappings_come_from(tmp_path: Path) -> None:
    file = written(tmp_path / "themis.yaml", "seed: 5\nset: {lease: 5m}\n")
    told = described(load(file, flags={"set": ["f=0.5"]}))
    assert told["seed"] == {"value": 5, "from": f"{file}:1"}
    assert told["set"]["from"] == f"--set, {file}:2"
    assert told["accounts"]["from"] == told["http"]["from"] == "default"
