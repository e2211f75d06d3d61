"""The table of access: every cell, written down a second time in other words."""

import pytest

from themis.errors import DeniedError, UnknownCallerError
from themis.security.permissions import TABLE, Access, Verb, decide, require, token_owner
from themis.security.tokens import Credential, Identity, Role

# Grouped by who may, so that a slip in the table and one here would have to agree.
EVERYBODY = {Verb.HEALTH, Verb.ABOUT}
ADMIN_ONLY = {
    Verb.DRAIN, Verb.CORDON, Verb.UNCORDON, Verb.RESTORE_GPU, Verb.REMOVE_NODE, Verb.HOLD,
    Verb.RELEASE,
    Verb.QUOTA_SET, Verb.WEIGHT_SET, Verb.TOKEN_CREATE, Verb.SNAPSHOT,
    Verb.CONFIG_SHOW, Verb.CONFIG_RELOAD, Verb.AUDIT,
}  # fmt: skip
OWN_TO_READ = {
    Verb.STATUS, Verb.EXPLAIN, Verb.LOGS, Verb.RESULTS, Verb.QUOTA_SHOW,

}  # fmt: skip
OWN_TO_CHANGE = {
    Verb.SUBMIT, Verb.PAUSE, Verb.RESUME, Verb.CANCEL, Verb.RETRY, Verb.TOKEN_LIST,
    Verb.TOKEN_REVOKE,
}  # fmt: skip
AGENTS = {
    Verb.AGENT_POLL, Verb.AGENT_BID, Verb.AGENT_JOBS, Verb.AGENT_GIVE_BACK, Verb.AGENT_PHASE,
    Verb.AGENT_FINISH,
}  # fmt: skip
NODES = {Verb.NODE_REPORT}
LISTS = {Verb.LIST}
"""Of one's own with names, of all with others anonymous."""
SEALED = {Verb.AUCTION_SHOW, Verb.DASHBOARD, Verb.METRICS, Verb.NODES}
ONESELF = {Verb.LOGIN, Verb.LOGOUT, Verb.WHOAMI}
REST = {Verb.WHATIF}

GROUPS = (
    EVERYBODY, ADMIN_ONLY, OWN_TO_READ, OWN_TO_CHANGE, AGENTS, NODES, LISTS, SEALED, ONESELF, REST,
)  # fmt: skip
ROLES = (None, *Role)
CELLS = [(verb, role, own) for verb in Verb for role in ROLES for own in (True, False)]


def expected(verb: Verb, role: Role | None, own: bool) -> Access:
    if verb in EVERYBODY:
        return Access.ALLOW
    if role is None:
        return Access.DENY
    if verb in NODES:
        return Access.ALLOW if role is Role.NODE and own else Access.DENY
    if verb in AGENTS:
        return Access.ALLOW if role is Role.TENANT and own else Access.DENY
    if verb in ONESELF:
        may = own and (role is not Role.NODE or verb is Verb.WHOAMI)
        return Access.ALLOW if may else Access.DENY
    if role is Role.ADMIN:
        return Access.ALLOW
    if role is Role.NODE:
        return Access.ALLOW if verb is Verb.NODES and own else Access.DENY
    if verb in SEALED:
        return Access.ANONYMOUS
    if verb in LISTS:
        return Access.ALLOW if own else Access.ANONYMOUS
    if verb in OWN_TO_READ:
        return Access.ALLOW if own else Access.DENY
    if role is Role.VIEWER:
        return Access.DENY
    if verb is Verb.WHATIF:
        return Access.ANONYMOUS
    return Access.ALLOW if own and verb in OWN_TO_CHANGE else Access.DENY


def identity(role: Role | None) -> Identity | None:
    return None if role is None else Identity(role, "me", "0" * 12)


def test_every_verb_is_in_one_group() -> None:
    listed = [verb for group in GROUPS for verb in group]
    assert sorted(listed) == sorted(Verb)


def test_every_cell_is_in_the_table_and_nothing_else() -> None:
    assert set(TABLE) == set(CELLS)


@pytest.mark.parametrize("verb", Verb)
def test_every_permission_cell_matches_the_specification(verb: Verb) -> None:
    for role in ROLES:
        for own in (True, False):
            owner = "me" if own else "you"
            found = decide(identity(role), verb, owner).access
            # Without a credential nothing is one's own.
            assert found is expected(verb, role, own and role is not None), (role, own)


@pytest.mark.parametrize("verb", Verb)
def test_unowned_objects_count_as_foreign(verb: Verb) -> None:
    for role in ROLES:
        assert decide(identity(role), verb, None) == decide(identity(role), verb, "you")


def test_a_denial_has_a_reason_and_the_right_error() -> None:
    for verb, role, own in CELLS:
        who = identity(role)
        owner = "me" if own else "you"
        decision = decide(who, verb, owner)
        assert bool(decision.reason) is not decision.allowed
        if decision.allowed:
            assert require(who, verb, owner) == decision
        else:
            kind = UnknownCallerError if who is None else DeniedError
            with pytest.raises(kind, match=f"`{verb}`"):
                require(who, verb, owner)


def test_a_node_speaks_for_itself_only() -> None:
    node = Identity(Role.NODE, "gpu-07", "0" * 12)
    require(node, Verb.NODE_REPORT, "gpu-07")
    with pytest.raises(DeniedError, match="its own node only"):
        require(node, Verb.NODE_REPORT, "gpu-08")
    with pytest.raises(DeniedError):
        require(node, Verb.NODE_REPORT, None)


def test_no_caller_bids_for_another_not_even_an_admin() -> None:
    with pytest.raises(DeniedError, match="is for tenant, not for admin"):
        require(identity(Role.ADMIN), Verb.AGENT_BID, "vision")
    with pytest.raises(DeniedError):
        require(identity(Role.TENANT), Verb.AGENT_BID, "vision")


def test_empty_owner_matches_no_caller() -> None:
    strange = Identity(Role.TENANT, "", "0" * 12)
    assert not decide(strange, Verb.CANCEL, None).allowed


@pytest.mark.parametrize("role", Role)
def test_tenant_named_like_a_node_or_admin_cannot_revoke_their_tokens(role: Role) -> None:
    token = Credential("0" * 12, role, "me", "", 0.0)
    may = decide(identity(Role.TENANT), Verb.TOKEN_REVOKE, token_owner(token)).allowed
    assert may is (role in {Role.TENANT, Role.VIEWER})
