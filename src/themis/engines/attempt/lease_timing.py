"""When a supervisor asks for a checkpoint and when it kills, as plain arithmetic."""

import os

RUN, CHECKPOINT, KILL = "run", "checkpoint", "kill"
FINISHED, RESUMABLE, FAILED, NEVER_RAN, LOST = (
    "finished",
    "resumable",
    "failed",
    "never-ran",
    "lost",
)
RESUMABLE_CODE = 75
"""By sysexits.h a temporary failure, "the user is invited to retry": EX_TEMPFAIL."""


class LeaseTimer:
    """The end of a lease, and what the node asks of the job meanwhile."""

    __slots__ = ("boot", "end", "grace", "stop", "token")

    def __init__(
        self, token: int, end: float, grace: float, stop: str = RUN, boot: str = ""
    ) -> None:
        self.token = token
        self.end = end
        self.grace = grace
        self.stop = stop
        self.boot = boot
        """The boot whose clock `end` is on; empty: the reader's own."""

    def page(self) -> dict[str, object]:
        """The record in the lease file."""
        page: dict[str, object] = {"token": self.token, "end": self.end, "grace": self.grace}
        return page | {"stop": self.stop, "boot": self.boot}

    @staticmethod
    def from_page(page: dict[str, object] | None, token: int) -> "LeaseTimer | None":
        """The lease, unless the page is damaged or has another token."""
        if page is None or page.get("token") != token:
            return None
        end, grace, stop = page.get("end"), page.get("grace"), page.get("stop")
        if not isinstance(end, int | float) or not isinstance(grace, int | float):
            return None
        if stop not in {RUN, CHECKPOINT, KILL}:
            return None
        return LeaseTimer(token, float(end), float(grace), str(stop), str(page.get("boot", "")))


def due(now: float, lease: LeaseTimer, *, asked: bool) -> str:
    """What to do now: RUN (nothing), CHECKPOINT (once) or KILL."""
    if lease.stop == KILL or now >= lease.end:
        return KILL
    if not asked and (lease.stop == CHECKPOINT or now >= lease.end - lease.grace):
        return CHECKPOINT
    return RUN


def wait(now: float, lease: LeaseTimer, *, asked: bool, most: float) -> float:
    """Seconds until something is due if the lease stays as it is; at most `most`."""
    next_one = lease.end if asked else lease.end - lease.grace
    return min(most, max(0.0, next_one - now))


def outcome_of(status: int, *, asked: bool, killed: bool) -> tuple[str, int]:
    """The outcome of a job, and its exit code (negative: the signal it died of).

    Args:
        status: As wait() gives it.
        asked: A checkpoint had been asked for. The job then ended because of that, with any code:
            launchers such as torchrun turn 75 into 1, and a program that had not installed its
            handler yet dies of our SIGTERM.
        killed: Themis killed it before it ended.
    """
    code = os.waitstatus_to_exitcode(status)
    if killed or code == RESUMABLE_CODE:
        return RESUMABLE, code
    if code == 0:
        return FINISHED, code
    return (RESUMABLE if asked else FAILED), code
