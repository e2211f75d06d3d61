"""`themis config`, `cert` and `doctor` for the service."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of whoever runs the tests counts."""
    for name in ("THEMIS_CONFIG", "THEMIS_HTTP", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def shown(done: Any) -> dict[str, tuple[Any, str]]:
    return {row["key"]: (row["value"], row["origin"]) for row in json.loads(done.out)["keys"]}


def test_service_run_and_cluster_files_are_distinguished(cli: Cli, tmp_path: Path) -> None:
    service = written(tmp_path / "themis.yaml", "http: 127.0.0.1:9\npolicy: fifo\n")
    run = written(tmp_path / "run.yaml", "policy: fifo\napps: 2\n")
    lab = written(tmp_path / "lab.yaml", "racks: [{machines: [{name: a, slots: 2x2}]}]\n")
    done = cli("config", "check", service, run, lab)
    assert (done.code, done.err) == (0, "")
    told = done.out.splitlines()
    assert told[0] == f"{service}: ok (service, fifo on grpc 127.0.0.1:7420 and http 127.0.0.1:9)"
    assert "fifo on testbed64" in told[1]
    assert "cluster" in told[2]


def test_mistakes_of_a_service_come_with_their_lines(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path / "themis.yaml", "http: 0.0.0.0\nsed: 1\n")
    done = cli("config", "check", file)
    assert (done.code, done.out) == (2, "")
    assert [line.split(":")[2] for line in done.err.splitlines()] == ["1", "2"]
    told = json.loads(cli("config", "check", file, "--json").out)["files"][0]
    assert (told["ok"], len(told["mistakes"])) == (False, 2)


LAB = "racks: [{machines: [{name: a, slots: 2x2}]}]\n"


def test_check_rejects_engine_settings_that_serve_refuses(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path / "themis.yaml", "engine: slurm\n")
    done = cli("config", "check", file)
    assert (done.code, done.out) == (2, "")
    assert "tenants" in done.err
    assert "; and shared_dir: got 'none'" in done.err
    file = written(
        tmp_path / "themis.yaml", "engine: slurm\ntrust_tenants: true\nshared_dir: /shared\n"
    )
    assert cli("config", "check", file).code == 0


def test_check_rejects_local_node_settings_that_serve_refuses(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "lab.yaml", LAB)
    file = written(tmp_path / "themis.yaml", "local_nodes: lab.yaml\n")
    done = cli("config", "check", file)
    assert (done.code, done.out) == (2, "")
    assert str(file) in done.err
    assert "trust" in done.err
    monkeypatch.setenv("THEMIS_TRUST_TENANTS", "true")
    assert cli("config", "check", file).code == 0, "as the service will have it"


def test_a_service_that_cannot_start_leaves_nothing_behind(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.cli.serve.start_logging", lambda config: None)
    lab = written(tmp_path / "lab.yaml", LAB)
    state = tmp_path / "state"
    ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    done = cli("serve", "--state-dir", state, "--local-nodes", lab, *ports)
    assert done.code == 2
    assert "trust" in done.err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = cli("serve", "--state-dir", state, "--http", address, "--grpc", "127.0.0.1:0")
    assert done.code == 2
    assert "listens on port" in done.err
    assert not state.exists()


def test_ambiguous_file_can_be_declared_a_service(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path / "themis.yaml", "polcy: fifo\n")
    assert "key in document" in cli("config", "check", file).err
    found = cli("config", "check", "--kind", "service", file)
    assert "key in the service's configuration" in found.err
    empty = written(tmp_path / "empty.yaml", "")
    assert cli("config", "check", "--kind", "service", empty).code == 0


def test_every_value_is_shown_with_where_it_comes_from(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "seed: 5\nset: {lease: 5m}\naccounts: {vision: 2001}\n"
    file = written(tmp_path / "themis.yaml", text)
    monkeypatch.setenv("THEMIS_LOG_LEVEL", "debug")
    flags = ("--tls-require-client", "--tls-cert", "a", "--tls-key", "b", "--tls-ca", "c")
    done = cli("config", "show", "--config", file, *flags, "--set", "f=0.5", "--json")
    assert done.code == 0, done.err
    rows = shown(done)
    assert rows["seed"] == (5, f"{file}:1")
    assert rows["log_level"] == ("debug", "THEMIS_LOG_LEVEL")
    assert rows["tls.require_client"] == (True, "--tls-require-client")
    assert rows["set.lease"] == ("5m", f"{file}:2")
    assert rows["set.f"] == (0.5, "--set")
    assert rows["accounts.vision"] == ("2001", f"{file}:3")
    assert rows["http"] == ("127.0.0.1:7421", "default")
    table = cli("config", "show", "--config", file, "--changed").out
    assert "accounts.vision" in table
    assert "http" not in table


def test_the_file_can_be_named_by_the_environment(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "themis.yaml", "seed: 5\n")
    monkeypatch.setenv("THEMIS_CONFIG", str(file))
    assert shown(cli("config", "show", "--json"))["seed"] == (5, f"{file}:1")


def test_passwords_are_not_shown(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path / "themis.yaml", "store: postgresql://u:hunter2@db/x\n")
    for flags in ((), ("--json",)):
        done = cli("config", "show", "--config", file, *flags)
        assert done.code == 0
        assert "hunter2" not in done.out + done.err
        assert "u:***@db" in done.out


def test_mistyped_flag_is_reported(cli: Cli) -> None:
    done = cli("config", "show", "--htpp", "127.0.0.1:1")
    assert done.code == 2
    assert "--http" in done.err
    done = cli("config", "show", "--http", "0.0.0.0:1")
    assert done.code == 2
    assert "themis cert" in done.err


def test_a_variable_that_is_nearly_a_key_is_noted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEMIS_LOG_LEVELS", "debug")
    done = cli("config", "show", "--json")
    assert done.code == 0
    assert "did you mean THEMIS_LOG_LEVEL?" in done.err


def test_every_key_is_a_flag_in_the_help(cli: Cli) -> None:
    from themis.config.keys import KEYS  # noqa: PLC0415 - only here

    for command in (("config", "show"), ("doctor",)):
        text = cli(*command, "--help").out
        assert [key.flag for key in KEYS.values() if key.flag not in text] == []


def test_the_schema_is_json(cli: Cli) -> None:
    assert json.loads(cli("config", "schema").out)["properties"]["http"]["type"] == "string"


def test_certificates_for_a_cluster(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    assert cli("cert", "ca", "--dir", folder).code == 0
    done = cli("cert", "server", "themis.lab", "10.0.0.5", "--dir", folder, "--json")
    assert json.loads(done.out) == {
        "cert": str(folder / "server.pem"),
        "key": str(folder / "server.key"),
    }
    assert cli("cert", "node", "gpu-07", "--dir", folder, "--days", "10").code == 0
    told = cli("cert", "show", folder / "node-gpu-07.pem").out
    assert "valid for 10 days" in told
    again = cli("cert", "ca", "--dir", folder)
    assert again.code == 2
    assert "not taken yet" in again.err
    flags = ("--tls-cert", folder / "server.pem", "--tls-key", folder / "server.key")
    done = cli("config", "show", "--http", "0.0.0.0:7421", *flags, "--json")
    assert done.code == 0


def test_the_doctor_tells_and_fails_where_something_would(cli: Cli, tmp_path: Path) -> None:
    fine = cli("doctor", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--json")
    found = {item["check"]: item for item in json.loads(fine.out)["findings"]}
    assert {"disk", "clock", "ports", "shared storage", "accounts"} <= set(found)
    blocked = written(tmp_path / "file", "")
    done = cli("doctor", "--state-dir", blocked / "below")
    assert done.code == 1
    assert "failed  disk" in done.out


def test_without_a_file_a_message_explains_that_none_is_shown(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = cli("config", "show", "--json")
    assert done.code == 0
    assert "no file is named" in done.err
    assert "--running" in done.err
    file = written(tmp_path / "themis.yaml", "seed: 5\n")
    for named in (("--config", file), (file,)):
        done = cli("config", "show", *named, "--json")
        assert (shown(done)["seed"], done.err) == ((5, f"{file}:1"), "")
    assert cli("config", "show", file, "--config", file).code == 2
    monkeypatch.setenv("THEMIS_CONFIG", str(file))
    assert cli("config", "show", "--json").err == ""


def test_the_configuration_of_the_service_that_runs_is_shown(cli: Cli, canned: Any) -> None:
    canned.answers["GET /v1/config"] = {
        "seed": {"value": 5, "from": "/etc/themis/themis.yaml:1"},
        "set": {"value": {"lease": "5m"}, "from": "default"},
        "http": {"value": "127.0.0.1:7421", "from": "default"},
    }
    rows = shown(cli("config", "show", "--running", "--json"))
    assert rows["seed"] == (5, "/etc/themis/themis.yaml:1")
    assert rows["set.lease"] == ("5m", "default")
    assert "seed" in cli("config", "show", "--running", "--changed").out
    assert cli("config", "show", "--running", "--config", "x").code == 2
