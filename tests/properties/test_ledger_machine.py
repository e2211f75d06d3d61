"""The ledger alone, against a model that keeps nothing but lists."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from themis.core.arbiter import GpuState, Ledger, check_ledger
from themis.core.model import AppId, GpuId, LeaseSource
from themis.errors import InvariantError

GPUS = 4
apps = st.sampled_from([AppId(name) for name in "abc"])
gpus = st.integers(0, GPUS - 1).map(GpuId)
lengths = st.sampled_from([1.0, 60.0, 600.0])


class LedgerMachine(RuleBasedStateMachine):
    """Per GPU: who is promised it in turn, whether the first was told to go, or quarantine."""

    @initialize()
    def begin(self) -> None:
        self.ledger = Ledger(GPUS)
        self.now = 0.0
        self.chains: dict[GpuId, list[tuple[AppId, int]]] = {GpuId(i): [] for i in range(GPUS)}
        self.leaving: set[GpuId] = set()
        self.quarantined: set[GpuId] = set()
        self.last_token = 0

    def _standing(self, gpu: GpuId) -> list[AppId]:
        names = [app for app, _ in self.chains[gpu]]
        return names[1:] if gpu in self.leaving else names

    def _issued(self, gpu: GpuId, app: AppId, token: int) -> None:
        assert token > self.last_token
        self.last_token = token
        self.chains[gpu].append((app, token))

    @rule(gpu=gpus, app=apps, length=lengths)
    def grant(self, gpu: GpuId, app: AppId, length: float) -> None:
        possible = gpu not in self.quarantined and not self._standing(gpu)
        try:
            lease = self.ledger.grant(
                gpu, app, at=self.now, end=self.now + length, source=LeaseSource.AUCTION
            )
        except InvariantError:
            assert not possible
        else:
            assert possible
            self._issued(gpu, app, lease.token)

    @rule(gpu=gpus, app=apps, length=lengths)
    def follow(self, gpu: GpuId, app: AppId, length: float) -> None:
        standing = self._standing(gpu)
        tail = self.ledger.tail(gpu)
        try:
            lease = self.ledger.follow(
                gpu, app, end=self.now + length + 1000.0, source=LeaseSource.LEFTOVER
            )
        except InvariantError:
            assert not standing or app in standing
        else:
            assert tail is not None
            assert lease.start == tail.end
            assert standing
            assert app not in standing
            self._issued(gpu, app, lease.token)

    @rule(gpu=gpus, app=apps, length=lengths)
    def renew(self, gpu: GpuId, app: AppId, length: float) -> None:
        standing = self._standing(gpu)
        possible = bool(standing) and standing[-1] == app
        try:
            lease = self.ledger.renew(
                gpu, app, at=self.now, end=self.now + length, source=LeaseSource.RENEWED
            )
        except InvariantError:
            assert not possible
        else:
            assert possible
            assert (app, lease.token) == self.chains[gpu][-1]

    @rule(gpu=gpus)
    def evict(self, gpu: GpuId) -> None:
        possible = bool(self.chains[gpu]) and gpu not in self.leaving
        assert (self.ledger.evict(gpu) is not None) == possible
        if possible:
            self.leaving.add(gpu)

    @rule(gpu=gpus, app=apps)
    def unqueue(self, gpu: GpuId, app: AppId) -> None:
        waiting = [item for item in self.chains[gpu][1:] if item[0] == app]
        lease = self.ledger.unqueue(gpu, app)
        assert (lease.token if lease else None) == (waiting[0][1] if waiting else None)
        if waiting:
            self.chains[gpu].remove(waiting[0])

    @rule(gpu=gpus, stale=st.booleans())
    def vacate(self, gpu: GpuId, stale: bool) -> None:
        chain = self.chains[gpu]
        token = chain[0][1] - stale if chain else 0
        handover = self.ledger.vacate(gpu, token, self.now)
        if not chain or stale:
            assert handover.ended is None
            assert handover.begun is None
            return
        assert handover.ended is not None
        assert handover.ended.token == chain.pop(0)[1]
        self.leaving.discard(gpu)
        begun = handover.begun
        assert (begun.token if begun else None) == (chain[0][1] if chain else None)
        assert begun is None or begun.start == self.now

    @rule(gpu=gpus)
    def quarantine(self, gpu: GpuId) -> None:
        lost = self.ledger.quarantine(gpu, "xid", self.now)
        assert [lease.token for lease in lost] == [token for _, token in self.chains[gpu]]
        self.chains[gpu].clear()
        self.leaving.discard(gpu)
        self.quarantined.add(gpu)

    @rule(gpu=gpus)
    def restore(self, gpu: GpuId) -> None:
        self.ledger.restore(gpu)
        self.quarantined.discard(gpu)

    @rule(seconds=st.sampled_from([1.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "ledger"):
            return
        check_ledger(self.ledger)
        for gpu, chain in self.chains.items():
            assert [lease.token for lease in self.ledger.chain(gpu)] == [t for _, t in chain]
            expected = GpuState.LEASED if chain else GpuState.FREE
            if gpu in self.quarantined:
                expected = GpuState.QUARANTINED
            elif gpu in self.leaving:
                expected = GpuState.FENCING
            assert self.ledger.state(gpu) is expected
        for app in (AppId(name) for name in "abc"):
            holds = {gpu for gpu in self.chains if app in self._standing(gpu)}
            assert set(self.ledger.holdings(app)) == holds


TestLedgerMachine = LedgerMachine.TestCase


def test_gpu_seconds_add_up_over_sources_and_holders() -> None:
    ledger = Ledger(1)
    first = ledger.grant(GpuId(0), AppId("a"), at=0.0, end=10.0, source=LeaseSource.AUCTION)
    ledger.renew(GpuId(0), AppId("a"), at=10.0, end=20.0, source=LeaseSource.LEFTOVER)
    ledger.follow(GpuId(0), AppId("b"), end=40.0, source=LeaseSource.LEFTOVER)
    assert ledger.attained(AppId("a"), 15.0) == {
        LeaseSource.AUCTION: 10.0,
        LeaseSource.LEFTOVER: 5.0,
    }
    ledger.evict(GpuId(0))
    ledger.vacate(GpuId(0), first.token, 25.0)
    assert ledger.attained(AppId("a"), 99.0) == {
        LeaseSource.AUCTION: 10.0,
        LeaseSource.LEFTOVER: 15.0,
    }
    assert ledger.attained_total(AppId("a"), 99.0) == 25.0
    assert ledger.attained_total(AppId("b"), 30.0) == 5.0
