"""Metrics for Prometheus: how fair the cluster is, and how quick rounds, bids and checkpoints are.

    metrics = Metrics(loop, agents, retired)
    metrics.take(event, outcome)          # counts what happens
    metrics.text(named=True)              # the page; without names for viewers

Gauges are read from the service's state when they are asked for, so the series of an app is gone
with the app. Counters and histograms begin anew with the service, as is usual.
"""

import math
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from themis.core.arbiter import commands as cmd
from themis.core.arbiter.cluster_state import GONE
from themis.core.arbiter.leasing import CALLED_IN, DRAINING, GIVEN_BACK, LEASE_ENDS, SHARE_OVER
from themis.core.arbiter.ledger import GpuState
from themis.core.arbiter.offer import fairness_of
from themis.core.model import AppId, GpuId, Lease
from themis.core.model.reasons import Reason
from themis.core.steward.commands import Outcome, StewardCommand
from themis.core.steward.events import AgentSpoke, StewardEvent
from themis.protocol.agent_messages import BidReply
from themis.service.agent_delivery import AgentDelivery
from themis.service.retained_rows import RetiredMachines
from themis.service.run_diagnostics import reason_of, runs_by_app
from themis.service.steward_loop import StewardLoop

CONTENT_TYPE = CONTENT_TYPE_LATEST

_ROUND_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_CHECKPOINT_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_REASONS = frozenset(map(str, Reason))
_OUTCOMES = frozenset({"finished", "failed", "cancelled"})
_CAUSES = {
    "": "lease_over",
    LEASE_ENDS: "lease_over",
    SHARE_OVER: "lease_over",
    CALLED_IN: "called_in",
    DRAINING: "draining",
    GONE: "machine_left",
}
_CONTENT = frozenset({Reason.SERVED, Reason.ENDED, Reason.FAILED})


def cause_of(reason: str) -> str:
    """Why GPUs are taken from an app, as one of a few words."""
    if reason in _REASONS:
        return reason.lower()
    if reason in _CAUSES:
        return _CAUSES[reason]
    return "app_over" if reason.partition(":")[0] in _OUTCOMES else "gpu_lost"


class Metrics:
    """Counts what happens, and reads the rest from the state."""

    def __init__(self, loop: StewardLoop, agents: AgentDelivery, retired: RetiredMachines) -> None:
        self._loop = loop
        self._agents = agents
        self._retired = retired
        self._asked: dict[AppId, tuple[int, float]] = {}
        """By app: the round that it was last asked in and when, until it bids."""
        self._counted = CollectorRegistry()
        self._rounds = Histogram(
            "themis_auction_seconds", "From the opening of a round to its settlement",
            buckets=_ROUND_SECONDS, registry=self._counted,
        )  # fmt: skip
        self._bids = Histogram(
            "themis_bid_seconds", "From the offer to an app until its bid is here",
            buckets=_ROUND_SECONDS, registry=self._counted,
        )  # fmt: skip
        self._checkpoints = Histogram(
            "themis_checkpoint_seconds", "From the order to leave a GPU until it is empty",
            buckets=_CHECKPOINT_SECONDS, registry=self._counted,
        )  # fmt: skip
        self._preemptions = Counter(
            "themis_preemptions", "GPUs that were taken from apps, by cause",
            ["cause"], registry=self._counted,
        )  # fmt: skip
        self._failed = Counter(
            "themis_rounds_failed", "Rounds that failed; their holders went on",
            registry=self._counted,
        )  # fmt: skip
        self._leaving: dict[GpuId, dict[int, float]] = {}
        """By GPU and token: since when leases are told to end."""
        self._ended: dict[GpuId, int] = {}
        """The token of the last lease that ended on each GPU; those before it are over too."""

    def take(self, event: StewardEvent, outcome: Outcome) -> None:
        """Count what is to be counted in an outcome."""
        if isinstance(event, AgentSpoke) and isinstance(event.request, BidReply):
            self._count_bid(event.at, event.app, event.request.round)
        for command in outcome.commands:
            self._count(command)

    def _count_bid(self, at: float, app: AppId, round_: int) -> None:
        asked = self._asked.get(app)
        if asked is not None and asked[0] == round_:
            del self._asked[app]
            self._bids.observe(max(0.0, at - asked[1]))

    def _count(self, command: StewardCommand) -> None:
        match command:
            case cmd.Ask():
                self._asked[command.app] = command.offer.round, self._loop.now()
            case cmd.RecordRound(record=record):
                self._asked = {app: it for app, it in self._asked.items() if it[0] != record.round}
                self._rounds.observe(max(0.0, record.settled - record.opened))
                if record.failed:
                    self._failed.inc()
            case cmd.Assign(revoked=leases) if leases and command.reason != GIVEN_BACK:
                self._preemptions.labels(cause_of(command.reason)).inc(len(leases))
                now = self._loop.now()
                for lease in leases:
                    # Of what is lost in one go the end is told first.
                    if lease.token > self._ended.get(lease.gpu, 0):
                        self._leaving.setdefault(lease.gpu, {})[lease.token] = now
            case cmd.End(leases=leases, at=at):
                for lease in leases:
                    since = self._end(lease)
                    if since is not None:
                        self._checkpoints.observe(max(0.0, at - since))
            case _:
                pass

    def _end(self, lease: Lease) -> float | None:
        """When an ended lease was told to end; forget it and those before it."""
        self._ended[lease.gpu] = max(lease.token, self._ended.get(lease.gpu, 0))
        told = self._leaving.pop(lease.gpu, {})
        # A lease that was taken back before it began never ends.
        rest = {token: since for token, since in told.items() if token > lease.token}
        if rest:
            self._leaving[lease.gpu] = rest
        return told.get(lease.token)

    def text(self, *, named: bool) -> bytes:
        """The page.

        Args:
            named: Whether the reader may see each app; others see only the app that is worst off.
        """
        now = CollectorRegistry(auto_describe=False)
        now.register(_Gauges(self._loop, self._agents, self._retired, named=named))
        return generate_latest(now) + generate_latest(self._counted)


