"""How a run that ended is judged: its job is done, continues, is tried again, or never started."""

from dataclasses import dataclass
from enum import Enum, auto

from themis.agent_host.session.trials import TrialRecord
from themis.protocol.agent_messages import RunNews
from themis.protocol.node_messages import RunState, early_end

RESUMABLE = 75
"""The exit code of a job that has saved and can go on."""
SLACK = 1e-6


class RunVerdict(Enum):
    """What follows from the end of a run."""

    DONE = auto()
    CONTINUES = auto()
    """The job did nothing wrong; it goes on from its checkpoint."""
    FAILED = auto()
    NEVER_STARTED = auto()
    """Its machine may be gone, or the job cannot be started at all."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended, and what its job has to show."""

    news: RunNews
    trial: TrialRecord
    target: float
    counted: bool
    """Whether the app counts iterations."""
    ran: bool = False
    """Whether its process was seen to run."""
    reported: bool = False
    """Whether this run reported anything."""
    told: bool = False
    """Whether an earlier session told it to stop."""
    lease_ended: bool = False
    """Whether its node may have ended it with its lease."""

    @property
    def complete(self) -> bool:
        """Whether it ended because the job is where it had to be in this phase."""
        news, trial = self.news, self.trial
        if news.code == RESUMABLE and self.counted and news.iterations > self.target + SLACK:
            return True  # It does not stop by itself: it was told to, beyond its target.
        if news.code != 0:
            return False
        if not self.counted or not trial.reported:
            return True  # It never tells its iteration, and knows best when it is done.
        return max(news.iterations, trial.done) >= self.target - SLACK

    @property
    def _blameless(self) -> bool:
        if self.told or self.news.state is RunState.LOST or self.lease_ended:
            return True
        # A job that saves and exits before its first report would do so for ever, unless it was
        # told to: a lease may be renewed too late for one that never reports.
        return self.news.code == RESUMABLE and (self.reported or self.news.interrupted)

    def judge(self) -> tuple[RunVerdict, str]:
        """What follows, and why if it is a failure."""
        news, trial = self.news, self.trial
        if self.complete:
            return RunVerdict.DONE, ""
        silent = not (self.ran or self.told or trial.reported)
        if silent and news.state is RunState.LOST:
            return RunVerdict.NEVER_STARTED, news.message or "it could not be started"
        if self._blameless:
            return RunVerdict.CONTINUES, ""
        if news.code == 0:
            return RunVerdict.FAILED, early_end(trial.done, self.target)
        return RunVerdict.FAILED, news.message or f"it exited with {news.code}"
