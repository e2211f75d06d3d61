"""The accounts that jobs run as.

Owners.mapped({"ann": "ann", "bob": "1002:1002"})     # a node that runs as root
Owners.single("ann")                                  # one that does not: it serves one owner
Owners.trusting("nobody")                             # all owners alike: they trust each other
"""

import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field

from themis.core.model.ids import check_name
from themis.errors import ConfigError, RefusedError


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the machine."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = ""
    """Empty if there is none."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The account of each owner; an owner without one is refused."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    everybody: Account | None = None
    """All owners' account, where tenants are trusted and the node runs as root."""
    only: str = ""
    """The owner that a node without root serves."""
    trust_tenants: bool = False

    @staticmethod
    def mapped(accounts: Mapping[str, str]) -> "Owners":
        """Each owner a user of its own; needs root.

        Raises:
            ConfigError: Not root, or an account that cannot be.
        """
        if os.geteuid() != 0:
            raise ConfigError("accounts", "a node without root", "one owner, or trust_tenants")
        found = {check_name("owner", owner): account_of(text) for owner, text in accounts.items()}
        _check_distinct(found)
        return Owners(accounts=found)

    @staticmethod
    def single(owner: str) -> "Owners":
        """One owner, whose jobs run as the node's own user, which must not be root.

        Raises:
            ConfigError: The node is root.
        """
        if os.geteuid() == 0:
            raise ConfigError("owner", owner, "a node without root; map owners to accounts instead")
        return Owners(only=check_name("owner", owner))

    @staticmethod
    def trusting(account: str = "nobody") -> "Owners":
        """All owners as one unprivileged user: the named one for root, else the node's own."""
        everybody = account_of(account) if os.geteuid() == 0 else None
        return Owners(everybody=everybody, trust_tenants=True)

    @property
    def separate(self) -> bool:
        """Whether one owner's jobs are safe from another's."""
        return not self.trust_tenants

    def account(self, owner: str) -> Account | None:
        """The account of this owner's jobs; None for the node's own user.

        Raises:
            RefusedError: The owner has no account here.
        """
        if self.trust_tenants:
            return self.everybody
        if owner in self.accounts:
            return self.accounts[owner]
        if self.only and owner == self.only:
            return None
        here = f"it serves {self.only} only" if self.only else "it has no account here"
        raise RefusedError(owner, f"this node starts none of its jobs: {here}")


def account_of(text: str) -> Account:
    """An account from `name`, `uid` or `uid:gid`.

    Raises:
        ConfigError: There is none, or it is root.
    """
    user, _, group = text.partition(":")
    try:
        known = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        known = None
    if known is None and not (user.isdigit() and group.isdigit()):
        raise ConfigError("account", text, "a user of this machine, or uid:gid")
    name = known.pw_name if known else user
    uid = known.pw_uid if known else int(user)
    gid = _group(group, text) if group else (known.pw_gid if known else uid)
    if uid == 0 or gid == 0:
        raise ConfigError("account", text, "not root: jobs could do anything")
    groups = os.getgrouplist(name, gid) if known else [gid]
    home = known.pw_dir if known and os.path.isdir(known.pw_dir) else ""
    return Account(name, uid, gid, tuple(sorted({*groups, gid} - {0})), home)


def _group(group: str, text: str) -> int:
    try:
        return int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError("account", text, "a group of this machine") from None


def _check_distinct(accounts: Mapping[str, Account]) -> None:
    owners: dict[int, str] = {}
    for owner, account in accounts.items():
        other = owners.setdefault(account.uid, owner)
        if other != owner:
            raise ConfigError(
                f"account of {owner}",
                account.name,
                f"another user than that of {other}, or trust_tenants for all",
            )
