"""A run of a script: its app, the nodes of its trials, and how Tune's trials follow them.

All of it happens in Tune's own loop, which calls its scheduler in every turn. The node server and
the agent of the app run in other threads; this only reads their state.
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
"""How much of its node's resource each bundle of a trial takes."""
ENDED = (Trial.TERMINATED, Trial.ERROR)


class ScriptRun:
    """The app, its trial nodes, and Tune's trials."""

    def __init__(
        self, service: ServiceAddress, settings: ScriptSettings, terms: TuneTerms, counts: str
    ) -> None:
        self._trials: dict[str, Trial] = {}
        """Tune's trials by job."""
        self._counts = counts
        self._asked = {"GPU": float(terms.gpus), **terms.resources}
        self._metric = terms.metric
        opened = open_script(
            service, settings, terms, ray.get_runtime_context().gcs_address, self._params
        )
        self._node_server, self._agent = opened.node_server, opened.agent
        self._mark = opened.mark
        self._books = TrialBook(opened.jobs)
        self._changes = 0
        self._known: tuple[int, tuple[tuple[str, str], ...]] | None = None
        self._wanted: list[Trial] = []
        atexit.register(self._close)

    @property
    def finished(self) -> bool:
        """Whether all trials and the app are over."""
        return self._agent.over.is_set() and self._all_over

    @property
    def app(self) -> str:
        """The name of the app."""
        return self._agent.app

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
            trial.update_resources(
                on_own_node(trial.placement_group_factory, self._resource(entry))
            )
        return True

    def heard(self, trial: Trial, result: Mapping[str, Any], decided: str) -> str:
        """Report a result as the job's, and decide about its trial."""
        self._changes += 1
        entry = self._entry(trial)
        node = self._node_server.node(entry.job)
        if node is not None:
            entry.node, entry.losing = node.key, False
            trial.max_failures = entry.allowed
        self._node_server.report(entry.job, self._iteration(result), self._values(result))
        return decide(entry, decided, node, saves=_saves(trial, result))

    def is_only_lost(self, trial: Trial) -> bool:
        """Whether a trial that failed, and that Tune is about to try again, only lost its lease."""
        entry = self._entry(trial)
        if not entry.losing or trial.status != Trial.ERROR:
            return False
        entry.lost += 1
        entry.node = None
        return True

    def conclude(
        self, trial: Trial, result: Mapping[str, Any] | None = None, *, failed: bool = False
    ) -> None:
        """End the job of a trial that is over."""
        self._changes += 1
        entry = self._entry(trial)
        entry.over = True
        result = result or trial.last_result or {}
        value = None if failed else self._values(result).get(self._metric or "")
        self._agent.conclude(JobId(entry.job), self._iteration(result), value)

    def finish(self) -> None:
        """End the jobs that got no trial: none is left, and none will come."""
        for job in self._books.unused:
            self._agent.conclude(JobId(job), 0.0, None)
        self._node_server.dismiss()  # Tune asks nothing any more.

    # In every turn

    def check(self) -> None:
        """Check that the app is under way; one whose agent failed is cancelled.

        Raises:
            TunerError: The app was ended by somebody else, or its agent failed.
        """
        if self._agent.error is not None:
            self._agent.cancel()  # It would hold GPUs without an agent.
            raise TunerError(self.app, f"its agent failed: {self._agent.error}")
        if self._agent.over.is_set() and not self._all_over:
            raise TunerError(self.app, "it was ended by somebody else: see themis status")

    def mind(self, controller: Any) -> None:
        """Pause trials whose node is gone or has to leave, and release nodes that are empty."""
        now = time.monotonic()
        for job, trial in self._trials.items():
            entry, node = self._entry(trial), self._node_server.node(job)
            if trial.status == Trial.RUNNING:
                if entry.node is None and node is not None:
                    entry.node = node.key
                if must_pause(entry, node, now) and not (trial.is_saving and node is not None):
                    self._take_off(controller, trial, entry)
            elif trial.status == Trial.PENDING:
                if entry.node is not None and (node is None or node.key != entry.node):
                    self._expect_loss(trial, entry)  # It may have been starting on it.
                entry.node = None if node is None else node.key
            else:
                entry.node = None
            if node is None:
                continue
            if gives_back(entry, node, _widest(trial), now):
                _LOG.warning("%s needs its GPUs on one machine: it asks again later", trial)
            leaving = node.leaving_since is not None
            if leaving and may_leave(trial.status, node, now, up=self._is_up(entry)):
                if trial.status == Trial.PENDING:
                    self._expect_loss(trial, entry)
                self._node_server.let_go(job)
        for job in tuple(self._agent.tuner.given_up):  # Another thread adds to it.
            trial = self._trials.get(job)
            if trial is not None and not self._entry(trial).over:
                _LOG.error(
                    "trial %s got no Ray node, see `themis logs %s %s`", trial, self.app, job
                )
                controller.stop_trial(trial)

    def wanted(self, controller: Any, wrapped: TrialScheduler) -> list[Trial]:
        """Trials that should run, with those that do."""
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
        """Let the jobs of all other trials want no GPUs."""
        parked = self._books.parked((each.trial_id for each in wanted), time.monotonic())
        self._agent.park(frozenset(map(JobId, parked)))

    def next_one(self, wanted: list[Trial]) -> Trial | None:
        """A trial whose node is up; paused ones first, since Ray starts the others itself."""
        for status in (Trial.PAUSED, Trial.PENDING):
            for trial in wanted:
                node = self._node_server.node(self._entry(trial).job)
                if trial.status == status and node is not None and node.leaving_since is None:
                    return trial
        return None

    # Details

    def _entry(self, trial: Trial) -> TuneTrial:
        return self._books.entries[trial.trial_id]

    def _expect_loss(self, trial: Trial, entry: TuneTrial) -> None:
        """Allow for one failure that Tune may see when the lease of a trial ends."""
        entry.losing = True
        trial.max_failures = entry.allowed

    def _take_off(self, controller: Any, trial: Trial, entry: TuneTrial) -> None:
        """Pause a trial without saving it."""
        self._expect_loss(trial, entry)
        entry.by_lease, entry.node = True, None
        if trial.is_saving:
            # Else Tune would remember to stop it after this save, and do so after the next one.
            trial.temporary_state.saving_to = None
        controller.pause_trial(trial, should_checkpoint=False)
        self._changes += 1

    def _params(self, job: str) -> Mapping[str, Any]:
        trial = self._trials.get(job)
        return {"trial": job} if trial is None else {**plain_values(trial.config), "trial": job}

    def _check_resources(self, trial: Trial) -> None:
        """Check that a trial asks for what the first one asked for: all jobs get the same."""
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
        """Leave nothing behind when the script ends."""
        self._agent.over.wait(5.0 if self._all_over else 0.0)
        self._agent.cancel()
        self._node_server.close()

    @property
    def _all_over(self) -> bool:
        return all(entry.over for entry in self._books.entries.values())


