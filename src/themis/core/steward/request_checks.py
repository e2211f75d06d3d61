"""Whether what an agent asks for can be."""

from themis.core.arbiter import Arbiter
from themis.core.steward.events import RunRequested
from themis.core.steward.run_table import Runbook


def objection(event: RunRequested, arbiter: Arbiter, book: Runbook) -> str:
    """Why a run cannot be; empty if it can."""
    state = arbiter.world.apps.get(event.app)
    if state is None or state.outcome:
        return "there is no such app, or it has ended"
    if event.job not in {job.id for job in state.spec.jobs}:
        return f"it has no job {event.job!r}"
    held = arbiter.ledger.holdings(event.app)
    if not event.gpus or any(gpu not in held for gpu in event.gpus):
        return "it does not hold these GPUs"
    for gpu in event.gpus:
        other = book.on_lease(gpu, held[gpu].token)
        if other is not None and not other.stop:
            return f"run {other.run} is on GPU {gpu}"
        release = book.releases.get(gpu)
        if release is not None and release.token == held[gpu].token:
            return f"it gave GPU {gpu} back"
    if any(not run.stop for run in book.of_job(event.app, event.job)):
        return f"job {event.job} is running"
    return ""
