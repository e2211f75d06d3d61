"""A script under way: its app, the seats of its trials, and what Tune does with them.

Everything here happens in Tune's own loop, which asks its scheduler in every turn: seats and the
agent of the app are in other threads, and are only looked at.
"""

import atexit
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.trainable import FunctionTrainable

from themis.agent_host.own_tuner import ServiceAddress
from themis.core.model import JobId
from themis.errors import ConfigError, TunerError
from themis.integrations.ray_tune.script_app import (
    MARK,
    ScriptSettings,
    TuneTerms,
    open_script,
    plain_values,
)
from themis.integrations.ray_tune.trial_rules import (
    TrialBook,
    TuneTrial,
    decide,
    gives_back,
    may_leave,
    must_pause,
)

_LOG = logging.getLogger(__name__)
_SHARE = 0.001
"""How much of its seat's resource each part of a trial takes."""
ENDED = (Trial.TERMINATED, Trial.ERROR)


class ScriptRun:
    """What is under way: the app, its seats, and Tune's trials."""

    def __init__(
        self, place: ServiceAddress, wishes: ScriptSettings, terms: TuneTerms, counts: str
    ) -> None:
        self._trials: dict[str, Trial] = {}
        """By job."""
        self._counts = counts
        self._asked = {"GPU": float(terms.gpus), **terms.resources}
        self._metric = terms.metric
        opened = open_script(
            place, wishes, terms, ray.get_runtime_context().gcs_address, self._params
        )
        self._floor, self._follower = opened.floor, opened.follower
        self._mark = opened.mark
        self._books = TrialBook(opened.jobs)
        self._changes = 0
        self._known: tuple[int, tuple[tuple[str, str], ...]] | None = None
        self._wanted: list[Trial] = []
        atexit.register(self._close)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self._follower.over.is_set() and self._all_over

    @property
    def app(self) -> str:
        """Its name."""
        return self._follower.app

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
            raise ConfigError(
                "trials", most + 1, f"{most} as declared; ThemisScheduler(trials=...)"
            )
        self._check_resources(trial)
        self._trials[entry.job] = trial
        if trial.status in ENDED:  # of an experiment that goes on
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
        return decide(entry, decided, seat, saves=_saves(trial, result))

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

    def finish(self) -> None:
        """No trial is left, and none will come."""
        for job in self._books.unused:
            self._follower.conclude(JobId(job), 0.0, None)
        self._floor.dismiss()  # Tune asks nothing any more.

    # In every turn

    def check(self) -> None:
        """See that the app is still there; one that nobody can speak for is cancelled.

        Raises:
            TunerError: It is not: somebody cancelled it, or another error ended the talk.
        """
        if self._follower.error is not None:
            self._follower.cancel()  # It would hold GPUs, and wait for an agent that cannot be.
            raise TunerError(self.app, f"nobody speaks for it: {self._follower.error}")
        if self._follower.over.is_set() and not self._all_over:
            raise TunerError(self.app, "it was ended by somebody else: themis status tells by whom")

    def mind(self, controller: Any) -> None:
        """Get trials off seats that are gone or about to go, and let those go that are empty."""
        now = time.monotonic()
        for job, trial in self._trials.items():
            entry, seat = self._entry(trial), self._floor.seat(job)
            if trial.status == Trial.RUNNING:
                if entry.seat is None and seat is not None:
                    entry.seat = seat.key
                if must_pause(entry, seat, now) and not (trial.is_saving and seat is not None):
                    self._take_off(controller, trial, entry)
            elif trial.status == Trial.PENDING:
                if entry.seat is not None and (seat is None or seat.key != entry.seat):
                    self._expect_loss(trial, entry)  # It may have been starting there.
                entry.seat = None if seat is None else seat.key
            else:
                entry.seat = None
            if seat is None:
                continue
            if gives_back(entry, seat, _widest(trial), now):
                _LOG.warning("%s needs its GPUs on one machine: it asks again later", trial)
            leaving = seat.leaving_since is not None
            if leaving and may_leave(trial.status, seat, now, up=self._is_up(entry)):
                if trial.status == Trial.PENDING:
                    self._expect_loss(trial, entry)
                self._floor.let_go(job)
        for job in tuple(self._follower.mirror.given_up):  # The agent's thread adds to it.
            trial = self._trials.get(job)
            if trial is not None and not self._entry(trial).over:
                _LOG.error(
                    "trial %s got no Ray node, see `themis logs %s %s`", trial, self.app, job
                )
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
        parked = self._books.parked((each.trial_id for each in wanted), time.monotonic())
        self._follower.park(frozenset(map(JobId, parked)))

    def next_one(self, wanted: list[Trial]) -> Trial | None:
        """A trial whose seat is there; paused ones first, since Ray starts the others itself."""
        for status in (Trial.PAUSED, Trial.PENDING):
            for trial in wanted:
                seat = self._floor.seat(self._entry(trial).job)
                if trial.status == status and seat is not None and seat.leaving_since is None:
                    return trial
        return None

    # How

    def _entry(self, trial: Trial) -> TuneTrial:
        return self._books.entries[trial.trial_id]

    def _expect_loss(self, trial: Trial, entry: TuneTrial) -> None:
        """What Tune may see of the end of a lease is no failure of the trial."""
        entry.losing = True
        trial.max_failures = entry.allowed

    def _take_off(self, controller: Any, trial: Trial, entry: TuneTrial) -> None:
        """Pause a trial as it is."""
        self._expect_loss(trial, entry)
        entry.by_lease, entry.seat = True, None
        if trial.is_saving:
            # Tune would else note that it is to be stopped after the save, and do so at the next.
            trial.temporary_state.saving_to = None
        controller.pause_trial(trial, should_checkpoint=False)
        self._changes += 1

    def _params(self, job: str) -> Mapping[str, Any]:
        trial = self._trials.get(job)
        return {"trial": job} if trial is None else {**plain_values(trial.config), "trial": job}

    def _check_resources(self, trial: Trial) -> None:
        """See that a trial fits the seat that its job gets: all of an app ask for the same."""
        asked = trial.placement_group_factory.required_resources
        for name, value in asked.items():
            if not name.startswith(MARK) and value != self._asked.get(name):
                allowed = f"{self._asked.get(name, 0.0):g}, as of the first trial"
                raise ConfigError(f"{name} of {trial}", value, allowed)

    def _resource(self, entry: TuneTrial) -> str:
        return f"{self._mark}{entry.job}"

    def _is_up(self, entry: TuneTrial) -> bool:
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
        self._follower.over.wait(5.0 if self._all_over else 0.0)
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
    head: list[dict[str, float]] = [{}] if factory.head_bundle_is_empty else []
    return PlacementGroupFactory([*head, *bundles], strategy=factory.strategy)


def _widest(trial: Trial) -> float:
    """The GPUs that the largest part of a trial needs on one machine."""
    return float(max(each.get("GPU", 0.0) for each in trial.placement_group_factory.bundles))


def _saves(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Whether nothing is lost if a trial is paused at this result."""
    kind = trial.get_trainable_cls()
    if isinstance(kind, type) and issubclass(kind, FunctionTrainable):
        return bool(result.get("should_checkpoint"))
    return True


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
def _shown_as_running() -> Iterator[Callable[[Trial], None]]:
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
