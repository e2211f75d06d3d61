"""Commands that call a service: what they ask for, how they show it, how they end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from themis import client as client_module
from themis.errors import (
    DeniedError,
    LimitError,
    RefusedError,
    ThemisError,
    UnavailableError,
    UnknownAppError,
    UnknownCallerError,
)

Cli = Callable[..., Any]
TOKEN = "themis_0123456789ab_" + "s" * 43
EVIL = "\x1b[2J\x1b]0;owned\x07[red]n\u202eame[/red]:smile:\r\n"
LONG = "x" * 63

LINE = {"app": EVIL, "owner": LONG, "submitted": 10.0, "demand": 4, "held": 2,
        "reason": "NOT_IN_AUCTION"}  # fmt: skip
SEALED = {"app": "(another owner's)", "owner": "(another owner's)", "demand": 1, "held": 0}
GPUS = [
    {"index": 0, "gpu": 0, "state": "leased", "app": EVIL},
    {"index": 1, "gpu": 1, "state": "quarantined", "reason": EVIL},
]
ROW = {
    "line": {"app": EVIL, "held": 1, "demand": 4, "granted": 2, "reason": "PARTLY_SERVED",
             "rho": 1.23456, "rank": 1, "invited": True, "contradicted": False},
    "rho_change": 0.1, "bid": None, "gpus": [1, 2], "won": 3, "paid": 1, "kept_fraction": 0.6,
    "refused": EVIL,
}  # fmt: skip
SHEET = {
    "round": 7, "opened": 1.0, "settled": 2.5, "trigger": "beat", "offered": 4, "idle": 0,
    "failed": EVIL, "solver": "search", "exact": True, "own": [ROW, {**ROW, "refused": ""}],
    "others": [{"held": 1, "granted": 1, "rho_change": None}],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "apps": {"apps": [LINE, SEALED], "gpus": {"free": 1, "leased": 2}, "now": 100.0},
    "status": {
        **LINE, "owner": "vision", "weight": 1.0, "phase": 0, "phases": 3,
        "work_left_seconds": 7200.0,
        "suspended": ["HELD_BY_ADMIN"], "now": 100.0,
        "leases": [{"gpu": 1, "machine": EVIL, "token": 2**52, "end": 700.0}],
        "jobs": [{"job": EVIL, "iterations": 5.0, "target": 10.0}],
        "runs": [{"run": 1, "job": EVIL, "state": "running", "gpus": [1]}],
    },
    "nodes": {"now": 100.0, "nodes": [
        {"node": LONG, "rack": EVIL, "present": True, "heard": 99.0, "cordoned": False,
         "trouble": EVIL, "control": "cgroup", "version": "0.1.0", "trust_tenants": False,
         "storage": {"sharing": "trouble", "dir": EVIL, "trouble": EVIL}, "gpus": GPUS}]},
    "owners": {"owners": [{"owner": LONG, "quota": None, "weight": 2.5}]},
    "tokens": {"tokens": [
        {"id": "0123456789ab", "role": "tenant", "subject": LONG, "created": 1.0, "expires": 1e12,
         "revoked": None, "used": None, "note": EVIL},
        {"id": "ba9876543210", "role": "tenant", "subject": "old", "created": 1.0, "expires": 2.0,
         "revoked": None, "used": 1.0, "note": ""}]},
    "rounds": {"rounds": [SHEET], "before": 7},
    "round": SHEET,
    "audit": {"rows": [{"number": 123456, "at": 1.8e9, "who": f"admin/{LONG}/0123456789ab",
                        "verb": "token create", "target": EVIL, "outcome": "denied",
                        "detail": LONG}]},
    "whoami": {"role": "admin", "subject": EVIL},
    "about": {"version": "0.1.0", "epoch": 3},
    "reload": {"changed": ["session", EVIL]},
}  # fmt: skip

SHOWN = [
    ("ls",),
    ("status", "x"),
    ("nodes",),
    ("nodes", "ls"),
    ("quota",),
    ("weight",),
    ("token", "ls", "--all"),
    ("auction", "show"),
    ("auction", "show", "7"),
    ("audit",),
    ("whoami",),
    ("config", "reload"),
]
CHANGES = [
    (("hold", "x"), ("hold", ("x",))),
    (("release", "x"), ("release", ("x",))),
    (("pause", "x"), ("pause", ("x",))),
    (("resume", "x"), ("resume", ("x",))),
    (("cancel", "x"), ("cancel", ("x",))),
    (("quota", "v", "3"), ("quota", ("v", 3))),
    (("quota", "v", "none"), ("quota", ("v", None))),
    (("weight", "v", "2.5"), ("weight", ("v", 2.5))),
    (("nodes", "drain", "m"), ("drain", ("m",))),
    (("nodes", "cordon", "m"), ("cordon", ("m",))),
    (("nodes", "uncordon", "m"), ("uncordon", ("m",))),
    (("nodes", "remove", "m"), ("remove_node", ("m",))),
    (("nodes", "restore", "m", "2"), ("restore_gpu", ("m", 2))),
]


class Fake:
    """A client that answers as told, and notes what it was asked."""

    made: tuple[Any, ...] = ()
    asked: ClassVar[list[tuple[str, tuple[Any, ...]]]]
    error: Exception | None = None
    server = "http://127.0.0.1:7421"

    def __init__(self, *given: Any) -> None:
        type(self).made = given

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if self.error is not None:
                raise self.error
            self.asked.append((name, args))
            if name == "create_token":
                row = ANSWERS["tokens"]["tokens"][0]
                return {**row, "note": named["note"], "token": TOKEN}
            if name == "revoke_token":
                return ANSWERS["tokens"]["tokens"][0]
            if name == "login_link":
                return f"{self.server}/login/{args}"
            return ANSWERS.get(name, {"done": True})

        return call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Fake]:
    """A service that is not there; a token that is."""

    class Own(Fake):
        asked: ClassVar[list[tuple[str, tuple[Any, ...]]]] = []

    for name in ("THEMIS_SERVER", "THEMIS_CA", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("THEMIS_TOKEN_FILE", str(_written(tmp_path / "token")))
    monkeypatch.setattr(client_module, "Client", Own)
    return Own


def _written(path: Path) -> Path:
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_tables_fit_and_nothing_in_them_steers_the_terminal(
    cli: Cli, fake: type[Fake], words: tuple[str, ...]
) -> None:
    done = cli(*words)
    assert done.code == 0, done.err
    assert all(char.isprintable() or char == "\n" for char in done.out)
    tables = words[0] not in {"whoami", "config"}
    if tables:
        lines = [line for line in done.out.splitlines() if "[red]" not in line]
        assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_json_output_is_the_answer_of_the_service(
    cli: Cli, fake: type[Fake], words: tuple[str, ...]
) -> None:
    done = cli(*words, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    name, _ = fake.asked[0]
    expected = ANSWERS[name]
    assert told == expected if words[0] != "whoami" else expected.items() <= told.items()
    assert "\x1b" not in done.out


@pytest.mark.parametrize(("words", "asked"), CHANGES, ids=lambda item: " ".join(map(str, item)))
def test_change_is_requested_and_confirmed(
    cli: Cli, fake: type[Fake], words: tuple[str, ...], asked: tuple[str, tuple[Any, ...]]
) -> None:
    done = cli(*words)
    assert (done.code, fake.asked) == (0, [asked]), done.err
    assert done.out.count("\n") == 1
    assert json.loads(cli(*words, "--json").out)


@pytest.mark.parametrize(
    ("error", "code", "advice"),
    [
        (UnknownAppError("x", "there is no such app, or it has ended"), 3, ""),
        (UnavailableError("http://h: nobody listens there"), 4, ""),
        (DeniedError("tenant v", "`hold` is for admin"), 5, ""),
        (UnknownCallerError("tenant v", "this token has expired"), 5, "themis token create"),
        (RefusedError("x", "it has ended"), 2, ""),
        (LimitError("caller", "too many calls", 1.0), 1, ""),
        (ThemisError("the service failed"), 1, ""),
    ],
    ids=lambda item: type(item).__name__ if isinstance(item, Exception) else "",
)
def test_errors_are_one_sentence_with_their_exit_code(
    cli: Cli, fake: type[Fake], error: Exception, code: int, advice: str
) -> None:
    fake.error = error
    for words in (("hold", "x"), ("ls", "--json"), ("nodes",)):
        done = cli(*words)
        assert (done.code, done.out) == (code, "")
        assert done.err.count("\n") == 1
        assert str(error) in done.err
        assert advice in done.err


def test_service_comes_from_flag_or_environment_and_token_from_a_file(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cli("ls")
    assert list(fake.made) == ["http://127.0.0.1:7421", TOKEN, None]
    monkeypatch.setenv("THEMIS_SERVER", "https://themis.lab:7421")
    monkeypatch.setenv("THEMIS_CA", str(tmp_path / "ca.pem"))
    cli("nodes")
    assert list(fake.made) == ["https://themis.lab:7421", TOKEN, tmp_path / "ca.pem"]
    cli("nodes", "ls", "--server", "https://other:1")
    assert fake.made[0] == "https://other:1"


def test_without_a_token_its_place_is_explained(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.chmod(0o644)
    done = cli("ls")
    assert (done.code, "chmod 600" in done.err) == (5, True)
    file.chmod(0o600)
    file.write_text("something else")
    assert cli("ls").code == 5
    file.unlink()
    assert cli("ls").code == 5  # the variable names a file that is not there
    monkeypatch.delenv("THEMIS_TOKEN_FILE")
    monkeypatch.setattr("themis.security.token_files.STATE", tmp_path / "state")
    done = cli("ls")
    assert (done.code, done.err.count("\n")) == (5, 1)
    assert str(tmp_path / ".config" / "themis" / "token") in done.err
    assert fake.asked == []


def test_new_token_is_printed_once_or_written_to_its_file(
    cli: Cli, fake: type[Fake], tmp_path: Path
) -> None:
    flags = ("token", "create", "--role", "tenant", "--subject", "v")
    assert cli(*flags).out == f"{TOKEN}\n"
    assert json.loads(cli(*flags, "--json").out)["token"] == TOKEN
    file = tmp_path / "new.token"
    done = cli(*flags, "--out", file, "--json")
    assert TOKEN not in done.out + done.err
    assert (file.read_text().strip(), file.stat().st_mode & 0o777) == (TOKEN, 0o600)
    fake.asked.clear()
    assert cli(*flags, "--out", file).code == 2  # before anything was asked for
    assert fake.asked == []


def test_a_token_that_could_not_be_written_is_ended(
    cli: Cli, fake: type[Fake], tmp_path: Path
) -> None:
    flags = ("token", "create", "--role", "tenant", "--subject", "v")
    _written(tmp_path / "file")
    done = cli(*flags, "--out", tmp_path / "file" / "new.token")
    assert done.code == 2
    assert fake.asked[-1] == ("revoke_token", ("0123456789ab",))


def test_a_whole_token_in_place_of_its_id_stays_here(cli: Cli, fake: type[Fake]) -> None:
    done = cli("token", "revoke", TOKEN)
    assert done.code == 0
    assert fake.asked == [("revoke_token", ("0123456789ab",))]
    assert TOKEN not in done.out + done.err


def test_expired_tokens_are_listed_on_request(cli: Cli, fake: type[Fake]) -> None:
    assert "ba9876543210" not in cli("token", "ls").out
    shown = cli("token", "ls", "--all").out
    assert "ba9876543210" in shown
    assert "expired" in shown


def test_rounds_are_paged_with_a_hint_for_earlier_ones(cli: Cli, fake: type[Fake]) -> None:
    assert cli("auction", "show").out.endswith("themis auction show --before 7\n")
    cli("auction", "show", "--before", "7", "--limit", "3")
    assert fake.asked == [("rounds", (None, 50)), ("rounds", (7, 3))]


def test_help_of_the_service_comes_in_groups(cli: Cli) -> None:
    text = cli("serve", "--help").out
    headings = [line for line in text.splitlines() if line.endswith(":") and line[:1].strip()]
    assert headings[0] == "Options:"
    assert headings[1] == "The service:"
    assert len(headings) == 8
    assert "--tls-cert" in text
    # A command about the store has flags for the store.
    assert "--tls-cert" not in cli("backup", "--help").out
    assert "--store" in cli("restore", "--help").out


def test_operator_notes_of_a_machine_are_printed_below(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"rack": "r0", "present": True, "heard": 99.0, "cordoned": False, "gpus": []}
    lines = [
        {**plain, "node": "m0", "control": "tree", "version": "0.9.1", "trust_tenants": True,
         "trouble": "", "storage": {"sharing": "apart"}},
        {**plain, "node": "m1", "present": False, "trouble": "it is back as 8 x v100",
         "storage": {"sharing": "trouble", "trouble": "Stale file handle"}},
        {**plain, "node": "m2", "storage": {"sharing": "shared"}},
    ]  # fmt: skip
    monkeypatch.setitem(ANSWERS, "nodes", {"now": 100.0, "nodes": lines})
    out = cli("nodes").out
    for words in (
        "tree", "0.9.1", "m0: jobs of all owners run as one user", "m0: shared_dir is not",
        "other shape", "m1: it is back as 8", "m1: shared_dir cannot be used: Stale",
    ):  # fmt: skip
        assert words in out
    assert "m2:" not in out


def test_why_there_are_no_machines_stands_below(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"now": 100.0, "nodes": [], "trouble": "Ray cannot be reached: \x1b[2Jnobody"}
    monkeypatch.setitem(ANSWERS, "nodes", answer)
    out = cli("nodes").out
    assert "engine: Ray cannot be reached" in out
    assert "\x1b" not in out
    assert json.loads(cli("nodes", "--json").out)["trouble"] == answer["trouble"]
    monkeypatch.setitem(ANSWERS, "nodes", {**answer, "trouble": ""})
    assert "engine" not in cli("nodes").out


def test_cordoned_and_drained_machines_are_distinguished(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"rack": "r0", "present": True, "heard": 99.0, "cordoned": True}
    leased = [{"index": 0, "gpu": 0, "state": "leased"}]
    lines = [
        {**plain, "node": "m0", "draining": False, "gpus": leased},
        {**plain, "node": "m1", "draining": True, "gpus": leased},
        {**plain, "node": "m2", "draining": True, "gpus": []},
        {**plain, "node": "m3", "present": False, "draining": True, "gpus": []},
    ]
    monkeypatch.setitem(ANSWERS, "nodes", {"now": 100.0, "nodes": lines})
    rows = [line.split() for line in cli("nodes").out.splitlines()]
    states = {row[0]: row[2] for row in rows if row and row[0].startswith("m")}
    assert states == {"m0": "cordoned", "m1": "draining", "m2": "drained", "m3": "silent"}


@pytest.mark.parametrize(
    ("verb", "answer", "told", "code"),
    [
        ("resume", {"changed": True, "suspended": []}, "x is paused no more", 0),
        ("resume", {"changed": False, "suspended": []}, "x was not paused", 0),
        ("resume", {"changed": False, "suspended": ["HELD_BY_ADMIN"]}, "not paused; an opera", 1),
        ("release", {"changed": True, "suspended": ["PAUSED_BY_USER"]}, "no more; it is paused", 1),
    ],
)
def test_stopping_an_app_lists_its_remaining_blockers(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch, verb: str, answer: Any,
    told: str, code: int,
) -> None:  # fmt: skip
    monkeypatch.setitem(ANSWERS, verb, {"done": True, **answer})
    done = cli(verb, "x")
    assert (done.code, told in done.out) == (code, True), done.out
    assert cli(verb, "x", "--json").code == code


def test_quotas_and_weights_are_numbers(cli: Cli, fake: type[Fake]) -> None:
    assert cli("quota", LONG).code == 0
    done = cli("quota", LONG, "many")
    assert (done.code, "allowed: a number of GPUs, or none" in done.err) == (2, True)
    assert cli("weight", LONG, "much").code == 2


def test_admin_sees_settings_of_every_owner_and_others_do_not(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "owners", {"owners": []})
    for role, code in (("admin", 0), ("tenant", 3)):
        monkeypatch.setitem(ANSWERS, "whoami", {"role": role, "subject": "v"})
        for verb in ("quota", "weight"):
            assert cli(verb, "vision").code == code
    monkeypatch.setitem(ANSWERS, "whoami", {"role": "admin", "subject": "v"})
    told = {"owner": "vision", "quota": None, "weight": None}
    assert json.loads(cli("quota", "vision", "--json").out) == {"owners": [told]}


def test_healthy_gpu_is_not_reported_as_restored(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    for changed, told in ((True, "is used again"), (False, "was not in quarantine")):
        monkeypatch.setitem(ANSWERS, "restore_gpu", {"done": True, "changed": changed})
        assert told in cli("nodes", "restore", "m", "2").out


def test_ended_apps_are_listed_on_demand(
    cli: Cli, fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = {"app": "old", "owner": "v", "submitted": 10.0, "ended": 70.0, "rho": 1.5,
            "outcome": "failed: no data"}  # fmt: skip
    answer = {**ANSWERS["apps"], "apps": [], "ended": [over], "left_out": 3}
    monkeypatch.setitem(ANSWERS, "apps", answer)
    done = cli("ls", "--all")
    assert "30 s ago: failed: no data" in done.out
    over["outcome"] = "failed: job 0: no such file: " + "data/" * 30
    assert "old  v         -  1.50   90 s  30 s ago: failed: job 0" in cli("ls", "--all").out
    assert "3 that ended earlier are left out" in done.err
