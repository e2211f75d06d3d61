"""Sealed bids: a round as its viewer may see it.

    sheet = anonymised(record, identity, owners, before=the_round_before)
    sheet.own        # rows with names: of one's own apps, or for an admin of all
    sheet.others     # nameless rows: GPU counts and the change of rho

One function for the command line, JSON, the pages and the metrics, so that none tells more than
another. What is not known to be one's own is sealed.
"""

from collections.abc import Mapping
from typing import Any

from themis.core.arbiter.records import RoundRecord
from themis.core.model import AppId, OwnerId
from themis.dashboard.round_view import OpenRow, RoundSheet, SealedRow, sheet_of
from themis.recording.forecast_questions import NOTICED
from themis.security.permissions import Verb, require
from themis.security.tokens import Identity, Role

__all__ = ["OpenRow", "RoundSheet", "SealedRow", "anonymised", "owns"]


def anonymised(
    record: RoundRecord,
    identity: Identity | None,
    owners: Mapping[AppId, OwnerId],
    before: RoundRecord | None = None,
) -> RoundSheet:
    """The round as this identity may see it.

    Args:
        record: What is kept of the round.
        identity: Who looks.
        owners: Of all apps, as the service knows them.
        before: The round before, for the change of rho.

    Raises:
        DeniedError: It may not look at rounds at all.
    """
    sealed = require(identity, Verb.AUCTION_SHOW).anonymous
    if not sealed:
        return sheet_of(record, None, before)
    mine = {line.app for line in record.apps if owns(identity, owners.get(line.app))}
    return sheet_of(record, mine, before)


def owns(identity: Identity | None, owner: OwnerId | None) -> bool:
    """Whether what belongs to this owner is the viewer's own; nobody's is not."""
    if identity is None or identity.role not in {Role.TENANT, Role.VIEWER}:
        return False
    return owner is not None and owner == identity.subject


def sealed_forecast(
    answer: Mapping[str, Any], identity: Identity | None, *, sealed: bool
) -> dict[str, Any]:
    """A forecast as this identity may see it: others are counted, and named to admins alone.

    Args:
        answer: As the worker gave it; it may be empty.
        identity: Who asked.
        sealed: Whether others must be left nameless.
    """
    told = dict(answer)
    told["cases"] = [_sealed_case(case, identity, sealed) for case in answer.get("cases", ())]
    return told


def _sealed_case(
    case: Mapping[str, Any], identity: Identity | None, sealed: bool
) -> dict[str, Any]:
    others = case.get("others", ())
    mids = [float(other["later"]["mid"]) for other in others]
    later, sooner = sum(mid > NOTICED for mid in mids), sum(mid < -NOTICED for mid in mids)
    named = [other for other in others if not sealed or owns(identity, other["owner"])]
    counts = {"later": later, "sooner": sooner, "same": len(mids) - later - sooner}
    return {**case, "others": counts if others else None, "named": named}
