"""`themis node`: what it refuses before it does anything."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from themis.node.disk import NodeDisk, first_closed_folder
from themis.security.token_files import write_secret
from themis.security.tokens import Role, draft_token

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of whoever runs the tests counts."""
    for name in [name for name in os.environ if name.startswith("THEMIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "node.token"
    write_secret(path, draft_token(Role.NODE, "m0", now=1.0).token)
    return path


def test_help_lists_node_flags_and_no_service_flags(cli: Cli) -> None:
    done = cli("node", "--help")
    assert done.code == 0
    for flag in ("--server", "--token-file", "--name", "--pretend", "--rack", "--state"):
        assert flag in done.out
    assert "--http" not in done.out
    assert "--node-server" not in done.out


def test_missing_token_file_is_reported(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        *("node", "--name", "m0", "--pretend", 1, "--trust-tenants"),
        *("--state", tmp_path / "m0", "--token-file", tmp_path / "no.token"),
    )
    assert done.code == 3
    assert "no.token" in done.err
    assert not (tmp_path / "m0").exists()


def test_remote_service_must_prove_its_identity(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        *("node", "--name", "m0", "--pretend", 1, "--trust-tenants"),
        *("--state", tmp_path / "m0", "--server", "192.0.2.1:7420"),
    )
    assert done.code == 2
    assert "--ca" in done.err


def test_job_account_must_be_configured(cli: Cli, tmp_path: Path, token: Path) -> None:
    done = cli(
        *("node", "--name", "m0", "--pretend", 1, "--token-file", token),
        *("--state", tmp_path / "m0"),
    )
    assert done.code == 2
    assert "trust" in done.err


def test_invalid_name_is_refused(cli: Cli) -> None:
    done = cli("node", "--name", "GPU 7")
    assert done.code == 2
    assert "GPU 7" in done.err


def test_a_folder_that_another_node_has_is_refused(cli: Cli, tmp_path: Path, token: Path) -> None:
    with NodeDisk.open(tmp_path / "m0", "m0"):
        done = cli(
            *("node", "--name", "m0", "--pretend", 1, "--trust-tenants"),
            *("--token-file", token, "--state", tmp_path / "m0"),
        )
    assert done.code not in {0, 2}
    assert "another node has this folder" in done.err


def test_a_folder_that_jobs_cannot_reach_is_named(tmp_path: Path) -> None:
    closed, state = tmp_path / "closed", tmp_path / "closed" / "m0"
    state.mkdir(parents=True)
    for place in (state, *state.parents):
        if place.is_relative_to(tmp_path):
            place.chmod(0o755)
    uid = os.geteuid() + 1
    # What is above tmp_path is none of ours.
    above = first_closed_folder(tmp_path, uid, ())
    closed.chmod(0o700)
    assert first_closed_folder(state, uid, ()) == (above or closed)
    assert first_closed_folder(state, os.geteuid(), (os.getegid(),)) is None


def test_node_folder_is_traversable_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        NodeDisk.open(tmp_path / "nodes" / "m0", "m0").close()
    finally:
        os.umask(before)
    for place in (tmp_path / "nodes", tmp_path / "nodes" / "m0"):
        assert place.stat().st_mode & 0o777 == 0o711
    assert (tmp_path / "nodes" / "m0" / "runs").stat().st_mode & 0o777 == 0o700
