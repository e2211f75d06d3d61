"""Which gRPC calls are admitted: who calls, and how many calls and streams a caller may have.

admission = CallAdmission(service, tokens, GrpcSettings())
identity = admission.identify(peer)
with admission.stream(identity) as stream:
message = admission.parse(rpc, raw, identity)
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from themis.config.keys import CallerLimits, Tls
from themis.errors import DeniedError, LimitError, RefusedError, UnknownCallerError
from themis.rpc.methods import Rpc, cost_of
from themis.rpc.wire import Bounds, from_message, parse
from themis.security.audit import CallOutcome, RefusalCounter, audited
from themis.security.rate_limits import WRONG_CREDENTIALS, OpenStreams, RateBuckets, network_of
from themis.security.redaction import clean
from themis.security.tls import check_peer
from themis.security.tokens import (
    Identity,
    Role,
    TokenStore,
    VerifiedToken,
    check_bearer,
    check_host,
    note_use,
)
from themis.service.service import Service

_LOG = logging.getLogger(__name__)

MOST_CALLS = 16_384
"""Calls and streams of all callers."""
_FULL_WAIT = 1.0
"""Seconds after which a caller with too many calls may try again."""
_STREAMS_PER_APP = 4
"""Beyond `limits.streams`: a stream may outlast its last call."""
_COUNT_EVERY = 1.0
"""Seconds for which the count of an owner's apps is used."""
_REFUSED_AGAIN = 3600.0
"""Seconds for which repeated refusals are only counted: machines retry for ever."""
_SHARED_FROM = 0.75
"""The part of the tenants' streams beyond which they are shared out."""


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """Settings of the gRPC server; clocks are exchanged in tests."""

    tls: Tls = field(default=Tls())
    limits: CallerLimits = field(default=CallerLimits())
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    for_tenants: int = MOST_CALLS * 3 // 4
    """Streams that all tenants together may have: nodes always find room beside them."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection, before its credentials are checked."""

    address: str
    bearer: str | None
    certificate: bytes | None
    secure: bool = False
    """Whether the connection has TLS."""
    proof: VerifiedToken = field(default_factory=VerifiedToken, repr=False, compare=False)


@dataclass(slots=True)
class OpenStream:
    """A stream that is counted."""

    used: bool = False
    """Whether a message came on it."""


