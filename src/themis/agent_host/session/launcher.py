"""Starts jobs: chooses parameters where the plan has none, and asks for a run."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from themis.agent_host.session.runs import RunTracker
from themis.agent_host.session.trials import TrialTable
from themis.apps.app_file import AppFile
from themis.apps.program import program_of
from themis.apps.search_space import Value
from themis.core.agent.commands import StartJob
from themis.core.model import JobId
from themis.core.tuners import Stepwise
from themis.protocol.agent_messages import RunRequest, TrialParams

ChooseParams = Callable[[JobId], Mapping[str, Value]]
"""Chooses the parameters of a trial that is about to begin."""


class JobLauncher:
    """Turns `StartJob` into messages."""

    def __init__(
        self,
        app: AppFile,
        trials: TrialTable,
        runs: RunTracker,
        *,
        choose: ChooseParams | None,
        own_tuner: Stepwise | None,
    ) -> None:
        self._app = app
        self._trials = trials
        self._runs = runs
        self._choose = choose
        self._own_tuner = own_tuner

    def launch(self, at: float, start: StartJob, level: int) -> Iterator[TrialParams | RunRequest]:
        """Ask for a run of a job, on GPUs that share this level of the topology."""
        job, trial = start.job, self._trials[start.job]
        if trial.open or trial.params is None:
            self._trials.set_params(job, self._chosen(job))
            yield TrialParams(job, json.dumps(trial.params))
        key = self._runs.request(job, start.gpus, at)
        where = (("THEMIS_GPU_COUNT", str(len(start.gpus))), ("THEMIS_LEVEL", str(level)))
        program = program_of(self._app, trial.params or {})
        program = replace(program, env=(*program.env, *where))
        limit = start.until if self._app.counts_iterations else 0.0
        yield RunRequest(job, start.gpus, program, key, limit)

    def _chosen(self, job: JobId) -> Mapping[str, Value]:
        params = self._trials[job].params
        if params is None and self._choose is not None:
            params = self._choose(job)
        if self._own_tuner is not None:
            params = self._own_tuner.suggested(job, params)
        return dict(params or {})
