"""How runs of jobs end: done, gone on with, tried again or given up; and where jobs may run."""

import math

from themis.agent_host.session.metrics import Measuring
from themis.agent_host.session.outgoing import (
    FIRST_WAIT,
    LONGEST_WAIT,
    RESUMABLE,
    SLACK,
    RequestedRun,
)
from themis.core.agent import events as ev
from themis.core.model import JobId
from themis.protocol.agent_messages import (
    Reached,
    ReachedSaid,
    RefusalNews,
    RunNews,
    StopSaid,
)
from themis.protocol.node_messages import RunState, early_end, no_metric


class Minding(Measuring):
    """The part of an agency that minds its runs."""

    def _complete(self, run: RunNews) -> bool:
        """Whether a run ended because its job is where it had to be in this phase."""
        target, trial = self._target(run.job), self._trials[run.job]
        if target is None:
            return False
        if run.code == RESUMABLE and self._app.counted and run.iterations > target + SLACK:
            return True  # It does not stop by itself: it was told to, further than it had to go.
        if run.code != 0:
            return False
        if not self._app.counted or not trial.spoke:
            return True  # It never says how far it is, and knows best when it is done.
        return max(run.iterations, trial.done) >= target - SLACK

    def _on_run(self, news: RunNews) -> None:
        job = news.job
        run = self._runs.get(job)
        if run is None or run.key != news.key:
            if news.state.over:
                self._gone(news)
            return
        known, run.number = run.number, news.run
        if run.stopping and not known:
            self._say(StopSaid(news.run))
        if news.state is RunState.RUNNING:
            if not run.ran:
                run.running_since = self._at
            run.ran, self._trials[job].false_starts = True, 0
            self._note_done(news)
        if news.state.over:
            del self._runs[job]
            self._trials[job].spent += max(0.0, self._at - run.began)
            self._note_done(news)
            self._ended(news, run)

    def _gone(self, news: RunNews) -> None:
        """A run is over that was told to go; it may have been done before it heard that."""
        going = self._going.pop(news.key, None)
        self._note_done(news)
        if going is not None and going.told_at is not None and news.code == RESUMABLE:
            self._tell(ev.MoveTimed(self._at, checkpoint=self._at - going.told_at))
        if going is not None and self._complete(news):
            self._stop(news.job)
            self._judge(news.job)

    def _note_done(self, news: RunNews) -> None:
        trial = self._trials[news.job]
        if news.iterations > trial.done:
            trial.done = news.iterations
            self._tell(ev.Progressed(self._at, ((news.job, self._trained(news.job)),)))

    def _ended(self, news: RunNews, run: RequestedRun) -> None:
        """A run is over that nobody told to go, or whose end crossed that."""
        job, trial = news.job, self._trials[news.job]
        target = self._target(job)
        if target is None:
            return
        if self._complete(news):
            self._judge(job)
        elif not (run.ran or run.stopping or trial.spoke) and news.state is RunState.LOST:
            self._false_start(job, news.message or "it could not be started")
        elif self._may_go_on(news, run):
            self._tell(ev.JobLost(self._at, job, self._trained(job)))
        elif news.code == 0:
            self._fail(job, early_end(trial.done, target))
        else:
            self._fail(job, news.message or f"it exited with {news.code}")

    def _may_go_on(self, news: RunNews, run: RequestedRun) -> bool:
        """Whether a job that ended did nothing wrong, and goes on where it was."""
        if run.stopping or news.state is RunState.LOST:
            return True
        leases = [self._leases.get(gpu) for gpu in run.gpus]
        if any(lease is None or lease.end <= self._at for lease in leases):
            return True  # Its node ended it with its lease.
        # One that saves and goes before it got anywhere would do so for ever. Those that never say
        # how far they are did no wrong if they were told to: a lease may be renewed too late.
        return news.code == RESUMABLE and (run.last is not None or news.told)

    def _judge(self, job: JobId) -> None:
        """A job is done, unless it had to say how good it is and did not."""
        trial = self._trials[job]
        if trial.measured or not self._app.judged:
            self._arrive(job)
        elif trial.spoke:
            self._give_up(job, no_metric(self._app.metric.name))  # It would say the same again.
        else:
            self._fail(job, no_metric(self._app.metric.name))

    def _arrive(self, job: JobId) -> None:
        self._note_reached(job, "")
        self._tell_progress()
        self._tell(ev.JobReached(self._at, job, self._cost(self._trials[job].metric)))
        self._pass_over_failed()

    def _note_reached(self, job: JobId, failed: str) -> None:
        trial = self._trials[job]
        target = self._target(job)
        if not failed and target is not None:
            trial.done = max(trial.done, target)
        self._say(ReachedSaid(Reached(job, trial.done, trial.metric, failed)))

    def _false_start(self, job: JobId, why: str) -> None:
        """A run that never ran: its machine may be gone, or the job cannot be started at all."""
        trial = self._trials[job]
        trial.false_starts += 1
        if trial.false_starts > self._app.retries:
            self._give_up(job, why)
        else:
            self._wait(job, trial.false_starts)

    def _wait(self, job: JobId, times: int) -> None:
        """Start a job again after a while, longer each time."""
        trial = self._trials[job]
        trial.back_at = self._at + min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (times - 1))
        self._tell(ev.JobSetAside(self._at, job, self._trained(job)))

    def _fail(self, job: JobId, why: str) -> None:
        """Try again later, or give up."""
        trial = self._trials[job]
        trial.failures += 1
        if trial.failures > self._app.retries:
            self._give_up(job, why)
            return
        self._wait(job, trial.failures)

    def _give_up(self, job: JobId, why: str) -> None:
        trial = self._trials[job]
        trial.failed, trial.metric = why, None
        self._note_reached(job, why)
        if all(each.failed for each in self._trials.values()):
            self._end(f"failed: {why}")
            return
        self._tell(ev.JobReached(self._at, job, math.inf))
        self._pass_over_failed()

    def _pass_over_failed(self) -> None:
        """A phase may go on with jobs that were given up, for want of others: they stay so."""
        while not self.over and (job := self._failed_in_phase()) is not None:
            self._tell(ev.JobReached(self._at, job, math.inf))

    def _failed_in_phase(self) -> JobId | None:
        """A job that was given up and that the phase under way waits for."""
        failed = (job for job, trial in self._trials.items() if trial.failed)
        return next((job for job in failed if self._target(job) is not None), None)

    def _runtime_ends(self, job: JobId) -> float:
        run = self._runs[job]
        return run.began + self._app.max_runtime - self._trials[job].spent

    def _out_of_time(self, job: JobId) -> None:
        self._stop(job)
        self._give_up(job, f"it ran for longer than max_runtime, {self._app.max_runtime:g} s")

    def _on_refusal(self, news: RefusalNews) -> None:
        """A run that was not taken: its GPUs may have gone meanwhile. Try again in a while."""
        for job, run in list(self._runs.items()):
            if run.key != news.what:
                continue
            del self._runs[job]
            trial = self._trials[job]
            machine = self._number_of(news.home)
            if news.final:
                self._give_up(job, news.reason)
            elif machine is not None and machine != trial.bound_to:
                self._keep_home = True
                self._bind(job, machine)
            else:
                trial.back_at = self._at + FIRST_WAIT
                self._tell(ev.JobSetAside(self._at, job, self._trained(job)))