class CallAdmission:
    """Identifies callers and counts what they do."""

    def __init__(self, service: Service, tokens: TokenStore, settings: GrpcSettings) -> None:
        self._service = service
        self._tokens = tokens
        self._settings = settings
        self._rates = RateBuckets(settings.limits)
        self._wrong_credentials = RateBuckets(settings.limits, WRONG_CREDENTIALS)
        self._streams = OpenStreams(settings.limits)
        self._tenants: Counter[str] = Counter()
        """Streams of each tenant."""
        self._apps: Mapping[str, int] = {}
        """Apps of each owner, as counted last."""
        self._counted_at = float("-inf")
        self._refusals = RefusalCounter(_REFUSED_AGAIN)

    def close(self) -> None:
        """Write the refusals that were only counted to the audit log."""
        for row in self._refusals.close(self._settings.wall()):
            self._service.queue.add(audit=row)

    def change(self, limits: CallerLimits) -> None:
        """Use other limits from now on."""
        self._settings = replace(self._settings, limits=limits)
        self._rates.change(limits)
        self._wrong_credentials.change(limits)
        self._streams.change(limits)

    def identify(self, peer: Peer) -> Identity:
        """Check a caller's token, and its certificate where one is shown or required.

        A certificate alone is not enough: it ends only with its date, and would still be valid for
        a caller whose token was revoked.

        Raises:
            UnknownCallerError: The token is not valid.
            DeniedError: The caller may not call from there, or with this certificate.
        """
        settings = self._settings
        try:
            identity = peer.proof.check(self._tokens, peer.bearer, now=settings.wall())
            if settings.tls.cert is not None and not peer.secure:
                check_host(self._tokens, identity)
            else:
                check_peer(identity, peer.certificate, required=settings.tls.require_client)
        except (UnknownCallerError, DeniedError):
            self._wrong_credentials.take(network_of(peer.address), settings.monotonic())
            raise
        note_use(self._tokens, identity.credential, now=settings.wall())
        return identity

    def note_refused(self, rpc: Rpc, peer: Peer, error: Exception) -> None:
        """Log and audit that a caller was not let in; of a flood only how many."""
        if not isinstance(error, UnknownCallerError | DeniedError):
            return
        wall = self._settings.wall()
        try:
            identity = check_bearer(self._tokens, peer.bearer, now=wall)
        except UnknownCallerError:
            identity = None
        row = audited(
            *(identity, rpc.verb, peer.address),
            at=wall,
            outcome=CallOutcome.DENIED,
            details={"reason": error},
        )
        rows = self._refusals.note(row)
        if row in rows:
            _LOG.warning("%s from %s is refused: %s", rpc.verb, peer.address, clean(error))
        for item in rows:
            self._service.queue.add(audit=item)

    # Messages

    def parse(self, rpc: Rpc, raw: bytes, identity: Identity) -> object:
        """The message of a call, counted by its content; one that makes no sense counts too.

        Raises:
            RefusedError: It makes no sense.
            LimitError: The caller sends too much.
        """
        limits, now = self._settings.limits, self._settings.monotonic()
        bounds, share = Bounds(rpc.size or limits.message_bytes, limits.rows), self._share(identity)
        try:
            message = parse(rpc.takes, raw, bounds)
            cost = cost_of(rpc, message)
        except RefusedError:
            self._rates.take(identity.credential, now, share)
            raise
        self._rates.take(identity.credential, now, cost * share)
        found: object = from_message(rpc.takes, message, bounds)
        return found

    def _share(self, identity: Identity) -> float:
        """What a call counts: one credential may call for many apps, each with its own rate."""
        return 1.0 / max(1, self._apps_of(identity.subject))

    def _apps_of(self, owner: str) -> int:
        now = self._settings.monotonic()
        if now >= self._counted_at + _COUNT_EVERY:
            states = self._service.steward.arbiter.world.apps.values()
            self._apps, self._counted_at = Counter(state.spec.owner for state in states), now
        return self._apps.get(owner, 0)

    # Streams

    @contextmanager
    def counted(self, who: str, more: int = 0) -> Iterator[None]:
        """Count something that lasts; `more` may be open beyond the limit of streams.

        Raises:
            LimitError: Too many are open.
        """
        try:
            self._streams.open(who, more)
        except LimitError as error:
            raise LimitError(error.who, error.reason, _FULL_WAIT) from None
        try:
            yield
        finally:
            self._streams.close(who)

    @contextmanager
    def stream(self, identity: Identity) -> Iterator[OpenStream]:
        """Count a stream, and as a call if no message comes on it.

        Raises:
            LimitError: The caller has too many, or all tenants together.
        """
        who, stream = identity.credential, OpenStream()
        self._rates.look(who, self._settings.monotonic(), self._share(identity))
        # Added, not multiplied: an owner of many apps would leave no room for nodes.
        more = _STREAMS_PER_APP * self._apps_of(identity.subject)
        with self.counted(who, more), self._tenant_stream(identity):
            try:
                yield stream
            finally:
                if not stream.used:
                    with suppress(LimitError):
                        self._rates.take(who, self._settings.monotonic(), self._share(identity))

    @contextmanager
    def _tenant_stream(self, identity: Identity) -> Iterator[None]:
        if identity.role is not Role.TENANT:
            yield
            return
        self._check_room(identity.subject)
        self._tenants[identity.subject] += 1
        try:
            yield
        finally:
            self._tenants[identity.subject] -= 1
            if not self._tenants[identity.subject]:
                del self._tenants[identity.subject]

    def _check_room(self, tenant: str) -> None:
        """Refuse a stream when there are few left and this tenant has more than that."""
        most, taken = self._settings.for_tenants, self._tenants.total()
        if taken >= most:
            reason = f"tenants have {taken} streams open: the service is full"
            raise LimitError(tenant, reason, _FULL_WAIT)
        mine = self._tenants[tenant]
        # Streams end after a while, and a tenant with many opens no other: shares become equal.
        if taken >= _SHARED_FROM * most and mine > most - taken:
            reason = f"{mine} of {taken} streams of tenants are yours: the service is nearly full"
            raise LimitError(tenant, reason, _FULL_WAIT)
