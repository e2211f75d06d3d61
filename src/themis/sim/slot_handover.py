"""Leases and slots between owners: who still has to leave, and which stretch had which source.

The arbiter takes a GPU away at once, its process needs a while to go; only when the slot is empty
may the arbiter hear so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId, Lease, LeaseSource
from themis.sim.counters import Contended


class SlotHandover:
    """What nodes report of slots, and drivers of leases that have ended."""

    def __init__(
        self,
        *,
        post: Callable[[ev.Event], None],
        occupant: Callable[[GpuId], AppId | None],
        contended: Contended,
        on_segment: Callable[[Lease], None] | None,
    ) -> None:
        self._post = post
        self._occupant = occupant
        self._contended = contended
        self._on_segment = on_segment
        self._leaving: dict[GpuId, list[int]] = {}
        self._releasing: dict[GpuId, AppId] = {}
        self._sources: dict[tuple[GpuId, int], tuple[float, LeaseSource]] = {}
        """Since when a lease has had its present source."""

    def begin(
        self,
        now: float,
        granted: Sequence[Lease],
        renewed: Sequence[Lease],
        revoked: Sequence[Lease],
    ) -> None:
        """Leases change; to be told before the agent hears of it.

        A process that is still starting leaves at once, and whoever waits for its slot begins at
        once.
        """
        for lease in revoked:
            self._leaving.setdefault(lease.gpu, []).append(lease.token)
            self._releasing.pop(lease.gpu, None)
        for lease in granted:
            self._sources[lease.gpu, lease.token] = (lease.start, lease.source)
        sources = self._sources
        for lease in renewed:
            known = sources.get((lease.gpu, lease.token))
            if known is None or known[1] is not lease.source:
                self.end_segment(lease, now, lease.source)

    def resume(
        self, now: float, leaving: Iterable[Lease], releasing: Mapping[GpuId, AppId]
    ) -> None:
        """Begin in the middle: who was told to go, and what is given back once it is empty."""
        for lease in leaving:
            self._leaving[lease.gpu] = [lease.token]
            if self._occupant(lease.gpu) != lease.app:
                self.report_empty(now, lease.gpu)
        for gpu, app in releasing.items():
            self.release(now, app, (gpu,))

    def never_began(self, lease: Lease) -> None:
        """A lease was taken away before it began."""
        self._sources.pop((lease.gpu, lease.token), None)

    def end_segment(self, lease: Lease, at: float, source: LeaseSource | None = None) -> None:
        """A lease has ended, or goes on with another source: tell about the stretch up to now."""
        since, had = self._sources.pop((lease.gpu, lease.token), (lease.start, lease.source))
        if had != source:
            start = max(since, lease.start)
            self._contended.held(start, at, had)
            if self._on_segment is not None:
                self._on_segment(Lease(lease.gpu, lease.app, lease.token, start, at, had))
        if source is not None:
            self._sources[lease.gpu, lease.token] = (since if had == source else at, source)

    def report_empty(self, now: float, gpu: GpuId, only: int | None = None) -> None:
        """Report that nothing runs under the tokens taken away on a GPU, or under one of them."""
        tokens = self._leaving.pop(gpu, [])
        gone = [token for token in tokens if only in {None, token}]
        if len(gone) < len(tokens):
            self._leaving[gpu] = [token for token in tokens if token not in gone]
        if gone:
            self._post(ev.GpusVacated(now, tuple((gpu, token) for token in gone)))

    def release(self, now: float, app: AppId, gpus: tuple[GpuId, ...]) -> None:
        """An app gives GPUs back."""
        empty = []
        for gpu in gpus:
            # Its own process must go first; a slot that it was only promised is not waited for.
            if self._occupant(gpu) == app:
                self._releasing[gpu] = app
            else:
                empty.append(gpu)
        if empty:
            self._post(ev.GpusReleased(now, app, tuple(empty)))

    def left(self, now: float, app: AppId, gpus: tuple[GpuId, ...]) -> None:
        """A process of the app is gone from these GPUs."""
        released = []
        for gpu in gpus:
            self.report_empty(now, gpu)
            if self._releasing.get(gpu) == app:
                del self._releasing[gpu]
                released.append(gpu)
        if released:
            self._post(ev.GpusReleased(now, app, tuple(released)))