class _Gauges:
    """Reads the state once for a page."""

    def __init__(
        self,
        loop: StewardLoop,
        agents: AgentDelivery,
        retired: RetiredMachines,
        *,
        named: bool,
    ) -> None:
        self._loop = loop
        self._agents = agents
        self._retired = retired
        self._named = named

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        arbiter, now = self._loop.steward.arbiter, self._loop.now()
        stands = fairness_of(arbiter.world, now)
        known = {app: each.rho for app, each in stands.items() if math.isfinite(each.rho)}
        if self._named:
            rho = GaugeMetricFamily(
                "themis_app_rho",
                "Finish-time fairness of an app as it stands",
                labels=["app", "owner"],
            )
            for app, value in known.items():
                rho.add_metric([app, arbiter.world.apps[app].spec.owner], value)
            yield rho
            seen = GaugeMetricFamily(
                "themis_agent_last_seen_seconds", "Since an app's agent was heard", labels=["app"]
            )
            for app, at in self._agents.heard_at().items():
                seen.add_metric([app], max(0.0, now - at))
            yield seen
        worst = GaugeMetricFamily("themis_max_rho", "The rho of the app that is worst off")
        worst.add_metric([], max(known.values(), default=0.0))
        yield worst
        yield self._gpus()
        yield self._unserved()

    def _gpus(self) -> Metric:
        arbiter = self._loop.steward.arbiter
        ledger, topology = arbiter.ledger, arbiter.world.topology
        gpus = GaugeMetricFamily("themis_gpus", "GPUs by what they are in", labels=["state"])
        counts: dict[str, int] = {str(state): count for state, count in ledger.counts().items()}
        # Whether a silent machine is well is not known.
        gone = [gpu for gpu in range(len(ledger)) if ledger.quarantine_reason(GpuId(gpu)) == GONE]
        counts[GpuState.QUARANTINED] = counts.get(GpuState.QUARANTINED, 0) - len(gone)
        names = (topology.machines[topology.seats[gpu].machine].name for gpu in gone)
        counts["absent"] = sum(name not in self._retired for name in names)
        for state in (*GpuState, "absent"):
            gpus.add_metric([state], counts.get(state, 0))
        return gpus

    def _unserved(self) -> Metric:
        apps = GaugeMetricFamily(
            "themis_unserved_apps",
            "Apps that want more, by reason",
            labels=["reason"],
        )
        counts = dict.fromkeys((reason for reason in Reason if reason not in _CONTENT), 0)
        steward, now = self._loop.steward, self._loop.now()
        runs = runs_by_app(steward)
        for state in steward.arbiter.world.apps.values():
            reason = reason_of(steward, state, runs.get(state.id, ()), now)
            if not state.outcome and reason in counts:
                counts[reason] += 1
        for reason, count in counts.items():
            apps.add_metric([reason], count)
        return apps
