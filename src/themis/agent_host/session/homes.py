"""Jobs that can go on only on the machine that has their checkpoints.

The service refuses a run on another machine and names the job's home. From then on jobs are bound
to the machines that they report from, so that none is moved where it would be refused.
"""

import math

from themis.core.agent.events import JobBound
from themis.core.model import JobId

BINDING_SECONDS = 60.0
"""How long a job waits for its home before it may try another machine: its home may be gone."""


class HomeMachines:
    """Which job is bound to which machine, and until when."""

    def __init__(self) -> None:
        self._home: dict[JobId, int] = {}
        self._until: dict[JobId, float] = {}
        self._needed = False
        """Whether some run was refused because its checkpoints are elsewhere."""

    def clear(self) -> None:
        """Forget all bindings; that checkpoints are not shared is remembered."""
        self._home, self._until = {}, {}

    def refuse(self, at: float, job: JobId, machine: int) -> JobBound | None:
        """Take a refusal that names a home; None if the job is bound there already."""
        if self._home.get(job) == machine:
            return None
        self._needed = True
        return self._bind(at, job, machine)

    def report(self, at: float, job: JobId, machine: int) -> JobBound | None:
        """Take a report from a machine: its checkpoints are there, if they are not shared."""
        if not self._needed or self._home.get(job) == machine:
            return None
        return self._bind(at, job, machine)

    def _bind(self, at: float, job: JobId, machine: int) -> JobBound:
        self._home[job], self._until[job] = machine, at + BINDING_SECONDS
        return JobBound(at, job, machine)

    def expire(self, at: float, job: JobId, *, running: bool) -> JobBound | None:
        """Release a job that has waited for its home; one that runs stays bound for longer."""
        if self._until.get(job, math.inf) > at:
            return None
        if running:
            self._until[job] = at + BINDING_SECONDS
            return None
        del self._home[job], self._until[job]
        return JobBound(at, job, None)

    @property
    def next_expiry(self) -> float:
        """When the first binding ends; infinity if there is none."""
        return min(self._until.values(), default=math.inf)
