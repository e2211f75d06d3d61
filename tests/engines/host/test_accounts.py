"""Whom jobs run as, and who is turned away."""

import os

import pytest

from themis.engines.host.accounts import Account, Owners, account_of
from themis.errors import ConfigError, RefusedError


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.usefixtures("as_root")
def test_root_starts_only_jobs_of_owners_with_an_account() -> None:
    owners = Owners.mapped({"ann": "64001:64001", "bob": "64002:64009"})
    assert owners.account("ann") == Account("64001", 64001, 64001, (64001,))
    assert owners.account("bob") == Account("64002", 64002, 64009, (64009,))
    assert owners.separate
    with pytest.raises(RefusedError, match="eve: this node starts none of its jobs"):
        owners.account("eve")


@pytest.mark.usefixtures("as_root")
def test_two_owners_may_not_be_the_same_user() -> None:
    with pytest.raises(ConfigError, match="another user than that of ann"):
        Owners.mapped({"ann": "64001:64001", "bob": "64001:64002"})


@pytest.mark.usefixtures("as_user")
def test_a_node_without_root_serves_one_owner_as_itself() -> None:
    owners = Owners.single("ann")
    assert owners.account("ann") is None
    with pytest.raises(RefusedError, match="it serves ann only"):
        owners.account("bob")
    with pytest.raises(ConfigError, match="trust_tenants"):
        Owners.mapped({"ann": "64001:64001"})


@pytest.mark.usefixtures("as_root")
def test_root_runs_no_job_as_itself() -> None:
    with pytest.raises(ConfigError, match="map owners to accounts"):
        Owners.single("ann")


@pytest.mark.usefixtures("as_root")
def test_trusted_tenants_of_a_root_node_are_one_unprivileged_user() -> None:
    owners = Owners.trusting("64001:64001")
    assert owners.account("ann") == owners.account("bob") == account_of("64001:64001")
    assert not owners.separate


@pytest.mark.usefixtures("as_user")
def test_trusted_tenants_of_another_node_are_its_own_user() -> None:
    owners = Owners.trusting()
    assert owners.account("ann") is None
    assert not owners.separate


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("root", id="root by name"),
        pytest.param("0", id="root by number"),
        pytest.param("64001:0", id="the group of root"),
        pytest.param("no-such-user", id="nobody's name"),
        pytest.param("64001", id="a number without a group"),
        pytest.param("64001:no-such-group", id="a group that is not there"),
        pytest.param("", id="nothing"),
    ],
)
def test_an_account_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        account_of(text)


def test_a_user_of_the_machine_brings_its_groups_but_never_roots() -> None:
    account = account_of("nobody")
    assert account.name == "nobody"
    assert account.uid > 0
    assert account.gid in account.groups
    assert 0 not in account.groups
