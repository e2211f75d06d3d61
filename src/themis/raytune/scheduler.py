"""The scheduler that makes an app of a `Tuner(...)` script.

scheduler = ThemisScheduler(ASHAScheduler(max_t=100), name="resnet-lr")
tune.Tuner(tune.with_resources(train, {"gpu": 1}), tune_config=TuneConfig(scheduler=scheduler))

What is stopped or goes on is decided by the scheduler inside, from the same results as without
Themis. Which of the trials that should run do run is decided by leases.
"""

import atexit
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.trainable import FunctionTrainable

from themis.errors import ConfigError, MissingFileError, TunerError
from themis.model import JobId
from themis.raytune.books import Books, Entry, decision, limit, may_go, must_leave, time_attribute
from themis.raytune.following import Follower
from themis.raytune.session import MARK, Terms, Wishes, configured, flat, open_session
from themis.tuning import Place

_LOG = logging.getLogger(__name__)
_SHARE = 0.001
"""How much of its seat's resource each part of a trial takes."""
_OVER = (Trial.TERMINATED, Trial.ERROR)


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
        self._wrapped = FIFOScheduler() if scheduler is None else scheduler
        self._wishes = Wishes(
            name=name,
            max_iterations=max_iterations,
            trials=trials,
            iteration_seconds=iteration_seconds,
            grace=grace,
            weight=weight,
            app=dict(app or {}),
            service=(server, token, ca, agents),
        )
        self._session: _Session | None = None
        self._alone = False
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
        return {**self.__dict__, "_session": None}

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
            each is last or each.status in _OVER for each in trials
        ):
            self._session.finish()

    def _session_for(self, tune_controller: Any, trial: Trial) -> "_Session | None":
        if self._session is not None or self._alone:
            return self._session
        try:
            if not configured(self._wishes.service[0]):
                raise MissingFileError("service", "THEMIS_SERVER, server= or a token")
            place = Place.of(*self._wishes.service)
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
        terms = Terms(
            trials=_count(tune_controller, self._wishes.trials),
            gpus=int(gpus),
            resources={name: value for name, value in resources.items() if name != "GPU"},
            iterations=limit(
                self._wrapped, trial.stopping_criterion, self._wishes.max_iterations
            ),
            metric=self.metric,
            mode=getattr(self._wrapped, "_mode", None) or self._mode or "min",
            experiment=str(trial.storage.experiment_dir_name if trial.storage else "tune"),
            config=trial.config,
        )
        self._session = _Session(place, self._wishes, terms, time_attribute(self._wrapped))
        return self._session


