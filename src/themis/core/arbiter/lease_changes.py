"""Lease changes of one event, gathered per app so that its agent moves each job once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from themis.core.arbiter.commands import Assign, End
from themis.core.model import AppId, GpuId, Lease

_Key = tuple[GpuId, int]


@dataclass(slots=True)
class _AppChanges:
    # By GPU and token: an app may leave a slot and be promised it anew.
    granted: dict[_Key, Lease] = field(default_factory=dict)
    renewed: dict[_Key, Lease] = field(default_factory=dict)
    revoked: dict[_Key, Lease] = field(default_factory=dict)
    ended: dict[_Key, Lease] = field(default_factory=dict)
    reason: str = ""


class LeaseChanges:
    """Collects, then turns into commands in the order of app names."""

    def __init__(self) -> None:
        self._apps: dict[AppId, _AppChanges] = {}

    @property
    def any(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._apps)

    def granted(self, lease: Lease) -> None:
        """A new lease."""
        self._of(lease).granted[lease.gpu, lease.token] = lease

    def renewed(self, lease: Lease) -> None:
        """A later end under the same token."""
        self._of(lease).renewed[lease.gpu, lease.token] = lease

    def extended(self, app: AppId, leases: Iterable[Lease]) -> None:
        """Later ends for many."""
        self._mine(app).renewed.update({(lease.gpu, lease.token): lease for lease in leases})

    def revoked(self, lease: Lease, reason: str) -> None:
        """The holder must go."""
        mine = self._of(lease)
        mine.revoked[lease.gpu, lease.token] = lease
        mine.reason = reason

    def ended(self, lease: Lease) -> None:
        """The slot is empty."""
        self._of(lease).ended[lease.gpu, lease.token] = lease

    def commands(self, at: float) -> Iterator[Assign | End]:
        """Ends first, then what each app gains and loses."""
        order = sorted(self._apps)
        for app in order:
            ended = self._apps[app].ended
            if ended:
                yield End(app, _sorted(ended), at)
        for app in order:
            mine = self._apps[app]
            if mine.granted or mine.renewed or mine.revoked:
                yield Assign(
                    app,
                    _sorted(mine.granted),
                    _sorted(mine.renewed),
                    _sorted(mine.revoked),
                    mine.reason,
                )

    def _of(self, lease: Lease) -> _AppChanges:
        return self._mine(lease.app)

    def _mine(self, app: AppId) -> _AppChanges:
        mine = self._apps.get(app)
        if mine is None:
            mine = self._apps[app] = _AppChanges()
        return mine


def _sorted(leases: dict[_Key, Lease]) -> tuple[Lease, ...]:
    return tuple([leases[key] for key in sorted(leases)]) if leases else ()
