"""The scheduler that makes a `Tuner(...)` script an app.

scheduler = ThemisScheduler(ASHAScheduler(max_t=100), name="resnet-lr")
tune.Tuner(tune.with_resources(train, {"gpu": 1}), tune_config=TuneConfig(scheduler=scheduler))

The scheduler inside decides which trials stop and go on, from the same results as without Themis.
Leases decide which of the trials that should run do run.
"""

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from themis.agent_host.own_tuner import ServiceAddress
from themis.errors import ConfigError, MissingFileError
from themis.integrations.ray_tune.script_app import MARK, ScriptSettings, TuneTerms, has_service
from themis.integrations.ray_tune.script_run import ENDED, ScriptRun
from themis.integrations.ray_tune.trial_rules import iteration_limit, time_attribute

_LOG = logging.getLogger(__name__)


class ThemisScheduler(TrialScheduler):  # type: ignore[misc] # Ray's classes are not typed here
    """Runs the trials of another scheduler on GPUs that Themis leases."""

    _supports_buffered_results = False

    def __init__(
        self,
        scheduler: TrialScheduler | None = None,
        *,
        name: str | None = None,
        max_iterations: int | None = None,
        trials: int | None = None,
        iteration_seconds: float | None = None,
        grace: float = 60.0,
        weight: float = 1.0,
        app: Mapping[str, Any] | None = None,
        server: str | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        agents: str | None = None,
    ) -> None:
        """Wrap a scheduler.

        Args:
            scheduler: ASHA, HyperBand or another; FIFO by default.
            name: Of the app; by default that of the experiment.
            max_iterations: The most iterations of a trial, where neither the scheduler's `max_t`
                nor `RunConfig(stop=...)` gives them.
            trials: The most trials, where the search does not give their number.
            iteration_seconds: The seconds of an iteration, if you know; they are measured anyway.
            grace: Seconds that a trial has until its next checkpoint when its GPUs are revoked.
            weight: The weight of the app.
            app: More keys of an app file, such as `{"retries": 5}`.
            server: `http://HOST:PORT` or `https://HOST:PORT`; by default THEMIS_SERVER.
            token: By default the one in the file that the command line uses.
            ca: The authority that signed the service's certificate (PEM); by default THEMIS_CA.
            agents: HOST:PORT of the service for agents, if it differs from what the service tells.
        """
        super().__init__()
        _quieten()
        self._wrapped = FIFOScheduler() if scheduler is None else scheduler
        self._settings = ScriptSettings(
            name=name,
            max_iterations=max_iterations,
            trials=trials,
            iteration_seconds=iteration_seconds,
            grace=grace,
            weight=weight,
            app=dict(app or {}),
            service=(server, token, ca, agents),
        )
        self._run: ScriptRun | None = None
        self._alone = False
        self._metric: str | None = None
        self._mode: str | None = None

    # Passed on to the scheduler inside

    @property
    def metric(self) -> str | None:
        """The metric that trials are compared by."""
        return getattr(self._wrapped, "metric", None) or self._metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take the metric and mode of `TuneConfig`."""
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return bool(self._wrapped.set_search_properties(metric, mode, **spec))

    def debug_string(self) -> str:
        """For Tune's own display."""
        said = str(self._wrapped.debug_string())
        return said if self._run is None else f"Themis app {self._run.app}; {said}"

    def save(self, checkpoint_path: str) -> None:
        """Save the scheduler inside."""
        self._wrapped.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Restore the scheduler inside."""
        self._wrapped.restore(checkpoint_path)

    def __getstate__(self) -> dict[str, Any]:
        # Tune stores a copy of the scheduler. A run belongs to this process alone, and others may
        # read the storage: a copy looks for a token in the file.
        server, _, ca, agents = self._settings.service
        settings = replace(self._settings, service=(server, None, ca, agents))
        return {**self.__dict__, "_run": None, "_settings": settings}

    # Trials

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Take a trial that is new, or that Tune tries again."""
        run = self._run_for(tune_controller, trial)
        if run is not None and not run.add(trial):
            return
        self._wrapped.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Pass a failure on, but not the end of a lease."""
        run = self._run
        if run is not None and run.is_only_lost(trial):
            return
        self._wrapped.on_trial_error(tune_controller, trial)
        if run is not None and trial.status != Trial.ERROR:  # ERROR: Tune tries it again.
            run.conclude(trial, failed=True)
            self._finish_if_over(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Decide about a trial that has reported."""
        decided = str(self._wrapped.on_trial_result(tune_controller, trial, result))
        return decided if self._run is None else self._run.heard(trial, result, decided)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Take a trial that ran and has ended."""
        self._wrapped.on_trial_complete(tune_controller, trial, result)
        if self._run is not None:
            self._run.conclude(trial, result)
            self._finish_if_over(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Take a trial that ended without running."""
        self._wrapped.on_trial_remove(tune_controller, trial)
        if self._run is not None:
            self._run.conclude(trial, trial.last_result)
            self._finish_if_over(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Choose a trial to run; Tune calls it in every turn, so all else is done here too."""
        run = self._run
        if run is None:
            return self._wrapped.choose_trial_to_run(tune_controller) if self._alone else None
        run.check()
        run.mind(tune_controller)
        wanted = run.wanted(tune_controller, self._wrapped)
        run.park(wanted)
        return run.next_one(wanted)

    def _finish_if_over(self, tune_controller: Any, last: Trial) -> None:
        assert self._run is not None
        trials = tune_controller.get_trials()
        if tune_controller.search_alg.is_finished() and all(
            each is last or each.status in ENDED for each in trials
        ):
            self._run.finish()

    def _run_for(self, tune_controller: Any, trial: Trial) -> "ScriptRun | None":
        if self._run is not None and self._run.finished:
            self._run = None  # The same scheduler, in another Tuner.
        if self._run is not None or self._alone:
            return self._run
        try:
            if not has_service(self._settings.service[0]):
                raise MissingFileError("service", "THEMIS_SERVER, server= or a token")
            address = ServiceAddress.of(*self._settings.service)
        except MissingFileError as error:
            _LOG.warning("no Themis service is configured (%s): trials run without it", error)
            self._alone = True
            return None
        resources = trial.placement_group_factory.required_resources
        gpus = resources.get("GPU", 0.0)
        if gpus < 1.0 or not float(gpus).is_integer():
            raise ConfigError(
                "GPUs of a trial", gpus, 'whole ones: tune.with_resources(train, {"gpu": 1})'
            )
        terms = TuneTerms(
            trials=_count(tune_controller, self._settings.trials),
            gpus=int(gpus),
            resources={
                name: value
                for name, value in resources.items()
                if name != "GPU" and not name.startswith(MARK)  # of an experiment that goes on
            },
            iterations=iteration_limit(
                self._wrapped, trial.stopping_criterion, self._settings.max_iterations
            ),
            metric=self.metric,
            mode=getattr(self._wrapped, "_mode", None) or self._mode or "min",
            experiment=str(trial.storage.experiment_dir_name if trial.storage else "tune"),
            config=trial.config,
        )
        self._run = ScriptRun(address, self._settings, terms, time_attribute(self._wrapped))
        return self._run


def _quieten() -> None:
    """Silence Ray's warnings about trials that wait for resources: they wait for a lease."""
    os.environ.setdefault("TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S", "86400")
    if os.environ.setdefault("RAY_SCHEDULER_EVENTS", "0") == "0":
        constants = getattr(ray._private, "ray_constants", None)  # It has read that already.
        if constants is not None and hasattr(constants, "AUTOSCALER_EVENTS"):
            constants.AUTOSCALER_EVENTS = 0


def _count(controller: Any, given: int | None) -> int:
    """The most trials that the search makes."""
    total = given or getattr(controller.search_alg, "total_samples", 0)
    if not isinstance(total, int | float) or total < 1 or not math.isfinite(total):
        raise ConfigError("trials", total, "their number: ThemisScheduler(trials=...)")
    return int(total)
