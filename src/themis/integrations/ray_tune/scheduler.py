"""The scheduler that makes an app of a `Tuner(...)` script.

scheduler = ThemisScheduler(ASHAScheduler(max_t=100), name="resnet-lr")
tune.Tuner(tune.with_resources(train, {"gpu": 1}), tune_config=TuneConfig(scheduler=scheduler))

What is stopped or goes on is decided by the scheduler inside, from the same results as without
Themis. Which of the trials that should run do run is decided by leases.
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
            max_iterations: Of a trial at most, where neither the scheduler's `max_t` nor
                `RunConfig(stop=...)` says it.
            trials: How many there will be at most, where the search does not say it.
            iteration_seconds: What an iteration takes, if you know; it is measured anyway.
            grace: Seconds that a trial gets to its next checkpoint when its GPUs go.
            weight: Of the app.
            app: More keys of an app file, such as `{"retries": 5}`.
            server: `http://HOST:PORT` or `https://HOST:PORT`; by default THEMIS_SERVER.
            token: By default the one in the file that the command line uses.
            ca: Who signed the service's certificate (PEM); by default THEMIS_CA.
            agents: HOST:PORT where agents call, if it is not where the service says.
        """
        super().__init__()
        _quieten()
        self._wrapped = FIFOScheduler() if scheduler is None else scheduler
        self._wishes = ScriptSettings(
            name=name,
            max_iterations=max_iterations,
            trials=trials,
            iteration_seconds=iteration_seconds,
            grace=grace,
            weight=weight,
            app=dict(app or {}),
            service=(server, token, ca, agents),
        )
        self._session: ScriptRun | None = None
        self._alone = False
        self._metric: str | None = None
        self._mode: str | None = None

    # What Tune asks, passed on

    @property
    def metric(self) -> str | None:
        """What trials are compared by."""
        return getattr(self._wrapped, "metric", None) or self._metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """What `TuneConfig` says."""
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return bool(self._wrapped.set_search_properties(metric, mode, **spec))

    def debug_string(self) -> str:
        """For Tune's own display."""
        said = str(self._wrapped.debug_string())
        return said if self._session is None else f"Themis app {self._session.app}; {said}"

    def save(self, checkpoint_path: str) -> None:
        """Save the scheduler inside."""
        self._wrapped.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Restore the scheduler inside."""
        self._wrapped.restore(checkpoint_path)

    def __getstate__(self) -> dict[str, Any]:
        # Tune keeps a copy of what it was given; what is under way is of this process alone.
        # Nor is the token for its storage, which others may read: a copy looks for one in the file.
        server, _, ca, agents = self._wishes.service
        wishes = replace(self._wishes, service=(server, None, ca, agents))
        return {**self.__dict__, "_session": None, "_wishes": wishes}

    # Trials

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A trial that is new, or that Tune tries again."""
        session = self._session_for(tune_controller, trial)
        if session is not None and not session.add(trial):
            return
        self._wrapped.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """A trial failed; or its lease ended, which is none of the wrapped scheduler's business."""
        session = self._session
        if session is not None and session.is_only_lost(trial):
            return
        self._wrapped.on_trial_error(tune_controller, trial)
        if session is not None and trial.status != Trial.ERROR:  # ERROR: it is tried again.
            session.conclude(trial, failed=True)
            self._finish_if_over(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """What becomes of a trial that has reported."""
        decided = str(self._wrapped.on_trial_result(tune_controller, trial, result))
        return decided if self._session is None else self._session.heard(trial, result, decided)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """A trial that ran is over."""
        self._wrapped.on_trial_complete(tune_controller, trial, result)
        if self._session is not None:
            self._session.conclude(trial, result)
            self._finish_if_over(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A trial that did not run is over."""
        self._wrapped.on_trial_remove(tune_controller, trial)
        if self._session is not None:
            self._session.conclude(trial, trial.last_result)
            self._finish_if_over(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Who runs next; asked in every turn of Tune's loop, so all else is done here too."""
        session = self._session
        if session is None:
            return self._wrapped.choose_trial_to_run(tune_controller) if self._alone else None
        session.check()
        session.mind(tune_controller)
        wanted = session.wanted(tune_controller, self._wrapped)
        session.park(wanted)
        return session.next_one(wanted)

    def _finish_if_over(self, tune_controller: Any, last: Trial) -> None:
        assert self._session is not None
        trials = tune_controller.get_trials()
        if tune_controller.search_alg.is_finished() and all(
            each is last or each.status in ENDED for each in trials
        ):
            self._session.finish()

    def _session_for(self, tune_controller: Any, trial: Trial) -> "ScriptRun | None":
        if self._session is not None and self._session.finished:
            self._session = None  # The same scheduler, in another Tuner.
        if self._session is not None or self._alone:
            return self._session
        try:
            if not has_service(self._wishes.service[0]):
                raise MissingFileError("service", "THEMIS_SERVER, server= or a token")
            place = ServiceAddress.of(*self._wishes.service)
        except MissingFileError as error:
            _LOG.warning("no Themis service is configured (%s): trials run as without it", error)
            self._alone = True
            return None
        resources = trial.placement_group_factory.required_resources
        gpus = resources.get("GPU", 0.0)
        if gpus < 1.0 or not float(gpus).is_integer():
            raise ConfigError(
                "GPUs of a trial", gpus, 'whole ones: tune.with_resources(train, {"gpu": 1})'
            )
        terms = TuneTerms(
            trials=_count(tune_controller, self._wishes.trials),
            gpus=int(gpus),
            resources={
                name: value
                for name, value in resources.items()
                if name != "GPU" and not name.startswith(MARK)  # of an experiment that goes on
            },
            iterations=iteration_limit(
                self._wrapped, trial.stopping_criterion, self._wishes.max_iterations
            ),
            metric=self.metric,
            mode=getattr(self._wrapped, "_mode", None) or self._mode or "min",
            experiment=str(trial.storage.experiment_dir_name if trial.storage else "tune"),
            config=trial.config,
        )
        self._session = ScriptRun(place, self._wishes, terms, time_attribute(self._wrapped))
        return self._session


def _quieten() -> None:
    """Trials that wait for a lease are no trouble, and Ray would tell it again and again."""
    os.environ.setdefault("TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S", "86400")
    if os.environ.setdefault("RAY_SCHEDULER_EVENTS", "0") == "0":
        constants = getattr(ray._private, "ray_constants", None)  # It has read that already.
        if constants is not None and hasattr(constants, "AUTOSCALER_EVENTS"):
            constants.AUTOSCALER_EVENTS = 0


def _count(controller: Any, given: int | None) -> int:
    """How many trials there will be."""
    total = given or getattr(controller.search_alg, "total_samples", 0)
    if not isinstance(total, int | float) or total < 1 or not math.isfinite(total):
        raise ConfigError("trials", total, "how many there will be: ThemisScheduler(trials=...)")
    return int(total)
