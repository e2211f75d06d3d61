"""What jobs report, on its way to the tuner and to what is believed of their speed."""

from themis.agent_host.session.outgoing import (
    LONGEST_WAY,
    MOST_WINDOWS,
    NEW,
    SILENCE,
    Doing,
    RequestedRun,
)
from themis.core.agent import events as ev
from themis.core.model import JobId
from themis.protocol.agent_messages import (
    PointsNews,
)
from themis.protocol.node_messages import Point, finite


class Measuring(Doing):
    """The part of an agency that listens to metrics."""

    def _on_points(self, news: PointsNews) -> None:
        run = self._runs.get(news.job)
        ours = run is not None and run.number in {0, news.run}
        fresh = news.points
        trial = self._trials[news.job]
        if run is not None and ours:
            fresh = news.points[max(0, run.heard + 1 - news.first) :]
            if fresh and not run.heard and news.first == 1:
                # Where it begins tells what it has lost: all of it, if its machine is gone.
                trial.done = min(trial.done, fresh[0].iteration)
            run.heard = max(run.heard, news.first + len(news.points) - 1)
            self._time_start(run, news)
            self._note_times(run, fresh)
            if self._keep_home and self._topology is not None:
                here = self._topology.seats[run.gpus[0]].machine
                if here != trial.bound_to:
                    self._bind(news.job, here)
        windows = self._windows(news.job, run, fresh) if run is not None and ours else []
        for point in fresh:
            trial.spoke = True
            trial.done = max(trial.done, point.iteration)
            value = self._metric_of(point)
            if value is not None:
                trial.metric, trial.measured = finite(value), True
                cost = self._cost(trial.metric)
                self._tell(ev.LossSeen(self._at, news.job, point.iteration, cost))
        if not self._app.counted:
            return  # What its iterations take says nothing of how long the whole does.
        self._tell(ev.Progressed(self._at, ((news.job, trial.done),)))
        if windows:
            self._tell(ev.IterationsTimed(self._at, tuple(windows[-MOST_WINDOWS:])))

    def _time_start(self, run: RequestedRun, news: PointsNews) -> None:
        """Tell how long a process took from its start to its first iteration."""
        began, run.running_since = run.running_since, None
        if began is None or news.first != 1:
            return
        first, last = news.points[0].time, news.points[-1].time
        since = last - first if first is not None and last is not None else 0.0
        self._tell(ev.MoveTimed(self._at, restart=max(0.0, self._at - began - max(0.0, since))))

    def _tell_progress(self) -> None:
        """Tell the agent how far its jobs should be by now.

        A job that reports once in an epoch is not where it was then. The simulator's agents know
        how far their jobs are, and live ones should not decide on less.
        """
        if self._agent is None or not self._app.counted:
            return
        expected = []
        for job, run in self._runs.items():
            target = self._target(job)
            if target is None or run.stopping:
                continue
            done = self._trials[job].done + self._trained_since(run) * self._agent.pace(job)
            expected.append((job, min(target, done)))
        if expected:
            self._tell(ev.Progressed(self._at, tuple(expected)))

    def _trained_since(self, run: RequestedRun) -> float:
        """Seconds for which a run should have trained since it last told how far it is."""
        if run.last is not None:
            most = SILENCE * run.gap if run.gap else NEW
            return min(self._at - self._said_at(run), most)
        if run.running_since is None or self._agent is None:
            return 0.0
        return min(max(0.0, self._at - run.running_since - self._agent.start_seconds), NEW)

    def _note_times(self, run: RequestedRun, points: tuple[Point, ...]) -> None:
        """Note when a run said something, by its own clock if it tells."""
        before = run.last
        for point in points:
            if before is not None and before.time is not None and point.time is not None:
                run.gap = max(0.0, point.time - before.time)
            elif before is not None:
                run.gap = max(0.0, self._at - run.heard_at)
            before, run.heard_at = point, self._at

    def _said_at(self, run: RequestedRun) -> float:
        """When a run said its last word, which was some time on its way."""
        if run.last is None or run.last.time is None:
            return run.heard_at
        # Clocks may be set wrongly: nothing is believed to be long on its way.
        said_at = max(run.last.time + self.behind, run.heard_at - LONGEST_WAY)
        return min(run.heard_at, said_at)

    def _metric_of(self, point: Point) -> float | None:
        return dict(point.values).get(self._app.metric.name)

    def _windows(self, job: JobId, run: RequestedRun, points: tuple[Point, ...]) -> list[ev.Window]:
        windows = []
        target = self._target(job)
        for point in points:
            before, run.last = run.last, point
            if run.first is None:
                run.first = point.iteration
            if before is None or before.time is None or point.time is None:
                continue
            iterations, seconds = point.iteration - before.iteration, point.time - before.time
            if target is not None and point.iteration > target:
                continue  # Who does not keep to its limit may also say any number.
            if iterations > 0.0 and seconds > 0.0:
                first = before.iteration - run.first
                windows.append(ev.Window(job, run.gpus, first, iterations, seconds))
        return windows