class _Session:
    """What is under way: the app, its seats, and Tune's trials."""

    def __init__(self, place: Place, wishes: Wishes, terms: Terms, counts: str) -> None:
        self._trials: dict[str, Trial] = {}
        """By job."""
        self._counts = counts
        self._metric = terms.metric
        opened = open_session(place, wishes, terms, ray.get_runtime_context().gcs_address, self._params)
        self._floor, self._follower = opened.floor, opened.follower
        self._mark = opened.mark
        self._books = Books(opened.jobs)
        self._changes = 0
        self._known: tuple[int, tuple[tuple[str, str], ...]] | None = None
        self._wanted: list[Trial] = []
        atexit.register(self._close)

    @property
    def app(self) -> str:
        """Its name."""
        return self._follower.app

    @property
    def follower(self) -> Follower:
        """Who speaks for the app."""
        return self._follower

    def add(self, trial: Trial) -> bool:
        """Give a trial its job; returns whether it is new to the wrapped scheduler too."""
        self._changes += 1
        entry = self._books.entries.get(trial.trial_id)
        if entry is not None:
            again, entry.losing = entry.losing, False
            return not again
        entry = self._books.add(trial.trial_id, trial.max_failures)
        if entry is None:
            most = len(self._books.jobs)
            raise ConfigError("trials", most + 1, f"{most} as declared; ThemisScheduler(trials=...)")
        self._trials[entry.job] = trial
        if trial.status in _OVER:  # of an experiment that goes on
            self.conclude(trial, trial.last_result)
        else:
            trial.update_resources(seated(trial.placement_group_factory, self._resource(entry)))
        return True

    def heard(self, trial: Trial, result: Mapping[str, Any], decided: str) -> str:
        """Pass a result on, and say what becomes of the trial."""
        self._changes += 1
        entry = self._entry(trial)
        seat = self._floor.seat(entry.job)
        if seat is not None:
            entry.seat, entry.losing = seat.key, False
            trial.max_failures = entry.allowed
        self._floor.report(entry.job, self._iteration(result), self._values(result))
        return decision(entry, decided, seat, saves=_saves(trial, result))

    def is_only_lost(self, trial: Trial) -> bool:
        """Whether a trial that Tune is about to try again just had no GPUs any more."""
        entry = self._entry(trial)
        if not entry.losing or trial.status != Trial.ERROR:
            return False
        entry.lost += 1
        entry.seat = None
        return True

    def conclude(
        self, trial: Trial, result: Mapping[str, Any] | None = None, *, failed: bool = False
    ) -> None:
        """A trial is over."""
        self._changes += 1
        entry = self._entry(trial)
        entry.over = True
        result = result or trial.last_result or {}
        value = None if failed else self._values(result).get(self._metric or "")
        self._follower.conclude(JobId(entry.job), self._iteration(result), value)
        self._floor.let_go(entry.job)

    def finish(self) -> None:
        """No trial is left, and none will come."""
        for job in self._books.unused:
            self._follower.conclude(JobId(job), 0.0, None)

    # In every turn

    def check(self) -> None:
        """See that the app is still there.

        Raises:
            TunerError: It is not: somebody cancelled it, or another error ended the talk.
        """
        if self._follower.error is not None:
            raise TunerError(self.app, f"nobody speaks for it: {self._follower.error}")
        if self._follower.over.is_set() and not all(
            entry.over for entry in self._books.entries.values()
        ):
            raise TunerError(self.app, "it was ended by somebody else: themis status tells by whom")

    def mind(self, controller: Any) -> None:
        """Get trials off seats that are gone or about to go, and let those go that are empty."""
        now = time.monotonic()
        for job, trial in self._trials.items():
            entry = self._entry(trial)
            seat = self._floor.seat(job)
            if trial.status == Trial.RUNNING:
                if entry.seat is None and seat is not None:
                    entry.seat = seat.key
                if must_leave(entry, seat, now) and not (trial.is_saving and seat is not None):
                    self._expect_loss(trial, entry)
                    entry.by_lease, entry.seat = True, None
                    controller.pause_trial(trial, should_checkpoint=False)
                    self._changes += 1
            elif trial.status == Trial.PENDING and entry.seat is not None and seat is None:
                entry.seat = None
            if seat is not None and may_go(trial.status, seat, now, up=self._is_up(entry)):
                if trial.status == Trial.PENDING:
                    self._expect_loss(trial, entry)
                self._floor.let_go(job)
        for job in self._follower.mirror.given_up:
            trial = self._trials.get(job)
            if trial is not None and not self._entry(trial).over:
                _LOG.error("trial %s got no Ray node, see `themis logs %s %s`", trial, self.app, job)
                controller.stop_trial(trial)

    def wanted(self, controller: Any, wrapped: TrialScheduler) -> list[Trial]:
        """Trials that should run, those that do among them."""
        trials = controller.get_trials()
        known = self._changes, tuple((each.trial_id, each.status) for each in trials)
        if known != self._known:
            chosen = set(_chosen(controller, wrapped, len(trials)))
            self._wanted = [
                each
                for each in trials
                if each.status in {Trial.PENDING, Trial.RUNNING}
                or (each.status == Trial.PAUSED and (self._entry(each).by_lease or each in chosen))
            ]
            self._known = known
        return self._wanted

    def park(self, wanted: list[Trial]) -> None:
        """Say which jobs want no GPUs."""
        parked = self._books.parked(each.trial_id for each in wanted)
        self._follower.park(frozenset(map(JobId, parked)))

    def next_one(self, wanted: list[Trial]) -> Trial | None:
        """A trial whose seat is there; those that are paused first, Ray starts the others itself."""
        for status in (Trial.PAUSED, Trial.PENDING):
            for trial in wanted:
                seat = self._floor.seat(self._entry(trial).job)
                if trial.status == status and seat is not None and seat.leaving_since is None:
                    return trial
        return None

    # How

    def _entry(self, trial: Trial) -> Entry:
        return self._books.entries[trial.trial_id]

    def _expect_loss(self, trial: Trial, entry: Entry) -> None:
        """What Tune may see of the end of a lease is no failure of the trial."""
        entry.losing = True
        trial.max_failures = entry.allowed

    def _params(self, job: str) -> Mapping[str, Any]:
        trial = self._trials.get(job)
        return {"trial": job} if trial is None else {**flat(trial.config), "trial": job}

    def _resource(self, entry: Entry) -> str:
        return f"{self._mark}{entry.job}"

    def _is_up(self, entry: Entry) -> bool:
        return self._resource(entry) in ray.cluster_resources()

    def _iteration(self, result: Mapping[str, Any]) -> float:
        value = result.get(self._counts, result.get("training_iteration", 0))
        return float(value) if isinstance(value, int | float) else 0.0

    def _values(self, result: Mapping[str, Any]) -> dict[str, float]:
        value = result.get(self._metric) if self._metric else None
        if self._metric is None or isinstance(value, bool):
            return {}
        try:
            return {self._metric: float(value)}  # type: ignore[arg-type] # None is no number
        except (TypeError, ValueError):
            return {}

    def _close(self) -> None:
        """The script ends: nothing is left behind."""
        if not self._follower.over.wait(5.0 if self._all_over else 0.0):
            self._follower.cancel()
        self._floor.close()

    @property
    def _all_over(self) -> bool:
        return all(entry.over for entry in self._books.entries.values())


