"""The runs that the service wants, and the leases that they go by.

How events are handed to the arbiter, and how runs begin and end by what comes of them.
"""

from dataclasses import replace

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId, JobId, Lease
from themis.core.steward.job_logs import Printing
from themis.core.steward.rows import DONE, WantedRun

_SLACK = 1e-6


class Running(Printing):
    """The part of the steward in which runs begin and end."""

    def _refuse(self, who: str, reason: str) -> None:
        """Say that what is asked for now cannot be."""
        self._refusal = cmd.Refuse(who, reason)
        self._commands.append(self._refusal)

    # The arbiter

    def _feed(self, event: ev.Event) -> None:
        """Hand an event to the arbiter, and carry its changes of leases to nodes and runs."""
        if not isinstance(event, ev.ProgressMeasured) and self._arbiter.may_open_round(event):
            self._store_all_progress()
        self._events.append(event)
        for command in self._arbiter.handle(event):
            match command:
                case cmd.WakeMe():
                    continue
                case cmd.Assign():
                    for lease in (*command.granted, *command.renewed):
                        self._touch(lease.gpu)
                    for lease in command.revoked:
                        self._revoke(lease, command.reason)
                case cmd.End(leases=leases):
                    for lease in leases:
                        self._revoke(lease, "its lease is over")
                case cmd.RecordApp(record=record):
                    self._keep_logs(record.app)
                    self._book.close(record.app)
                    self._streams.close(record.app)
                    self._quiet = {
                        key: quiet for key, quiet in self._quiet.items() if key[0] != record.app
                    }
                    self._bound = {
                        key: why for key, why in self._bound.items() if key[0] != record.app
                    }
                case cmd.Refuse() if event is self._asked:
                    self._refusal = command
                case _:
                    pass
            self._commands.append(command)

    def _touch(self, gpu: GpuId) -> None:
        node = self._roster.machine_of.get(gpu)
        if node is not None:
            node.revision += 1
            self._touched[node.name] = None

    def _revoke(self, lease: Lease, reason: str) -> None:
        self._touch(lease.gpu)
        self._book.drop_release(lease.gpu, lease.token)
        run = self._book.on_lease(lease.gpu, lease.token)
        if run is not None:
            self._stop(run, reason)

    # Runs

    def _stop(self, run: WantedRun, reason: str) -> None:
        run = self._book.runs.get(run.run, run)
        if run.stop:
            return
        run = replace(run, stop=True, told=True, message=run.message or reason)
        self._book.put(run)
        for gpu in run.gpus:
            self._touch(gpu)
        if not run.ordered:
            self._finish(run)

    def _over(self, run: WantedRun, node: str) -> None:
        """Nothing of a run is alive on a node."""
        run = replace(run, over=(*run.over, node))
        self._book.put(run)
        for gpu in run.gpus:
            self._touch(gpu)
        if {self._roster.machine_of[gpu].name for gpu in run.gpus} <= set(run.over):
            self._finish(run)

    def _finish(self, run: WantedRun) -> None:
        self._store_progress(run)
        run = self._book.runs[run.run]
        if run.ordered:
            self._take_back(run)  # First: that it stopped may open a round.
            self._feed(ev.JobStopped(self._now, run.app, run.job, run.gpus))
        source = self._source(run.run)
        owed = source is not None and self._has_points(run, self._roster.nodes[source[1]])
        points_on = source[1] if owed and source is not None else ""
        lasted = max(0.0, self._now - run.since) if run.ordered else 0.0
        size = self._log_sizes.pop(run.run, 0)
        result = self._book.finish(run, points_on, size, lasted, early=self._is_early(run))
        if not result.points_on:
            self._streams.drop(run.run)
        if run.app not in self._arbiter.world.apps:
            self._keep_logs(run.app)  # It outlasted its app.
            self._book.close(run.app)
        self._iterations.pop(run.run, None)
        self._note_quiet(run)
        self._begun.pop(run.run, None)
        self._tell_end(result)

    def _note_quiet(self, run: WantedRun) -> None:
        """Keep for how long a run got nowhere: the next one of its job goes on counting."""
        watched = self._watched.pop(run.run, None)
        if watched is not None and run.app in self._arbiter.world.apps:
            quiet = self._quiet.get((run.app, run.job), 0.0)
            self._quiet[run.app, run.job] = quiet + max(0.0, self._now - watched.since)

    def _is_early(self, run: WantedRun) -> bool:
        """Whether a run says that its job is done, which by its own metrics is on its way."""
        state = self._arbiter.world.apps.get(run.app)
        if run.code != DONE or state is None or run.job not in state.jobs:
            return False
        return 0.0 < max(run.iterations, state.jobs[run.job].done) < run.limit - _SLACK

    def _take_back(self, run: WantedRun) -> None:
        """Leave a job something to do that was where it had to be, but did not end well there.

        Its agent starts it again, for what it has to save at its end is perhaps not saved. To the
        arbiter it would be done, and never get the GPUs.
        """
        state = self._arbiter.world.apps.get(run.app)
        if not run.limit or run.code == DONE or state is None or run.job not in state.jobs:
            return
        if not state.outcome and min(run.iterations, state.jobs[run.job].done) >= run.limit:
            self._measure(run.app, run.job, max(0.0, run.limit - 1.0))

    def _give_back(self, app: AppId, job: JobId, iterations: float) -> None:
        """Count the last iteration of a job again: it was there, and has ended well since."""
        state = self._arbiter.world.apps[app]
        progress = state.jobs.get(job)  # Agents may speak of any job, also of one of another phase.
        if progress is None or state.outcome:
            return
        said = min(iterations, progress.target)  # It may have gone a little further.
        if said - 1.0 <= progress.done < said:
            self._measure(app, job, said)

    def _measure(self, app: AppId, job: JobId, iterations: float) -> None:
        """Tell the arbiter how far a job is, and nothing of how long it took."""
        sample = ev.ProgressSample(job, iterations, 0.0)
        self._feed(ev.ProgressMeasured(self._arbiter.before_alarm(self._now), app, (sample,)))

    def _place_waiting(self) -> None:
        """Order the runs whose leases have begun and whose GPUs and job are free."""
        for run in list(self._book.waiting.values()):
            if self._may_start(run):
                self._book.put(replace(run, ordered=True, since=self._now))
                # From now on the GPUs are in use, though nothing runs there yet: orders are under
                # way, and the arbiter must not take the GPUs for idle.
                self._feed(ev.JobStarted(self._now, run.app, run.job, run.gpus))
                for gpu in run.gpus:
                    self._touch(gpu)

    def _may_start(self, run: WantedRun) -> bool:
        ledger = self._arbiter.ledger
        for gpu, token in zip(run.gpus, run.tokens, strict=True):
            lease = ledger.lease(gpu)
            if lease is None or lease.token != token or ledger.is_leaving(gpu):
                return False
            if any(other.ordered for other in self._book.on_gpu(gpu)):
                return False
        return all(not other.ordered for other in self._book.of_job(run.app, run.job))

    def _store_all_progress(self) -> None:
        """Tell the arbiter how far all runs are, before a round that is about to open."""
        for run in list(self._book.runs.values()):
            self._store_progress(run)

    def _store_progress(self, run: WantedRun) -> None:
        """Tell the arbiter how far a run is, if it does not know."""
        iterations, seconds = self._iterations.get(run.run, (0.0, 0.0))
        state = self._arbiter.world.apps.get(run.app)
        if seconds <= run.seconds or state is None or run.job not in state.jobs:
            return
        samples = []
        since = run.seconds
        if not since:
            # What it took to start is no training, and says nothing of its iterations.
            first, since = self._begun.get(run.run, (iterations, seconds))
            samples.append(ev.ProgressSample(run.job, first, 0.0))
        # A run that began again further back lost work: what it takes to get there says nothing.
        lost = iterations < state.jobs[run.job].done
        samples.append(ev.ProgressSample(run.job, iterations, 0.0 if lost else seconds - since))
        # One without a limit is done when it exits with 0, and not before: its iterations are for
        # people, those of the arbiter another measure, often one for all of the job.
        most = run.limit or max(0.0, state.jobs[run.job].target - 1.0)
        samples = [_at_most(sample, most) for sample in samples]
        self._book.put(replace(run, iterations=iterations, seconds=seconds))
        if not state.outcome:  # One that is over and about to leave takes no more.
            at = self._arbiter.before_alarm(self._now)
            self._feed(ev.ProgressMeasured(at, run.app, tuple(samples)))


def _at_most(sample: ev.ProgressSample, most: float) -> ev.ProgressSample:
    """A sample within what a job may do: what is said beyond that tells nothing of its speed."""
    return sample if sample.iterations <= most else ev.ProgressSample(sample.job, most, 0.0)
