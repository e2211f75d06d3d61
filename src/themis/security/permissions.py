"""Permissions: one table of verb x role x (own | of others).

    decide(identity, Verb.CANCEL, owner="vision").allowed
    require(identity, Verb.CANCEL, owner="vision")        # or DeniedError

Every route and RPC names its verb, and a verb without a row fails the import. `own` means that the
subject of the credential is the owner of the app (or the name of the node) that the call is about.
What has no owner, or does not exist, counts as of others: so a caller cannot tell an app that does
not exist from one of another owner.
"""

from dataclasses import dataclass
from enum import StrEnum

from themis.errors import DeniedError, UnknownCallerError
from themis.security.tokens import Credential, Identity, Role


class Access(StrEnum):
    """One cell of the table."""

    ALLOW = "allow"
    DENY = "deny"
    ANONYMOUS = "anonymous"
    """Allowed, with the names of others left out and their bids sealed."""


class Verb(StrEnum):
    """Everything that callers can ask of the service."""

    # For people with sweeps.
    SUBMIT = "submit"
    LIST = "ls"
    STATUS = "status"
    EXPLAIN = "explain"
    LOGS = "logs"
    RESULTS = "results"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    WHATIF = "whatif"
    # For operators.
    NODES = "nodes"
    DRAIN = "nodes drain"
    CORDON = "nodes cordon"
    UNCORDON = "nodes uncordon"
    REMOVE_NODE = "nodes remove"
    """Stop showing a machine that is gone for good."""
    RESTORE_GPU = "nodes restore"
    """Take a GPU out of quarantine."""
    HOLD = "hold"
    RELEASE = "release"
    QUOTA_SHOW = "quota"
    QUOTA_SET = "quota set"
    WEIGHT_SET = "weight set"
    TOKEN_CREATE = "token create"
    TOKEN_LIST = "token ls"
    TOKEN_REVOKE = "token revoke"
    AUCTION_SHOW = "auction show"
    SNAPSHOT = "snapshot"
    CONFIG_SHOW = "config show"
    CONFIG_RELOAD = "config reload"
    AUDIT = "audit"
    # For browsers and monitoring.
    DASHBOARD = "dashboard"
    """Pages, and the stream of what changes."""
    LOGIN = "login"
    """A login link for oneself, from a token."""
    LOGOUT = "logout"
    WHOAMI = "whoami"
    METRICS = "metrics"
    HEALTH = "health"
    """Whether the service is alive and ready, and nothing else."""
    ABOUT = "about"
    """Version, OpenAPI, files of the pages."""
    # For machines.
    NODE_REPORT = "node report"
    # For agents, about their own apps.
    AGENT_POLL = "agent poll"
    AGENT_BID = "agent bid"
    AGENT_JOBS = "agent jobs"
    """Start and stop jobs on leased GPUs."""
    AGENT_GIVE_BACK = "agent release"
    AGENT_PHASE = "agent phase"
    """Announce a phase, revise or add work."""
    AGENT_FINISH = "agent finish"


@dataclass(frozen=True, slots=True)
class Decision:
    """A cell of the table, and why."""

    access: Access
    reason: str = ""

    @property
    def allowed(self) -> bool:
        """Whether the call goes on, perhaps with names left out."""
        return self.access is not Access.DENY

    @property
    def anonymous(self) -> bool:
        """Whether the answer leaves out the names of others."""
        return self.access is Access.ANONYMOUS


_CELLS = {"+": Access.ALLOW, "-": Access.DENY, "?": Access.ANONYMOUS}
_COLUMNS = (None, Role.VIEWER, Role.TENANT, Role.NODE, Role.ADMIN)

