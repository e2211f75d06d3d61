"""Sealed bids: who sees which names of a round."""

from dataclasses import replace

import pytest

from themis.core.arbiter.records import AppInRound, RoundRecord
from themis.core.model import AppId, Bid, Chunk, GpuId, LeaseSource, OwnerId, Row
from themis.core.model.reasons import Reason
from themis.core.policies.base import Allotment, Certificate, Notes
from themis.dashboard.round_view import RoundView, SealedRow
from themis.errors import DeniedError, UnknownCallerError
from themis.security.permissions import Verb
from themis.security.tokens import Identity, Role
from themis.service.viewer import viewer_of

OWNERS = {
    AppId("zebra-1"): OwnerId("vision"),
    AppId("secret-b"): OwnerId("speech"),
    AppId("secret-a"): OwnerId("speech"),
}


def line(app: str, held: int, granted: int, rho: float | None) -> AppInRound:
    return AppInRound(AppId(app), held, 8, granted, Reason.PARTLY_SERVED, rho, 1, invited=True)


def bid(app: str, seconds: float) -> Bid:
    return Bid(AppId(app), (Row((Chunk(0, 4),), seconds),))


RECORD = RoundRecord(
    round=7,
    opened=10.0,
    settled=12.0,
    trigger="beat",
    offered=8,
    allotments=(
        Allotment(AppId("zebra-1"), (GpuId(3), GpuId(1)), LeaseSource.AUCTION),
        Allotment(AppId("secret-a"), (GpuId(2),), LeaseSource.LEFTOVER),
    ),
    followups=(),
    dropped=(),
    apps=(
        line("secret-a", 1, 1, 4.56789),
        line("secret-b", 4, 0, None),
        line("zebra-1", 2, 2, 2.0),
    ),
    notes=Notes(
        bids=(bid("zebra-1", 1111.0), bid("secret-a", 2222.0)),
        won={AppId("zebra-1"): (GpuId(1), GpuId(3), GpuId(5))},
        kept_fractions={AppId("zebra-1"): 0.75, AppId("secret-a"): 0.3333},
        paid={AppId("zebra-1"): (GpuId(5),)},
        certificate=Certificate("ladder", -9.87654, -9.87, exact=True),
    ),
    refused={AppId("secret-b"): "secret-b: asks for too much"},
    failed="secret-a: ValueError",
    idle=(GpuId(6),),
)
BEFORE = replace(RECORD, round=6, apps=(line("secret-a", 1, 0, 4.0), line("zebra-1", 2, 0, 2.5)))


def seen_by(role: Role | None, subject: str = "vision") -> RoundView:
    who = None if role is None else Identity(role, subject, "0" * 12)
    return viewer_of(who, Verb.AUCTION_SHOW).round(RECORD, OWNERS, BEFORE)


@pytest.mark.parametrize("role", [Role.TENANT, Role.VIEWER])
def test_others_are_rows_without_names(role: Role) -> None:
    sheet = seen_by(role)
    assert [row.line.app for row in sheet.own] == ["zebra-1"]
    assert sheet.others == (SealedRow(4, 0, None), SealedRow(1, 1, 0.57))
    text = repr(sheet)
    for told in ("secret", "speech", "2222", "0.3333", "ValueError", "4.56789", "9.87654"):
        assert told not in text


def test_ones_own_rows_have_everything() -> None:
    (row,) = seen_by(Role.TENANT).own
    assert row.bid is not None
    assert row.bid.rows[0].seconds == 1111.0
    assert (row.gpus, row.won, row.paid, row.kept_fraction) == ((1, 3), 3, 1, 0.75)
    assert row.rho_change == -0.5


def test_an_admin_sees_names_and_reasons() -> None:
    sheet = seen_by(Role.ADMIN)
    assert [row.line.app for row in sheet.own] == ["secret-a", "secret-b", "zebra-1"]
    assert sheet.others == ()
    assert sheet.failed == "secret-a: ValueError"
    assert [row.refused for row in sheet.own][1] == "secret-b: asks for too much"


def test_every_viewer_sees_every_app_in_one_row() -> None:
    for role in (Role.TENANT, Role.VIEWER, Role.ADMIN):
        sheet = seen_by(role)
        assert len(sheet.own) + len(sheet.others) == len(RECORD.apps)


def test_an_app_whose_owner_is_not_known_is_sealed() -> None:
    tenant = Identity(Role.TENANT, "vision", "0" * 12)
    sheet = viewer_of(tenant, Verb.AUCTION_SHOW).round(RECORD, {})
    assert sheet.own == ()
    assert len(sheet.others) == 3


def test_the_order_of_sealed_rows_does_not_follow_from_names() -> None:
    names = {"secret-a": "secret-y", "secret-b": "secret-x"}
    lines = [replace(item, app=AppId(names.get(item.app, item.app))) for item in RECORD.apps]
    renamed = replace(RECORD, apps=tuple(sorted(lines, key=lambda item: item.app)))
    tenant = Identity(Role.TENANT, "vision", "0" * 12)
    viewer = viewer_of(tenant, Verb.AUCTION_SHOW)
    assert viewer.round(renamed, OWNERS).others == viewer.round(RECORD, OWNERS).others


def test_nodes_and_unknown_callers_see_no_rounds() -> None:
    with pytest.raises(DeniedError):
        seen_by(Role.NODE)
    with pytest.raises(UnknownCallerError):
        seen_by(None)
