"""Changes while the service runs: what may, what may not, and never half of them."""

import pytest

from themis.config.keys import KEYS
from themis.config.loader import Loaded, load
from themis.config.reload import changed_keys
from themis.errors import ConfigError

BASE = {"http": "127.0.0.1:1", "set": ["lease=10m", "f=0.8"], "accounts": ["vision=2001"]}
LIVE = {"hosts", "set", "accounts", "session", "log_level"}
"""Besides whole sections."""


def with_flags(**flags: object) -> Loaded:
    changed = {key.replace("__", "."): value for key, value in flags.items()}
    return load(environ={"HOME": "/h"}, flags={**BASE, **changed})


RUNNING = with_flags()


def test_nothing_changed_is_nothing_to_do() -> None:
    assert changed_keys(RUNNING, with_flags()) == []


def test_settings_limits_and_users_change_while_it_runs() -> None:
    wanted = with_flags(
        set=["lease=5m", "f=0.8"], limits__rows="100", accounts=["ads=2002"], log_level="debug"
    )
    changed = {"set.lease", "accounts.vision", "accounts.ads", "log_level", "limits.rows"}
    assert set(changed_keys(RUNNING, wanted)) == changed


@pytest.mark.parametrize(
    "flags",
    [
        {"http": "127.0.0.1:2"},
        {"store": "sqlite:///other.db"},
        {"policy": "fifo", "set": ["lease=10m"]},
        {"set": ["lease=10m", "f=0.5"]},
        {"set": ["lease=10m"]},
        {"seed": "2"},
        {"tls__cert": "a", "tls__key": "b"},
        {"node_ttl": "30"},
    ],
)
def test_setting_that_needs_a_restart_is_refused_on_reload(flags: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"restart it for this \(training goes on\)"):
        changed_keys(RUNNING, with_flags(**flags, log_level="debug"))


def test_a_refusal_says_what_holds_and_where_the_other_value_came_from() -> None:
    with pytest.raises(ConfigError) as caught:
        changed_keys(RUNNING, with_flags(http="127.0.0.1:2"))
    told = str(caught.value)
    assert told.startswith("--http: http: got '127.0.0.1:2', allowed: 127.0.0.1:1 while")


def test_password_is_not_shown_in_a_refusal(tmp_path: object) -> None:
    environ = {"HOME": "/h", "THEMIS_STORE": "postgresql://u:hunter2@db/x"}
    with pytest.raises(ConfigError) as caught:
        changed_keys(RUNNING, load(environ=environ, flags=BASE))
    assert "hunter2" not in str(caught.value)


def test_which_keys_may_change_is_as_written_here() -> None:
    live = {name for name, key in KEYS.items() if key.reload}
    sections = {name for name in KEYS if name.startswith(("limits.", "retention."))}
    assert live == LIVE | sections