# Two signs for each role, own and of others: + allowed, ? with others anonymous, - denied.
# `nobody` is a caller without a credential. Admins neither bid nor report: only an agent speaks for
# its owner's apps, and only a node for its machine.
_ROWS = """
                  nobody viewer tenant node  admin
submit              --     --     +-     --    ++
ls                  --     +?     +?     --    ++
status              --     +-     +-     --    ++
explain             --     +-     +-     --    ++
logs                --     +-     +-     --    ++
results             --     +-     +-     --    ++
pause               --     --     +-     --    ++
resume              --     --     +-     --    ++
cancel              --     --     +-     --    ++
retry               --     --     +-     --    ++
whatif              --     --     ??     --    ++
nodes               --     ??     ??     +-    ++
nodes drain         --     --     --     --    ++
nodes cordon        --     --     --     --    ++
nodes uncordon      --     --     --     --    ++
nodes remove        --     --     --     --    ++
nodes restore       --     --     --     --    ++
hold                --     --     --     --    ++
release             --     --     --     --    ++
quota               --     +-     +-     --    ++
quota set           --     --     --     --    ++
weight set          --     --     --     --    ++
token create        --     --     --     --    ++
token ls            --     --     +-     --    ++
token revoke        --     --     +-     --    ++
auction show        --     ??     ??     --    ++
snapshot            --     --     --     --    ++
config show         --     --     --     --    ++
config reload       --     --     --     --    ++
audit               --     --     --     --    ++
dashboard           --     ??     ??     --    ++
login               --     +-     +-     --    +-
logout              --     +-     +-     --    +-
whoami              --     +-     +-     +-    +-
metrics             --     ??     ??     --    ++
health              ++     ++     ++     ++    ++
about               ++     ++     ++     ++    ++
node report         --     --     --     +-    --
agent poll          --     --     +-     --    --
agent bid           --     --     +-     --    --
agent jobs          --     --     +-     --    --
agent release       --     --     +-     --    --
agent phase         --     --     +-     --    --
agent finish        --     --     +-     --    --
"""

Cell = tuple[Verb, Role | None, bool]
"""A verb, a role (None: no credential), and whether the object is the caller's own."""


def _read(rows: str) -> dict[Cell, Access]:
    table: dict[Cell, Access] = {}
    for line in rows.strip().splitlines()[1:]:
        *words, nobody, viewer, tenant, node, admin = line.split()
        verb = Verb(" ".join(words))
        for role, signs in zip(_COLUMNS, (nobody, viewer, tenant, node, admin), strict=True):
            table[verb, role, True] = _CELLS[signs[0]]
            table[verb, role, False] = _CELLS[signs[1]]
    missing = [verb.value for verb in Verb if (verb, None, True) not in table]
    if missing:
        raise LookupError(f"verbs without a row: {', '.join(missing)}")
    return table


TABLE = _read(_ROWS)
"""Every cell: (verb, role, own) -> access."""


def decide(identity: Identity | None, verb: Verb, owner: str | None = None) -> Decision:
    """What the table says.

    Args:
        identity: The caller; None without a credential.
        verb: What the caller asks for.
        owner: The owner of the app, or the name of the node, that it is about; None if it has no
            owner or does not exist.
    """
    if identity is None:
        access = TABLE[verb, None, False]
        reason = f"`{verb}` needs a token" if access is Access.DENY else ""
        return Decision(access, reason)
    own = owner is not None and owner == identity.subject
    access = TABLE[verb, identity.role, own]
    return Decision(access, _reason(identity, verb) if access is Access.DENY else "")


def require(identity: Identity | None, verb: Verb, owner: str | None = None) -> Decision:
    """The decision, unless it is a denial.

    Raises:
        UnknownCallerError: There is no identity, and one is needed.
        DeniedError: This identity may not.
    """
    decision = decide(identity, verb, owner)
    if decision.allowed:
        return decision
    if identity is None:
        raise UnknownCallerError("caller", decision.reason)
    raise DeniedError(f"{identity.role} {identity.subject}", decision.reason)


def token_owner(credential: Credential) -> str | None:
    """The owner of a token, for `decide`; None for tokens of nodes and admins.

    A tenant with the name of a node or an admin has no claim to the token of that.
    """
    return credential.subject if credential.role in {Role.TENANT, Role.VIEWER} else None


def _reason(identity: Identity, verb: Verb) -> str:
    if TABLE[verb, identity.role, True] is Access.DENY:
        able = [str(role) for role in Role if TABLE[verb, role, True] is not Access.DENY]
        return f"`{verb}` is for {' and '.join(able)}, not for {identity.role}"
    what = "its own node" if identity.role is Role.NODE else "what is its own"
    return f"`{verb}` is allowed to {identity.role} for {what} only"
