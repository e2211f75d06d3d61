"""No tuning: one phase, every job trains to its end, the best metric wins.

tuner = Single(app.jobs, app.phases)
"""

from collections.abc import Sequence

from themis.core.model import JobSpec, Phase
from themis.core.tuners.successive_halving import Halving
from themis.errors import ConfigError


class Single(Halving):
    """A single job, or a fixed set of jobs with a target each: halving with one phase."""

    def __init__(self, jobs: Sequence[JobSpec], phases: Sequence[Phase]) -> None:
        if len(phases) != 1:
            raise ConfigError("phases", len(phases), "one phase for an app without tuning")
        super().__init__(jobs, phases)
