"""What of the pages a viewer may see: rows, machines and segments, others without their names.

    eye = eye_of(identity)
    eye.rows(rows), eye.machines(machines, owner_of), eye.segments(items)

Two who may see the same have equal eyes, so what was made for one is there for the other.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from themis.core.model import AppId, OwnerId
from themis.dashboard.model import ANONYMOUS, AppRow, GpuRow, MachineRow
from themis.dashboard.segment_columns import HeldSegment
from themis.security.permissions import Access, Verb, decide
from themis.security.tokens import Identity
from themis.service.dashboard.page_history import Owned
from themis.service.http.round_redaction import owns


@dataclass(frozen=True, slots=True)
class Eye:
    """Who looks, as far as it matters for what is seen."""

    sealed: bool
    """Whether others are left nameless."""
    owner: OwnerId | None
    """Whose things are the viewer's own; None for nobody's."""

    def _own(self, owner: OwnerId | None) -> bool:
        return owner is not None and owner == self.owner

    def rows(self, rows: tuple[AppRow, ...]) -> tuple[tuple[AppRow, ...], tuple[AppRow, ...]]:
        """Rows with names, and rows of others, of whom there are only those that go on."""
        if not self.sealed:
            return rows, ()
        mine = tuple(row for row in rows if self._own(OwnerId(row.owner)))
        others = [
            AppRow(ANONYMOUS, ANONYMOUS, "", rho=row.rho, held=row.held, demand=row.demand,
                   sealed=True)
            for row in rows
            if row.ended is None and not self._own(OwnerId(row.owner))
        ]  # fmt: skip
        others.sort(key=lambda row: (-(row.held or 0), -(row.demand or 0), row.rho or 0.0))
        return mine, tuple(others)

    def machines(
        self,
        machines: tuple[MachineRow, ...],
        owner_of: Callable[[AppId], OwnerId | None],
    ) -> tuple[MachineRow, ...]:
        """Machines, with the apps of others nameless."""
        if not self.sealed:
            return machines
        return tuple(
            MachineRow(
                item.machine, item.rack, item.gpu_model, item.gpu_memory, item.state,
                tuple(
                    gpu
                    if gpu.app is not None and self._own(owner_of(AppId(gpu.app)))
                    else GpuRow(gpu.gpu, gpu.index, gpu.slot, gpu.state,
                                None if gpu.app is None else ANONYMOUS,
                                # The text may name an app.
                                reason="out of use" if gpu.reason else "")
                    for gpu in item.gpus
                ),
                item.heard,
                number=item.number,
            )
            for item in machines
        )  # fmt: skip

    def segments(self, items: Iterable[Owned]) -> list[HeldSegment]:
        """Segments, with those of others nameless."""
        if not self.sealed:
            return [item.held for item in items]
        return [
            item.held
            if self._own(item.owner)
            else HeldSegment(item.held.gpu, ANONYMOUS, item.held.start, item.held.end, "")
            for item in items
        ]


def eye_of(identity: Identity | None) -> Eye:
    """What somebody sees with."""
    sealed = decide(identity, Verb.DASHBOARD).access is not Access.ALLOW
    mine = OwnerId(identity.subject) if identity is not None else None
    return Eye(sealed, mine if sealed and owns(identity, mine) else None)
