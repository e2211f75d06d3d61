"""Sealed bids: a round as its viewer may see it.

    sheet = anonymised(record, identity, owners, before=the_round_before)
    sheet.own        # rows with names: of one's own apps, or for an admin of all
    sheet.others     # nameless rows: GPU counts and the change of rho

One function for the command line, JSON, the pages and the metrics, so that none tells more than
another. What is not known to be one's own is sealed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from themis.arbiter.record import AppLine, RoundRecord
from themis.live.access import Verb, require
from themis.live.credentials import Identity, Role
from themis.model import AppId, Bid, GpuId, OwnerId
from themis.policies.base import Allotment
from themis.records.questions import NOTICED


@dataclass(frozen=True, slots=True)
class OpenRow:
    """One app in a round with everything that is kept of it."""

    line: AppLine
    rho_change: float | None
    bid: Bid | None
    gpus: tuple[GpuId, ...]
    """What it was given."""
    won: int
    paid: int
    kept_fraction: float | None
    refused: str
    """Why its bid was not taken."""


@dataclass(frozen=True, slots=True)
class SealedRow:
    """One app of somebody else. Rows are sorted by what is in them, never by name."""

    held: int
    granted: int
    rho_change: float | None
    """Since the round before, to two digits."""


@dataclass(frozen=True, slots=True)
class RoundSheet:
    """A round for one viewer."""

    round: int
    opened: float
    settled: float
    trigger: str
    offered: int
    idle: int
    failed: str
    solver: str
    exact: bool | None
    own: tuple[OpenRow, ...]
    others: tuple[SealedRow, ...]


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
    earlier = {line.app: line.rho for line in before.apps} if before else {}
    mine = [line for line in record.apps if not sealed or _owns(identity, owners.get(line.app))]
    shown = {line.app for line in mine}
    others = [
        SealedRow(line.held, line.granted, _change(line, earlier))
        for line in record.apps
        if line.app not in shown
    ]
    certificate = record.notes.certificate
    bids, gpus = {bid.app: bid for bid in record.notes.bids}, _gpus(record.allotments)
    return RoundSheet(
        record.round,
        record.opened,
        record.settled,
        record.trigger,
        record.offered,
        len(record.idle),
        # The text of an error may name apps.
        "the round failed" if record.failed and sealed else record.failed,
        certificate.solver if certificate else "",
        certificate.exact if certificate else None,
        tuple(
            _open(record, line, _change(line, earlier), bids.get(line.app), gpus.get(line.app, ()))
            for line in mine
        ),
        tuple(sorted(others, key=_by_content)),
    )


def _owns(identity: Identity | None, owner: OwnerId | None) -> bool:
    if identity is None or identity.role not in {Role.TENANT, Role.VIEWER}:
        return False
    return owner == identity.subject


def _change(line: AppLine, earlier: Mapping[AppId, float | None]) -> float | None:
    then = earlier.get(line.app)
    return None if then is None or line.rho is None else round(line.rho - then, 2)


def _open(
    record: RoundRecord,
    line: AppLine,
    change: float | None,
    bid: Bid | None,
    gpus: Sequence[GpuId],
) -> OpenRow:
    notes = record.notes
    return OpenRow(
        line,
        change,
        bid,
        tuple(sorted(gpus)),
        len(notes.won.get(line.app, ())),
        len(notes.paid.get(line.app, ())),
        notes.kept_fractions.get(line.app),
        record.refused.get(line.app, ""),
    )


def _gpus(allotments: tuple[Allotment, ...]) -> Mapping[AppId, Sequence[GpuId]]:
    """What each app was given; gathered once, as a round may have thousands of both."""
    given: dict[AppId, list[GpuId]] = {}
    for item in allotments:
        given.setdefault(item.app, []).extend(item.gpus)
    return given


def _by_content(row: SealedRow) -> tuple[int, int, float]:
    return (-row.held, -row.granted, row.rho_change or 0.0)


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
    named = [other for other in others if not sealed or _owns(identity, other["owner"])]
    counts = {"later": later, "sooner": sooner, "same": len(mids) - later - sooner}
    return {**case, "others": counts if others else None, "named": named}
