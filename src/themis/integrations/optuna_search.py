"""Trials suggested by Optuna, by asking and telling: Themis owns their lives.

    suggesting = Suggesting(search.params, Goal.MINIMIZE, phases=1, seed=7)
    suggesting.choose(JobId("3"))        # {"lr": 0.0021}
    suggesting.note(said)                # what became of earlier ones

The study is in memory: what it must know after a restart is what the service has kept of the app.
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
from themis.protocol.agent_messages import AgentStart, PhaseSaid, Reached, ReachedSaid, Said

if TYPE_CHECKING:
    import optuna


MISSING = (
    "search.method optuna needs the package optuna on the machine of the service: "
    "pip install 'themis-scheduler[optuna]'"
)


def is_able() -> bool:
    """Whether trials can be suggested on this machine."""
    return find_spec("optuna") is not None


class Suggesting:
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
        """Those that are not over."""

    def choose(self, job: JobId) -> Mapping[str, Value]:
        """Parameters for a trial that begins."""
        trial = self._ask(job)
        return {
            name: self._choices[name].values[value] if name in self._choices else value
            for name, value in trial.params.items()
        }

    def _ask(self, job: JobId) -> "optuna.Trial":
        # Chance of its own for each trial: what is chosen after a restart is what would have been
        # chosen without one, and not what the first trials had.
        seed = random.Random(f"{self._seed}/{self._asked}").getrandbits(32)
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)
        self._asked += 1
        trial = self._trials[job] = self._study.ask(self._space)
        return trial

    def relive(self, standing: AgentStart) -> None:
        """Begin again with what was chosen and found before."""
        self._begin()
        for chosen in standing.trials:
            fixed = self._fixed(json.loads(chosen.params))
            self._study.enqueue_trial(fixed)
            self._ask(chosen.job)
        for reached in standing.reached:
            self._reached(reached)
        if standing.targets:
            self._prune({job for job, _ in standing.targets})

    def note(self, said: Iterable[Said]) -> None:
        """Learn from what the agent says of its jobs."""
        for each in said:
            if isinstance(each, ReachedSaid):
                self._reached(each.reached)
            elif isinstance(each, PhaseSaid):
                self._prune({job for job, _ in each.targets})

    def _reached(self, reached: Reached) -> None:
        trial = self._trials.get(reached.job)
        if trial is None:
            return
        state = self._optuna.trial.TrialState
        if reached.metric is None or reached.failed:
            del self._trials[reached.job]
            self._study.tell(trial, state=state.FAIL)
        elif self._phases == 1:
            del self._trials[reached.job]
            self._study.tell(trial, reached.metric)
        else:
            trial.report(reached.metric, int(reached.iterations))

    def _prune(self, going_on: set[JobId]) -> None:
        """Trials that do not go on are told to have been pruned, with the last they reported."""
        started = [job for job in self._trials if job not in going_on]
        for job in started:
            trial = self._trials.pop(job)
            self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def _fixed(self, params: Mapping[str, Value]) -> dict[str, Any]:
        return {
            name: _place(self._choices[name], value) if name in self._choices else value
            for name, value in params.items()
        }


def _place(choice: Choice, value: Value) -> int:
    """Where a value stands; True and 1 are not the same."""
    places = [
        place
        for place, each in enumerate(choice.values)
        if each == value and isinstance(each, bool) == isinstance(value, bool)
    ]
    return places[0] if places else 0


def _distribution(optuna: Any, parameter: Parameter) -> Any:
    if isinstance(parameter, Choice):
        # By their places: Optuna takes True and 1 for the same.
        return optuna.distributions.CategoricalDistribution(list(range(len(parameter.values))))
    if parameter.kind == "int":
        return optuna.distributions.IntDistribution(int(parameter.low), int(parameter.high))
    return optuna.distributions.FloatDistribution(
        parameter.low, parameter.high, log=parameter.kind == "log"
    )
