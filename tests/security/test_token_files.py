"""Tokens in files: only their owner reads them, and nothing is written over."""

import os
import stat
from pathlib import Path

import pytest

from tests.support.memory_token_store import MemoryTokenStore
from themis.errors import ConfigError, MissingFileError
from themis.security.token_files import (
    ensure_admin,
    find_token,
    read_token,
    state_folder,
    token_places,
    write_secret,
)
from themis.security.tokens import (
    Role,
    Secret,
    TokenRow,
    all_credentials,
    check_token,
    revoke_token,
)

TOKEN = "themis_0123456789ab_" + "x" * 43


def written(path: Path, text: str = TOKEN, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_written_token_is_readable_and_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "new" / "admin.token"
    write_secret(path, Secret(TOKEN))
    assert read_token(path).reveal() == TOKEN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_secret_is_never_written_over_a_file(tmp_path: Path) -> None:
    path = written(tmp_path / "admin.token", "something dear")
    with pytest.raises(ConfigError, match="not taken yet"):
        write_secret(path, Secret(TOKEN))
    assert path.read_text() == "something dear"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_that_was_put_there_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "admin.token").symlink_to(target)
    with pytest.raises(ConfigError):
        write_secret(tmp_path / "admin.token", Secret(TOKEN))
    assert not target.exists()
    written(target)
    with pytest.raises(ConfigError):
        read_token(tmp_path / "admin.token")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_can_read_is_refused_with_what_to_do(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "t", mode=mode)
    with pytest.raises(ConfigError, match=f"got '{mode:04o}'.*chmod 600"):
        read_token(path)


@pytest.mark.parametrize(
    "text", ["", "hello", TOKEN + "x", TOKEN + "\n" + TOKEN, "x" * 10**5, "\0"]
)
def test_a_file_without_a_token_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="themis_<id>_<secret>") as caught:
        read_token(written(tmp_path / "t", text))
    assert TOKEN not in str(caught.value)


def test_non_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="regular file"):
        read_token(tmp_path / "pipe")
    with pytest.raises(ConfigError):
        read_token(tmp_path)
    with pytest.raises(MissingFileError):
        read_token(tmp_path / "gone")
    with pytest.raises(ConfigError):
        read_token(tmp_path / "a\0b")


def test_the_command_line_finds_a_users_own_token_first(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    admin = written(tmp_path / ".local/state/themis/admin.token", TOKEN)
    assert find_token(environ, root=False).reveal() == TOKEN
    own = TOKEN.replace("x", "y")
    written(tmp_path / ".config/themis/token", own)
    assert find_token(environ, root=False).reveal() == own
    named = {**environ, "THEMIS_TOKEN_FILE": str(admin)}
    assert find_token(named, root=False).reveal() == TOKEN


def test_a_token_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    written(tmp_path / ".config/themis/token")
    environ = {"HOME": str(tmp_path), "THEMIS_TOKEN_FILE": str(tmp_path / "gone")}
    with pytest.raises(ConfigError, match="THEMIS_TOKEN_FILE"):
        find_token(environ, root=False)


def test_without_a_token_all_places_are_named(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "c"), "XDG_STATE_HOME": str(tmp_path / "s")}
    with pytest.raises(ConfigError) as caught:
        find_token(environ, root=False)
    for place in token_places(environ, root=False):
        assert str(place) in str(caught.value)


def test_root_keeps_its_state_where_systems_do() -> None:
    assert state_folder({"HOME": "/x"}, root=True) == Path("/var/lib/themis")
    assert state_folder({"HOME": "/x"}, root=False) == Path("/x/.local/state/themis")


def test_first_start_writes_an_admin_token_and_later_starts_do_not(tmp_path: Path) -> None:
    token_store = MemoryTokenStore()
    path = ensure_admin(token_store, tmp_path, now=1.0)
    assert path is not None
    identity = check_token(token_store, read_token(path).reveal(), now=2.0)
    assert identity.role is Role.ADMIN
    assert ensure_admin(token_store, tmp_path, now=3.0) is None
    path.unlink()
    assert ensure_admin(token_store, tmp_path, now=3.0) is None
    assert len(all_credentials(token_store)) == 1


def test_when_the_last_admin_is_revoked_a_new_start_makes_another(tmp_path: Path) -> None:
    token_store = MemoryTokenStore()
    ensure_admin(token_store, tmp_path, now=1.0)
    revoke_token(token_store, all_credentials(token_store)[0].id, now=2.0)
    path = ensure_admin(token_store, tmp_path, now=3.0)
    assert path is not None
    assert check_token(token_store, read_token(path).reveal(), now=4.0).role is Role.ADMIN


def test_a_first_start_that_is_cut_off_can_be_repeated(tmp_path: Path) -> None:
    class Full(MemoryTokenStore):
        def write(self, key: str, row: TokenRow) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        ensure_admin(Full(), tmp_path, now=1.0)
    token_store = MemoryTokenStore()
    path = ensure_admin(token_store, tmp_path, now=2.0)
    assert path is not None
    assert check_token(token_store, read_token(path).reveal(), now=3.0).subject == "admin"
