"""Trials suggested by Optuna, by its ask-and-tell interface: Themis runs and ends the trials.

    search = OptunaSearch(search_space, Goal.MINIMIZE, phases=1, seed=7)
    search.choose(JobId("3"))            # {"lr": 0.0021}
    search.learn(said)                   # the agent's messages tell how trials went

The study is in memory: after a restart it is made again from what the service has kept of the app.
"""

import json
import random
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from themis.apps.app_file import Goal
from themis.apps.search_space import Choice, Parameter, Space, Value
from themis.core.model import JobId
from themis.errors import UnavailableError
from themis.protocol.agent_messages import AgentRequest, AgentStart, PhaseStart, Reached

if TYPE_CHECKING:
    import optuna


MISSING = (
    "search.method optuna needs the package optuna on the machine of the service: "
    "pip install 'themis-scheduler[optuna]'"
)


def is_able() -> bool:
    """Whether Optuna is installed on this machine."""
    return find_spec("optuna") is not None


class OptunaSearch:
    """One app's study."""

    def __init__(self, space: Space, goal: Goal, phases: int, seed: int) -> None:
        try:
            import optuna  # noqa: PLC0415 - in an extra
        except ImportError:
            raise UnavailableError(MISSING) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._space = {name: _distribution(optuna, each) for name, each in space.items()}
        self._choices = {name: each for name, each in space.items() if isinstance(each, Choice)}
        self._goal = goal
        self._phases = phases
        self._seed = seed
        self._begin()

    def _begin(self) -> None:
        self._study = self._optuna.create_study(direction=str(self._goal))
        self._asked = 0
        self._trials: dict[JobId, optuna.Trial] = {}
        """Trials that have not ended."""

    def choose(self, job: JobId) -> Mapping[str, Value]:
        """Parameters for a trial that begins."""
        trial = self._ask(job)
        return {
            name: self._choices[name].values[value] if name in self._choices else value
            for name, value in trial.params.items()
        }

    def _ask(self, job: JobId) -> "optuna.Trial":
        # Each trial has a random stream of its own, so that a restart changes no later trial.
        seed = random.Random(f"{self._seed}/{self._asked}").getrandbits(32)
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)
        self._asked += 1
        trial = self._trials[job] = self._study.ask(self._space)
        return trial

    def replay(self, start: AgentStart) -> None:
        """Begin again with the trials and results that the service has kept."""
        self._begin()
        for chosen in start.trials:
            self._study.enqueue_trial(self._stored(json.loads(chosen.params)))
            self._ask(chosen.job)
        for reached in start.reached:
            self._learn(reached)
        if start.targets:
            self._prune({job for job, _ in start.targets})

    def learn(self, said: Iterable[AgentRequest]) -> None:
        """Learn from the messages that the agent sends about its jobs."""
        for each in said:
            if isinstance(each, Reached):
                self._learn(each)
            elif isinstance(each, PhaseStart):
                self._prune({job for job, _ in each.targets})

    def _learn(self, reached: Reached) -> None:
        trial = self._trials.get(reached.job)
        if trial is None:
            return
        if reached.metric is None or reached.failed:
            del self._trials[reached.job]
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        elif self._phases == 1:
            del self._trials[reached.job]
            self._study.tell(trial, reached.metric)
        else:
            trial.report(reached.metric, int(reached.iterations))

    def _prune(self, going_on: set[JobId]) -> None:
        """End the trials that are not in the next phase, each with its last report."""
        for job in [job for job in self._trials if job not in going_on]:
            trial = self._trials.pop(job)
            self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def _stored(self, params: Mapping[str, Value]) -> dict[str, Any]:
        return {
            name: _index(self._choices[name], value) if name in self._choices else value
            for name, value in params.items()
        }


def _index(choice: Choice, value: Value) -> int:
    """The index of a value; True and 1 are not the same."""
    matches = (
        index
        for index, each in enumerate(choice.values)
        if each == value and isinstance(each, bool) == isinstance(value, bool)
    )
    return next(matches, 0)


def _distribution(optuna: Any, parameter: Parameter) -> Any:
    if isinstance(parameter, Choice):
        # By index: Optuna takes True and 1 for the same value.
        return optuna.distributions.CategoricalDistribution(list(range(len(parameter.values))))
    if parameter.kind == "int":
        return optuna.distributions.IntDistribution(int(parameter.low), int(parameter.high))
    return optuna.distributions.FloatDistribution(
        parameter.low, parameter.high, log=parameter.kind == "log"
    )
