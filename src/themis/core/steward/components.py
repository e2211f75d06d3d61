"""The components of the steward: each owns its state and returns what is to be stored and told."""

from collections.abc import Container, Mapping
from dataclasses import dataclass

from themis.core.model import AppId
from themis.core.steward.agent_sessions import AgentSessions
from themis.core.steward.job_logs import JobLogs
from themis.core.steward.metric_relay import MetricRelay
from themis.core.steward.node_table import NodeTable
from themis.core.steward.rows import (
    BestRow,
    CurveRow,
    LogsRow,
    LongestTtl,
    ReachedRow,
    SessionRow,
    StewardRow,
    TrialRow,
)
from themis.core.steward.run_progress import RunProgress
from themis.core.steward.run_table import RunTable
from themis.core.steward.shared_storage import SharedStorage
from themis.core.steward.trials import Trials


@dataclass(frozen=True, slots=True)
class ComponentTypes:
    """The classes of components; a simulation of faults swaps one."""

    nodes: type[NodeTable] = NodeTable
    runs: type[RunTable] = RunTable
    sessions: type[AgentSessions] = AgentSessions
    metrics: type[MetricRelay] = MetricRelay


STANDARD = ComponentTypes()


@dataclass(frozen=True, slots=True)
class Components:
    """One of each."""

    nodes: NodeTable
    runs: RunTable
    sessions: AgentSessions
    metrics: MetricRelay
    logs: JobLogs
    progress: RunProgress
    storage: SharedStorage
    trials: Trials

    @classmethod
    def restore(
        cls,
        saved: Mapping[str, StewardRow],
        apps: Container[AppId],
        *,
        epoch: int,
        node_ttl: float,
        nonce: str,
        types: ComponentTypes,
    ) -> "Components":
        """Components that go on from stored rows; `apps` has the active ones."""
        rows = saved.values()
        ttls = [row for row in rows if isinstance(row, LongestTtl)]
        nodes = types.nodes(ttls, epoch=epoch, node_ttl=node_ttl)
        runs = types.runs(rows)
        sessions = [row for row in rows if isinstance(row, SessionRow)]
        kinds = TrialRow | ReachedRow | CurveRow | BestRow
        return cls(
            nodes,
            runs,
            types.sessions(sessions, epoch=epoch),
            types.metrics(runs, nodes, apps),
            JobLogs(row for row in rows if isinstance(row, LogsRow)),
            RunProgress(),
            SharedStorage(nonce),
            Trials(row for row in rows if isinstance(row, kinds)),
        )
