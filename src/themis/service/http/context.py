"""What all routes share: the service, its tokens, the limits of callers and the dashboard's model.

api = ApiContext(service, token_store, ApiSettings(hosts=frozenset({"127.0.0.1:7421"})))
uvicorn.run(make_app(api))
api.change(settings)       # after a reload of the configuration
api.close()
"""

from dataclasses import replace

from themis.config.keys import CallerLimits
from themis.core.arbiter import events as ev
from themis.security.audit import AuditRow, RefusalCounter
from themis.security.rate_limits import OpenStreams, RateBuckets
from themis.security.tokens import TokenStore
from themis.service.dashboard.live_model import LiveModel
from themis.service.http.authentication import Gate
from themis.service.http.settings import ApiSettings
from themis.service.service import Service

MOST_STREAMS = 8
"""Streams of one caller, whatever the configuration allows: each costs something every second."""


class ApiContext:
    """Held by the application, given to every handler."""

    def __init__(self, service: Service, token_store: TokenStore, settings: ApiSettings) -> None:
        self.service = service
        self.token_store = token_store
        self.settings = settings
        self.gate = Gate(token_store, settings)
        self.rates = RateBuckets(settings.limits)
        self.streams = OpenStreams(_with_few_streams(settings.limits))
        self.refusals = RefusalCounter()
        self.board = LiveModel(service, settings.wall)

    def change(self, settings: ApiSettings) -> None:
        """Use other settings from now on."""
        self.settings = settings
        self.gate.change(settings)
        self.rates.change(settings.limits)
        self.streams.change(_with_few_streams(settings.limits))

    def close(self) -> None:
        """No more requests come: write the refusals that were only counted."""
        self.write_audit(*self.refusals.close(self.settings.wall()))

    def charge(self, caller: str, cost: float = 1.0) -> None:
        """Count a request; `cost` is more than one where it makes more work.

        Raises:
            LimitError: The caller has used up its rate.
        """
        self.rates.take(caller, self.service.now(), cost)

    async def carry_out(self, event: ev.Event, row: AuditRow) -> dict[str, bool]:
        """Give an event to the service; answers when it and its audit row are durable."""
        await self.service.loop.carry_out(event, row)
        return {"done": True}

    def write_audit(self, *rows: AuditRow) -> None:
        """Put rows into the audit log."""
        for row in rows:
            self.service.queue.add(audit=row)


def _with_few_streams(limits: CallerLimits) -> CallerLimits:
    return replace(limits, streams=min(limits.streams, MOST_STREAMS))
