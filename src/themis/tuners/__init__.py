"""Tuners: pure decisions about which jobs of an app train on.

tuner = tuner_for(app)
tuner.begin()
"""

from themis.model import AppSpec
from themis.tuners.base import Decision, Finished, JobInfo, NextPhase, Tuner
from themis.tuners.halving import Halving
from themis.tuners.single import Single


def tuner_for(app: AppSpec) -> Tuner:
    """The tuner that an app's phases call for."""
    return Single(app.jobs, app.phases) if len(app.phases) == 1 else Halving(app.jobs, app.phases)


__all__ = [
    "Decision",
    "Finished",
    "Halving",
    "JobInfo",
    "NextPhase",
    "Single",
    "Tuner",
    "tuner_for",
]
