"""Changes while the service runs: what may, what may not, and never half of them."""

import pytest

from themis.config.keys import KEYS
from themis.config.loader import Loaded, load
from themis.config.reload import plan_reload

BASE = {"http": "127.0.0.1:1", "set": ["lease=10m", "f=0.8"], "accounts": ["vision=2001"]}
LIVE = {"hosts", "set", "accounts", "session", "log_level"}
"""Besides whole sections."""


def with_flags(**flags: object) -> Loaded:
    changed = {key.replace("__", "."): value for key, value in flags.items()}
    return load(environ={"HOME": "/h"}, flags={**BASE, **changed})


RUNNING = with_flags()


def test_nothing_changed_is_nothing_to_do() -> None:
    assert plan_reload(RUNNING, with_flags()).changes == ()
    assert plan_reload(RUNNING, with_flags()).refused == ()


def test_settings_limits_and_users_change_while_it_runs() -> None:
    wanted = with_flags(
        set=["lease=5m", "f=0.8"], limits__rows="100", accounts=["ads=2002"], log_level="debug"
    )
    plan = plan_reload(RUNNING, wanted)
    assert plan.refused == ()
    changed = {item.key: (str(item.before), str(item.after)) for item in plan.changes}
    assert changed == {
        "set.lease": ("10m", "5m"),
        "accounts.vision": ("2001", "None"),
        "accounts.ads": ("None", "2002"),
        "log_level": ("info", "debug"),
        "limits.rows": ("4096", "100"),
    }


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
def test_what_needs_a_restart_is_refused_and_nothing_else_changes(flags: dict[str, object]) -> None:
    plan = plan_reload(RUNNING, with_flags(**flags, log_level="debug"))
    assert plan.changes == ()
    assert plan.refused
    for error in plan.refused:
        assert "restart it for this (training goes on)" in str(error)


def test_a_refusal_says_what_holds_and_where_the_other_value_came_from() -> None:
    (error,) = plan_reload(RUNNING, with_flags(http="127.0.0.1:2")).refused
    told = str(error)
    assert told.startswith("--http: http: got '127.0.0.1:2', allowed: 127.0.0.1:1 while")


def test_a_password_is_not_told_in_a_refusal(tmp_path: object) -> None:
    environ = {"HOME": "/h", "THEMIS_STORE": "postgresql://u:hunter2@db/x"}
    plan = plan_reload(RUNNING, load(environ=environ, flags=BASE))
    assert plan.refused
    assert "hunter2" not in repr(plan.refused)


def test_which_keys_may_change_is_as_written_here() -> None:
    live = {name for name, key in KEYS.items() if key.reload}
    sections = {name for name in KEYS if name.startswith(("limits.", "retention."))}
    assert live == LIVE | sections
