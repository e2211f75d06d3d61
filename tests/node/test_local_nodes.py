"""Nodes on the service's own host: what they are told, and what becomes of them when they end."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from themis.config.addresses import Address
from themis.config.keys import NodeConfig, ServiceConfig, Tls
from themis.config.loader import examine
from themis.core.model import Machine
from themis.errors import ConfigError
from themis.node import local_nodes
from themis.node.local_nodes import LocalNodes, node_command
from themis.node.process import owners_of
from themis.security.token_files import read_token
from themis.security.token_store import TokenStore
from themis.security.tokens import check_token, revoke_token

GRPC = Address("127.0.0.1", 7420)
MACHINE = Machine("m0", "r0", (4, 4), "v100")


def flags_of(command: list[str]) -> dict[str, str]:
    words = command[command.index("node") + 1 :]
    return {
        word: "" if after.startswith("--") else after
        for word, after in zip(words, [*words[1:], "--"], strict=True)
        if word.startswith("--")
    }


@pytest.mark.parametrize(
    ("config", "root", "has"),
    [
        pytest.param(
            ServiceConfig(accounts={"ann": "nobody"}), True, {"--accounts": "ann=nobody"},
            id="root with accounts",
        ),
        pytest.param(
            ServiceConfig(trust_tenants=True, job_account="daemon"), True,
            {"--trust-tenants": "", "--job-account": "daemon"}, id="trusting",
        ),
        pytest.param(
            ServiceConfig(node=NodeConfig(owner="ann")), False, {"--owner": "ann"},
            id="without root",
        ),
    ],
)  # fmt: skip
def test_a_local_node_runs_jobs_as_any_other_node_would(
    config: ServiceConfig, root: bool, has: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    flags = flags_of(node_command(config, GRPC, MACHINE))
    whose = {"--accounts", "--trust-tenants", "--job-account", "--owner"}
    assert {name: value for name, value in flags.items() if name in whose} == has
    assert flags["--slot"] == "4"
    # The node takes what it is told: a job_account without trust_tenants would be a mistake.
    keys = {"--accounts": "accounts", "--trust-tenants": "trust_tenants",
            "--job-account": "job_account", "--owner": "node.owner"}  # fmt: skip
    given = {
        keys[name]: [value] if name == "--accounts" else value or True
        for name, value in has.items()
    }
    found = examine(flags=given)
    assert not found.mistakes
    assert found.loaded is not None
    assert owners_of(found.loaded.config)[0].separate is not config.trust_tenants


def test_local_nodes_cannot_show_certificates_and_are_refused_where_they_must(
    tmp_path: Path,
) -> None:
    config = replace(cluster(tmp_path), trust_tenants=True)
    assert local_nodes.local_machines(config)
    with pytest.raises(ConfigError, match="require_client"):
        local_nodes.local_machines(replace(config, tls=Tls(require_client=True)))


def test_local_nodes_have_one_place_for_checkpoints(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    folders = {
        flags_of(node_command(config, GRPC, replace(MACHINE, name=name)))["--shared-dir"]
        for name in ("m0", "m1")
    }
    assert folders == {str(tmp_path / "state-nodes" / "checkpoints")}
    given = replace(config, shared_dir=tmp_path / "shared")
    assert flags_of(node_command(given, GRPC, MACHINE))["--shared-dir"] == str(tmp_path / "shared")


def cluster(folder: Path) -> ServiceConfig:
    file = folder / "cluster.yaml"
    file.write_text("racks: [{name: r0, machines: [{name: m0, slots: [2]}]}]\n")
    return ServiceConfig(state_dir=folder / "state", local_nodes=file, trust_tenants=True)


def test_missing_job_account_is_reported_by_the_service(tmp_path: Path) -> None:
    config = ServiceConfig(state_dir=tmp_path / "state", local_nodes=cluster(tmp_path).local_nodes)
    nodes = LocalNodes(config, GRPC)
    with pytest.raises(ConfigError, match=r"accounts|owner"):
        nodes.start(TokenStore({}, lambda rows: None), now=1.7e9)


def test_a_node_that_has_ended_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = tmp_path / "seen"
    script = f"import os; open({str(seen)!r}, 'w').write(' '.join(os.environ)); os._exit(3)"
    command = [sys.executable, "-c", script]
    monkeypatch.setattr(local_nodes, "node_command", lambda *_: command)
    monkeypatch.setenv("THEMIS_TRUST_TENANTS", "yes")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    nodes = LocalNodes(cluster(tmp_path), GRPC)
    assert nodes.start(TokenStore({}, lambda rows: None), now=1.7e9) == ["m0"]
    (child,) = nodes._children.values()
    guard = time.monotonic() + 60.0
    while not (ended := nodes.reap()) and time.monotonic() < guard:
        os.sched_yield()
    assert ended == ["m0"]
    assert nodes.reap() == []
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)
    assert "m0 has ended with 3" in caplog.text
    assert {"THEMIS_TRUST_TENANTS", "NOTIFY_SOCKET"}.isdisjoint(seen.read_text().split())


def test_a_node_whose_token_the_store_has_lost_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", ""]
    monkeypatch.setattr(local_nodes, "node_command", lambda *_: command)
    config = cluster(tmp_path)
    file = tmp_path / "state-nodes" / "m0" / "token"

    def token_after(token_store: TokenStore) -> str:
        nodes = LocalNodes(config, GRPC)
        nodes.start(token_store, now=1.7e9)
        for child in nodes._children.values():
            child.wait(60.0)
        return read_token(file).reveal()

    token_store = TokenStore({}, lambda rows: None)
    first = token_after(token_store)
    assert token_after(token_store) == first
    # Brought back from before the node was added.
    token_store = TokenStore({}, lambda rows: None)
    second = token_after(token_store)
    assert second != first
    assert check_token(token_store, second, now=1.7e9).subject == "m0"
    # Whom an operator has shut out stays out.
    revoke_token(token_store, second.split("_")[1], now=1.7e9)
    assert token_after(token_store) == second