def on_own_node(factory: PlacementGroupFactory, resource: str) -> PlacementGroupFactory:
    """The request of a trial, which only its own node can satisfy."""
    bundles = [
        {name: value for name, value in bundle.items() if not name.startswith(MARK)}
        | {resource: _SHARE}
        for bundle in factory.bundles
    ]
    head: list[dict[str, float]] = [{}] if factory.head_bundle_is_empty else []
    return PlacementGroupFactory([*head, *bundles], strategy=factory.strategy)


def _widest(trial: Trial) -> float:
    """The GPUs of a trial's largest bundle, which must be on one machine."""
    return float(max(each.get("GPU", 0.0) for each in trial.placement_group_factory.bundles))


def _saves(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Whether a trial that is paused at this result loses nothing."""
    kind = trial.get_trainable_cls()
    if isinstance(kind, type) and issubclass(kind, FunctionTrainable):
        return bool(result.get("should_checkpoint"))
    return True


def _chosen(controller: Any, wrapped: TrialScheduler, most: int) -> Iterator[Trial]:
    """All trials that a scheduler would run; it names one at a time."""
    with _shown_as_running() as show:
        for _ in range(most):
            trial = wrapped.choose_trial_to_run(controller)
            if trial is None:
                return
            yield trial
            show(trial)


@contextmanager
def _shown_as_running() -> Iterator[Callable[[Trial], None]]:
    """Show trials as running within the context; Tune's own lists do not change."""
    before: list[tuple[Trial, str]] = []

    def show(trial: Trial) -> None:
        before.append((trial, trial.status))
        trial.status = Trial.RUNNING

    try:
        yield show
    finally:
        for trial, status in before:
            trial.status = status
