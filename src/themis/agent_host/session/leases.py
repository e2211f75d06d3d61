"""The leases that an app holds, as its session last heard."""

from collections.abc import Iterable

from themis.core.model import GpuId, Lease
from themis.protocol.agent_messages import LeaseNews, ReleaseRequest


class HeldLeases:
    """One lease for each GPU of the app."""

    def __init__(self, leases: Iterable[Lease] = ()) -> None:
        self._leases = {lease.gpu: lease for lease in leases}

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """The GPUs that the app holds, in order."""
        return tuple(sorted(self._leases))

    def change(self, news: LeaseNews) -> None:
        """Take a change; the end of a lease that was replaced meanwhile changes nothing."""
        for lease in (*news.granted, *news.renewed):
            self._leases[lease.gpu] = lease
        for lease in news.revoked:
            held = self._leases.get(lease.gpu)
            if held is not None and held.token <= lease.token:
                del self._leases[lease.gpu]

    def any_ended(self, gpus: Iterable[GpuId], at: float) -> bool:
        """Whether one of these GPUs is leased no more."""
        leases = [self._leases.get(gpu) for gpu in gpus]
        return any(lease is None or lease.end <= at for lease in leases)

    def release(self, gpus: Iterable[GpuId]) -> ReleaseRequest:
        """The message that gives GPUs back; the service confirms with a change."""
        held = [self._leases[gpu] for gpu in gpus if gpu in self._leases]
        return ReleaseRequest(
            tuple(lease.gpu for lease in held), tuple(lease.token for lease in held)
        )
