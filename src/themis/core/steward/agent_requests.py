"""Whether an agent's request for a run can be granted, and the run that it becomes."""

from collections.abc import Sequence

from themis.core.arbiter import Arbiter
from themis.core.model import AppId, GpuId, JobId
from themis.core.steward.components import Components
from themis.core.steward.events import RunRequested
from themis.core.steward.node_table import NodeEntry, NodeTable
from themis.core.steward.rows import ActiveRun, RowChanges, RunEnd
from themis.core.steward.run_table import RunTable
from themis.core.steward.shared_storage import PlacementRefusal, binds, birth_of
from themis.protocol.node_messages import RunState


def request_run(
    event: RunRequested, arbiter: Arbiter, parts: Components
) -> tuple[int | PlacementRefusal, RowChanges]:
    """The number of the run, also if the request is repeated; or why it is refused."""
    known = parts.runs.requested(event.app, event.key)
    if known is not None:
        return known, {}
    objection = _objection(event, arbiter, parts.runs)
    if objection:
        return PlacementRefusal(objection), {}
    gpus = _by_rank(event.gpus, parts.nodes)
    saved_on = _saved_on(event.app, event.job, parts)
    machines = [parts.nodes.machine_of[gpu] for gpu in gpus]
    refusal = parts.storage.check(event.app, event.job, machines, saved_on)
    if refusal is not None:
        return refusal, {}
    state, held = arbiter.world.apps[event.app], arbiter.ledger.holdings(event.app)
    run, changes = parts.runs.add(
        app=event.app,
        owner=state.spec.owner,
        job=event.job,
        key=event.key,
        gpus=gpus,
        tokens=tuple(held[gpu].token for gpu in gpus),
        program=event.program,
        limit=event.limit,
        born=birth_of(event.app, state.spec.owner, state.submitted),
        note=_loss(saved_on, machines[0]),
    )
    return run.run, changes


def _objection(event: RunRequested, arbiter: Arbiter, runs: RunTable) -> str:
    """Why a run cannot be started; empty if it can."""
    state = arbiter.world.apps.get(event.app)
    if state is None or state.outcome:
        return "there is no such app, or it has ended"
    if event.job not in {job.id for job in state.spec.jobs}:
        return f"it has no job {event.job!r}"
    held = arbiter.ledger.holdings(event.app)
    if not event.gpus or any(gpu not in held for gpu in event.gpus):
        return "it does not hold these GPUs"
    for gpu in event.gpus:
        other = runs.under_lease(gpu, held[gpu].token)
        if other is not None and not other.stop:
            return f"run {other.run} is on GPU {gpu}"
        if runs.is_released(held[gpu]):
            return f"it gave GPU {gpu} back"
    if any(not run.stop for run in runs.of_job(event.app, event.job)):
        return f"job {event.job} is running"
    return ""


def _by_rank(gpus: Sequence[GpuId], nodes: NodeTable) -> tuple[GpuId, ...]:
    """The GPUs of a run, each once: first those of the machine that has the first one."""
    machine_of = nodes.machine_of
    leader = machine_of[gpus[0]]
    return tuple(sorted(set(gpus), key=lambda gpu: (machine_of[gpu] is not leader, gpu)))


def _saved_on(app: AppId, job: JobId, parts: Components) -> NodeEntry | None:
    """The machine that has the checkpoints of a job, if it has any."""
    saved: list[ActiveRun | RunEnd] = [
        end for end in parts.runs.ends(app) if end.job == job and end.iterations > 0.0 and end.gpus
    ]
    saved += [r for r in parts.runs.of_job(app, job) if r.state is not RunState.STARTING]
    return parts.nodes.leader(saved[-1].gpus) if saved else None


def _loss(saved_on: NodeEntry | None, leader: NodeEntry) -> str:
    """What a job loses that begins again elsewhere."""
    if saved_on is None or saved_on is leader or saved_on.present or not binds(saved_on, leader):
        return ""
    return f"it begins anew: its checkpoints are on {saved_on.name}, which is gone"
