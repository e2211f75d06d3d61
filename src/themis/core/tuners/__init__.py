"""Tuners: pure decisions about which jobs of an app train on.

tuner = tuner_for(app)                 # what its phases call for
tuner = tuner_for(app, "curves")       # one phase that watches the losses
tuner.begin()
"""

from collections.abc import Callable, Mapping

from themis.core.model import AppSpec
from themis.core.tuners.base import (
    AppProgress,
    Decision,
    Finished,
    IterationForecast,
    JobInfo,
    Known,
    NextPhase,
    Outlook,
    ResumableTuner,
    StopTraining,
    Tuner,
)
from themis.core.tuners.curve_stopping import CurveRule, Curves
from themis.core.tuners.hyperband import Hyperband, has_brackets, hyperband_phases, jobs_needed
from themis.core.tuners.loss_curves import CurveShape, Fit, LossCurve, fit_curves
from themis.core.tuners.single import Single
from themis.core.tuners.stepwise import Stepwise, Trial
from themis.core.tuners.successive_halving import Halving
from themis.errors import unknown_name

CURVES = "curves"
"""The one under which a trial may end at any time."""

TUNERS: Mapping[str, Callable[[AppSpec], Tuner]] = {
    "single": lambda app: Single(app.jobs, app.phases),
    "halving": lambda app: Halving(app.jobs, app.phases),
    "hyperband": lambda app: Hyperband(app.jobs, app.phases),
    CURVES: lambda app: Curves(app.jobs, app.phases),
}
"""Tuners by name; a new one is a file and a line here."""


def tuner_for(app: AppSpec, method: str = "") -> Tuner:
    """The tuner of this name, or the one that an app's phases call for.

    One phase needs no tuning, a phase with more jobs than the one before starts a bracket of
    Hyperband, all else is halving. Only curves look like no tuning and must be asked for.

    Raises:
        ConfigError: There is no such tuner, or it cannot train such phases.
    """
    if not method:
        if len(app.phases) == 1:
            method = "single"
        else:
            method = "hyperband" if has_brackets(app.phases) else "halving"
    make = TUNERS.get(method)
    if make is None:
        raise unknown_name("tuner", method, TUNERS)
    return make(app)


__all__ = [
    "CURVES",
    "TUNERS",
    "AppProgress",
    "CurveRule",
    "CurveShape",
    "Curves",
    "Decision",
    "Finished",
    "Fit",
    "Halving",
    "Hyperband",
    "IterationForecast",
    "JobInfo",
    "Known",
    "LossCurve",
    "NextPhase",
    "Outlook",
    "ResumableTuner",
    "Single",
    "Stepwise",
    "StopTraining",
    "Trial",
    "Tuner",
    "fit_curves",
    "has_brackets",
    "hyperband_phases",
    "jobs_needed",
    "tuner_for",
]
