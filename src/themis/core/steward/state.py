"""What the steward knows, and what a driver may read of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from themis.core.arbiter import Arbiter
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import AppId, JobId
from themis.core.steward.commands import AnswerReport, StewardCommand
from themis.core.steward.events import StewardEvent
from themis.core.steward.node_table import NodeEntry, Roster
from themis.core.steward.rows import AgentSession, Kept, RunEnd, WantedRun
from themis.core.steward.run_table import Runbook
from themis.core.steward.shared_storage import NodeStorage, sharing_of
from themis.core.steward.trials import Trials
from themis.errors import ConfigError
from themis.protocol.agent_messages import JobPast
from themis.protocol.metric_cursors import MetricCursors

NODE_TTL = 20.0
HEARTBEATS = 5
"""How many a node must live for: one that is answered late, and asks again, is not cut off."""


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """How a run is, as far as its node tells."""

    since: float
    """When it last got on: it began to run, or did another iteration."""
    trouble: str = ""
    """What of its metrics could not be read."""
    before: float = 0.0
    """Seconds that earlier runs of its job ran without another iteration, if it did none yet."""


class Knowing:
    """The state of the steward."""

    def __init__(
        self,
        arbiter: Arbiter,
        *,
        epoch: int,
        at: float,
        node_ttl: float = NODE_TTL,
        saved: Mapping[str, Kept] | None = None,
        nonce: str = "",
    ) -> None:
        """Begin, with what an earlier one kept.

        Args:
            arbiter: With its whole state.
            epoch: Of this start of the service; higher than all before.
            at: When it begins.
            node_ttl: For how long a node that hears nothing goes on.
            saved: Rows of an earlier steward.
            nonce: For marks in shared folders; one that was never used before.
        """
        _check_ttl(node_ttl, arbiter.settings.heartbeat)
        self._arbiter = arbiter
        self._epoch = epoch
        self._nonce = nonce or f"e{epoch}"
        self._node_ttl = node_ttl
        self._now = at
        self._book = Runbook(saved or {})
        self._book.note_ttl(max(self._book.longest_ttl, node_ttl))
        self._roster = Roster()
        self._streams = MetricCursors()
        self._wake = math.inf
        self._sessions = 0
        """How many were opened in this epoch."""
        self._asked: StewardEvent | None = None
        """What is being handled."""
        self._refusal: cmd.Refuse | None = None
        """Why that is not taken."""
        self._events: list[ev.Event] = []
        self._commands: list[StewardCommand] = []
        self._answers: list[AnswerReport] = []
        self._touched: dict[str, None] = {}
        self._ready: dict[str, None] = {}
        """Nodes whose kept report may have to be answered."""
        self._iterations: dict[int, tuple[float, float]] = {}
        """Iterations and seconds of runs as last reported; stored when a round needs them."""
        self._watched: dict[int, WatchedRun] = {}
        """How runs are, for people; what is lost with a restart is seen again."""
        self._quiet: dict[tuple[AppId, JobId], float] = {}
        """For how long the last runs of jobs had run without another iteration when they ended."""
        self._bound: dict[tuple[AppId, JobId], tuple[str, str]] = {}
        """Which machine jobs wait for, and why; each is asked for, and refused, again after a
        restart."""
        self._begun: dict[int, tuple[float, float]] = {}
        """The same as first reported: from then on a run is known to train."""
        self._log_sizes: dict[int, int] = {}
        """Bytes that runs have printed, as far as known."""

    # What a driver may read

    @property
    def arbiter(self) -> Arbiter:
        """The arbiter; read only."""
        return self._arbiter

    @property
    def epoch(self) -> int:
        """Of this start of the service."""
        return self._epoch

    @property
    def runs(self) -> Mapping[int, WantedRun]:
        """Runs that are not over, by number."""
        return self._book.runs

    @property
    def sessions(self) -> Mapping[AppId, AgentSession]:
        """Who speaks for each app."""
        return self._book.sessions

    @property
    def nodes(self) -> Mapping[str, NodeEntry]:
        """The nodes by name; read only."""
        return self._roster.nodes

    @property
    def trials(self) -> Trials:
        """What is kept of the trials of apps; read only."""
        return self._book.trials

    @property
    def kept(self) -> Mapping[str, Kept]:
        """Everything that must outlast this object, beside the arbiter."""
        return self._book.rows

    def last_runs(self, app: AppId) -> tuple[WantedRun | RunEnd, ...]:
        """The runs of an app that are not over, and the last one of each job that has none."""
        last: dict[JobId, RunEnd] = {row.job: row for row in self._book.results(app)}
        alive = [run for run in self._book.runs.values() if run.app == app]
        for run in alive:
            last.pop(run.job, None)
        return *alive, *last.values()

    def ended_runs(self, app: AppId) -> list[RunEnd]:
        """How runs of an app that goes on have ended, the first one first."""
        return self._book.results(app)

    def pasts(self, app: AppId, now: float) -> tuple[JobPast, ...]:
        """For how long jobs of an app have run, and how often they failed."""
        seconds: dict[JobId, float] = {}
        failures: dict[JobId, int] = {}
        for row in self._book.results(app):
            seconds[row.job] = seconds.get(row.job, 0.0) + row.seconds
            if row.failed:
                failures[row.job] = failures.get(row.job, 0) + 1
        for run in self._book.runs.values():
            if run.app == app and run.ordered:
                lasted = max(0.0, now - run.since)
                seconds[run.job] = seconds.get(run.job, 0.0) + lasted
        return tuple(JobPast(job, seconds[job], failures.get(job, 0)) for job in sorted(seconds))

    def progress(self, run: int) -> tuple[float, float]:
        """Iterations and seconds of training of a run, as last reported."""
        return self._iterations.get(run, (0.0, 0.0))

    def watched(self, run: int) -> "WatchedRun | None":
        """How a run is, if its node was heard since it began."""
        return self._watched.get(run)

    def bound(self, app: AppId, job: JobId) -> str:
        """Why a job waits for one machine; empty if it does not."""
        home, reason = self._bound.get((app, job), ("", ""))
        node, state = self._roster.nodes.get(home), self._arbiter.world.apps.get(app)
        if node is None or not node.present or (node.last is not None and node.last.shared_dir):
            return ""  # Its checkpoints are gone, or others see them since.
        progress = state.jobs.get(job) if state is not None else None
        if progress is None or progress.done >= progress.target:
            return ""
        given_up = any(said.job == job and said.failed for said in self.trials.reached(app))
        return "" if given_up else reason

    def fence_of(self, app: AppId) -> int:
        """The number of the session that is heard for an app; 0 if there is none."""
        session = self._book.sessions.get(app)
        return session.fence if session is not None else 0

    def session_of(self, app: AppId) -> str:
        """The session that is heard for an app; empty if there is none."""
        session = self._book.sessions.get(app)
        return session.session if session is not None else ""

    def sharing(self, node: NodeEntry) -> NodeStorage:
        """How a node is with shared storage."""
        return sharing_of(node, self._roster.nodes.values(), self._nonce)


def _check_ttl(node_ttl: float, heartbeat: float) -> None:
    if node_ttl < HEARTBEATS * heartbeat:
        allowed = f"{HEARTBEATS} heartbeats ({HEARTBEATS * heartbeat:g} s) or more"
        raise ConfigError("node_ttl", node_ttl, allowed)
