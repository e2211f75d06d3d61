"""A round as people see it: some of its apps in full, the others without names.

view = view_of(record, frozenset({"mine"}), before=the_round_before)
view.own        # rows with names
view.others     # nameless rows: GPU counts and the change of rho

`themis.service.viewer` decides which names a viewer may see.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from themis.core.arbiter.records import AppInRound, RoundRecord
from themis.core.model import AppId, Bid, GpuId
from themis.core.policies.base import Allotment
from themis.dashboard.model import RoundLine


@dataclass(frozen=True, slots=True)
class OpenRow:
    """One app in a round, in full."""

    line: AppInRound
    rho_change: float | None
    bid: Bid | None
    gpus: tuple[GpuId, ...]
    """The GPUs that it was granted."""
    won: int
    paid: int
    kept_fraction: float | None
    refused: str
    """Why its bid was refused."""
    given_by: Mapping[str, int] = field(default_factory=dict)
    """How many GPUs came from each source: the auction, leftovers, ..."""


@dataclass(frozen=True, slots=True)
class SealedRow:
    """One app of another owner. Rows are sorted by their values, never by name."""

    held: int
    granted: int
    rho_change: float | None
    """Since the round before, to two decimals."""


@dataclass(frozen=True, slots=True)
class RoundView:
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
    invited: int = 0
    """How many apps were asked for bids."""
    value: float | None = None
    """The value of the auction, and an upper bound of it; only for viewers who see every bid."""
    bound: float | None = None


def view_of(
    record: RoundRecord, shown: Collection[str] | None, before: RoundRecord | None = None
) -> RoundView:
    """The round for one viewer.

    Args:
        record: The round.
        shown: The apps whose names and bids may be seen; None for all of them.
        before: The round before, for the change of rho.
    """
    earlier = {line.app: line.rho for line in before.apps} if before else {}
    mine = [line for line in record.apps if shown is None or line.app in shown]
    others = [
        SealedRow(line.held, line.granted, _change(line, earlier))
        for line in record.apps
        if shown is not None and line.app not in shown
    ]
    certificate = record.notes.certificate
    bids = {bid.app: bid for bid in record.notes.bids}
    given = _given(record.allotments)
    whole = certificate if shown is None else None
    return RoundView(
        record.round,
        record.opened,
        record.settled,
        record.trigger,
        record.offered,
        len(record.idle),
        # The text of an error may name apps.
        "the round failed" if record.failed and shown is not None else record.failed,
        certificate.solver if certificate else "",
        certificate.exact if certificate else None,
        tuple(
            _open(record, line, _change(line, earlier), bids.get(line.app), given) for line in mine
        ),
        tuple(sorted(others, key=_by_content)),
        _invited(record),
        whole.value if whole else None,
        whole.bound if whole else None,
    )


def line_of(record: RoundRecord) -> RoundLine:
    """The round in a list: only numbers that every viewer may see."""
    certificate = record.notes.certificate
    return RoundLine(
        round=record.round,
        opened=record.opened,
        settled=record.settled,
        trigger=record.trigger,
        offered=record.offered,
        given=sum(line.granted for line in record.apps),
        idle=len(record.idle),
        apps=len(record.apps),
        invited=_invited(record),
        bids=len(record.notes.bids),
        failed=bool(record.failed),
        solver=certificate.solver if certificate else "",
        exact=certificate.exact if certificate else None,
    )


def _invited(record: RoundRecord) -> int:
    return sum(1 for line in record.apps if line.invited)


def _change(line: AppInRound, earlier: Mapping[AppId, float | None]) -> float | None:
    then = earlier.get(line.app)
    return None if then is None or line.rho is None else round(line.rho - then, 2)


def _open(
    record: RoundRecord,
    line: AppInRound,
    change: float | None,
    bid: Bid | None,
    given: Mapping[AppId, Sequence[Allotment]],
) -> OpenRow:
    notes = record.notes
    mine = given.get(line.app, ())
    sources: dict[str, int] = {}
    for item in mine:
        sources[str(item.source)] = sources.get(str(item.source), 0) + len(item.gpus)
    return OpenRow(
        line,
        change,
        bid,
        tuple(sorted(gpu for item in mine for gpu in item.gpus)),
        len(notes.won.get(line.app, ())),
        len(notes.paid.get(line.app, ())),
        notes.kept_fractions.get(line.app),
        record.refused.get(line.app, ""),
        sources,
    )


def _given(allotments: tuple[Allotment, ...]) -> Mapping[AppId, Sequence[Allotment]]:
    """The allotments of each app, in one pass: a round may have thousands of both."""
    given: dict[AppId, list[Allotment]] = {}
    for item in allotments:
        given.setdefault(item.app, []).append(item)
    return given


def _by_content(row: SealedRow) -> tuple[int, int, float]:
    return (-row.held, -row.granted, row.rho_change or 0.0)
