"""What a viewer may see: everything, or what is the viewer's own and the rest without names.

    viewer = viewer_of(identity, Verb.AUCTION_SHOW)
    viewer.round(record, owners, before=the_round_before)
    viewer.app_rows(rows), viewer.machines(machines, owner_of), viewer.segments(items)

The command line, JSON, the pages and the streams all redact here, so none shows more than another.
What is not known to be the viewer's own is redacted. Two callers who may see the same have equal
viewers, so what was made for one serves the other.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from themis.core.arbiter.records import RoundRecord
from themis.core.model import AppId, OwnerId
from themis.dashboard.model import ANONYMOUS, AppRow, GpuRow, MachineRow
from themis.dashboard.round_view import RoundView, view_of
from themis.dashboard.timeline_columns import HeldSegment
from themis.recording.forecast_questions import NOTICED
from themis.security.permissions import Verb, require
from themis.security.tokens import Identity, Role
from themis.service.dashboard.page_history import OwnedSegment


@dataclass(frozen=True, slots=True)
class Viewer:
    """A caller, as far as it matters for what is shown."""

    sealed: bool
    """Whether others are left nameless."""
    owner: OwnerId | None = None
    """The owner whose apps are the viewer's own."""

    def owns(self, owner: str | None) -> bool:
        """Whether what belongs to this owner is the viewer's own; what belongs to none is not."""
        return owner is not None and owner == self.owner

    def _sees(self, owner: str | None) -> bool:
        return not self.sealed or self.owns(owner)

    def round(
        self,
        record: RoundRecord,
        owners: Mapping[AppId, OwnerId],
        before: RoundRecord | None = None,
    ) -> RoundView:
        """A round; `before` is the round before it, for the change of rho."""
        if not self.sealed:
            return view_of(record, None, before)
        mine = {row.app for row in record.apps if self.owns(owners.get(row.app))}
        return view_of(record, mine, before)

    def forecast(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """A forecast, which may be empty: other apps are counted, and named where seen."""
        return {**answer, "cases": [self._case(case) for case in answer.get("cases", ())]}

    def _case(self, case: Mapping[str, Any]) -> dict[str, Any]:
        others = case.get("others", ())
        mids = [float(other["later"]["mid"]) for other in others]
        later, sooner = sum(mid > NOTICED for mid in mids), sum(mid < -NOTICED for mid in mids)
        counts = {"later": later, "sooner": sooner, "same": len(mids) - later - sooner}
        named = [other for other in others if self._sees(other["owner"])]
        return {**case, "others": counts if others else None, "named": named}

    def app_rows(self, rows: tuple[AppRow, ...]) -> tuple[tuple[AppRow, ...], tuple[AppRow, ...]]:
        """Rows with names; and nameless rows of others, of active apps only."""
        seen = tuple(row for row in rows if self._sees(row.owner))
        others = [
            AppRow(ANONYMOUS, ANONYMOUS, "", rho=row.rho, held=row.held, demand=row.demand,
                   sealed=True)
            for row in rows
            if row.ended is None and not self._sees(row.owner)
        ]  # fmt: skip
        # By what is shown: an order by name or age would tell them apart.
        others.sort(key=lambda row: (-(row.held or 0), -(row.demand or 0), row.rho or 0.0))
        return seen, tuple(others)

    def machines(
        self,
        machines: tuple[MachineRow, ...],
        owner_of: Callable[[AppId], OwnerId | None],
    ) -> tuple[MachineRow, ...]:
        """Machines, with the apps of others nameless."""
        if not self.sealed:
            return machines

        def shown(gpu: GpuRow) -> GpuRow:
            if gpu.app is not None and self.owns(owner_of(AppId(gpu.app))):
                return gpu
            return GpuRow(
                gpu.gpu,
                gpu.index,
                gpu.slot,
                gpu.state,
                None if gpu.app is None else ANONYMOUS,
                # The text may name an app.
                reason="out of use" if gpu.reason else "",
            )

        return tuple(replace(item, gpus=tuple(map(shown, item.gpus)), note="") for item in machines)

    def segments(self, items: Iterable[OwnedSegment]) -> list[HeldSegment]:
        """Segments, with those of others nameless."""
        return [
            item.held
            if self._sees(item.owner)
            else HeldSegment(item.held.gpu, ANONYMOUS, item.held.start, item.held.end, "")
            for item in items
        ]


def viewer_of(identity: Identity | None, verb: Verb) -> Viewer:
    """What this identity may see with this verb.

    Raises:
        UnknownCallerError: It needs a credential.
        DeniedError: This identity may not use the verb at all.
    """
    if not require(identity, verb).anonymous:
        return Viewer(sealed=False)
    own = identity is not None and identity.role in {Role.TENANT, Role.VIEWER}
    return Viewer(sealed=True, owner=OwnerId(identity.subject) if identity and own else None)