def seated(factory: PlacementGroupFactory, resource: str) -> PlacementGroupFactory:
    """What a trial asks for, so that only its own seat has it."""
    bundles = [
        {name: value for name, value in bundle.items() if not name.startswith(MARK)}
        | {resource: _SHARE}
        for bundle in factory.bundles
    ]
    head = [{}] if factory.head_bundle_is_empty else []
    return PlacementGroupFactory([*head, *bundles], strategy=factory.strategy)


def _saves(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Whether nothing is lost if a trial is paused at this result."""
    kind = trial.get_trainable_cls()
    if isinstance(kind, type) and issubclass(kind, FunctionTrainable):
        return bool(result.get("should_checkpoint"))
    return True


def _count(controller: Any, given: int | None) -> int:
    """How many trials there will be."""
    total = given or getattr(controller.search_alg, "total_samples", 0)
    if not isinstance(total, int | float) or total < 1 or not math.isfinite(total):
        raise ConfigError("trials", total, "how many there will be: ThemisScheduler(trials=...)")
    return int(total)


def _chosen(controller: Any, wrapped: TrialScheduler, most: int) -> Iterator[Trial]:
    """All trials that a scheduler would run, one after the other, though it names one at a time."""
    with _shown_as_running() as show:
        for _ in range(most):
            trial = wrapped.choose_trial_to_run(controller)
            if trial is None:
                return
            yield trial
            show(trial)


@contextmanager
def _shown_as_running() -> Iterator[Any]:
    """Let trials look as if they ran, for a while; Tune's own lists are not touched."""
    before: list[tuple[Trial, str]] = []

    def show(trial: Trial) -> None:
        before.append((trial, trial.status))
        trial.status = Trial.RUNNING

    try:
        yield show
    finally:
        for trial, status in before:
            trial.status = status
