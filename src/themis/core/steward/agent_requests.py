"""Whether an agent's request for a run can be granted, and the run that it becomes."""

from collections.abc import Sequence

from themis.core.arbiter import Arbiter
from themis.core.model import AppId, GpuId, JobId
from themis.core.steward.components import Components
from themis.core.steward.node_table import NodeEntry, NodeTable
from themis.core.steward.rows import ActiveRun, RowChanges, RunEnd
from themis.core.steward.run_table import RunTable
from themis.core.steward.shared_storage import PlacementRefusal, binds, birth_of
from themis.protocol.agent_messages import RunRequest
from themis.protocol.node_messages import RunState


def request_run(
    app: AppId, request: RunRequest, arbiter: Arbiter, parts: Components
) -> tuple[int | PlacementRefusal, RowChanges]:
    """The number of the run, also if the request is repeated; or why it is refused."""
    known = parts.runs.requested(app, request.key)
    if known is not None:
        return known, {}
    objection = _objection(app, request, arbiter, parts.runs)
    if objection:
        return PlacementRefusal(objection), {}
    gpus = _by_rank(request.gpus, parts.nodes)
    saved_on = _saved_on(app, request.job, parts)
    machines = [parts.nodes.machine_of[gpu] for gpu in gpus]
    refusal = parts.storage.check(app, request.job, machines, saved_on)
    if refusal is not None:
        return refusal, {}
    state, held = arbiter.world.apps[app], arbiter.ledger.holdings(app)
    run, changes = parts.runs.add(
        app=app,
        owner=state.spec.owner,
        job=request.job,
        key=request.key,
        gpus=gpus,
        tokens=tuple(held[gpu].token for gpu in gpus),
        program=request.program,
        limit=request.limit,
        born=birth_of(app, state.spec.owner, state.submitted),
        note=_loss(saved_on, machines[0]),
    )
    return run.run, changes


def _objection(app: AppId, request: RunRequest, arbiter: Arbiter, runs: RunTable) -> str:
    """Why a run cannot be started; empty if it can."""
    state = arbiter.world.apps.get(app)
    if state is None or state.outcome:
        return "there is no such app, or it has ended"
    if request.job not in {job.id for job in state.spec.jobs}:
        return f"it has no job {request.job!r}"
    held = arbiter.ledger.holdings(app)
    if not request.gpus or any(gpu not in held for gpu in request.gpus):
        return "it does not hold these GPUs"
    for gpu in request.gpus:
        other = runs.under_lease(gpu, held[gpu].token)
        if other is not None and not other.stop:
            return f"run {other.run} is on GPU {gpu}"
        if runs.is_released(held[gpu]):
            return f"it gave GPU {gpu} back"
    if any(not run.stop for run in runs.of_job(app, request.job)):
        return f"job {request.job} is running"
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
