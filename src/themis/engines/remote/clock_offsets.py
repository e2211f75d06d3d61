"""How far the lease clocks of other machines are ahead of ours.

    clocks.learn(boot, theirs=page["clock"], ours=now())    # a reading that took a while to come
    clocks.there(boot, end, now())      # the end of a lease as a supervisor on that machine has it

A reading is old when it arrives, so it shows the other clock a little less far ahead than it is: a
lease written by it ends early, never late. The largest of recent readings counts; old ones do not,
because two clocks do not run at exactly the same speed.
"""

_WINDOW = 60.0
"""Seconds for which a reading counts at least; twice that at most."""
_OLD = 600.0
"""Seconds after which the clock of a silent machine counts as unknown."""


class _ClockOffset:
    """How far one clock is ahead of ours: the largest reading of two windows."""

    def __init__(self, ahead: float, at: float) -> None:
        self.now, self.before = ahead, ahead
        self.since, self.heard = at, at

    def add(self, ahead: float, at: float) -> None:
        if at - self.since > _WINDOW:
            self.before, self.now, self.since = self.now, ahead, at
        self.now = max(self.now, ahead)
        self.heard = at


class ClockOffsets:
    """By machine and boot: the id of a boot is that of a clock."""

    def __init__(self, own: str) -> None:
        self._own = own
        """The boot of the machine that this engine is on."""
        self._ahead: dict[str, _ClockOffset] = {}
        self.last = own
        """The boot of the machine that was heard last, if any was."""

    def learn(self, boot: str, theirs: float, ours: float) -> None:
        """Take a reading: the clock in a page, and ours after it was read."""
        self.last = boot
        if boot == self._own:
            return
        known = self._ahead.get(boot)
        if known is None:
            self._ahead[boot] = _ClockOffset(theirs - ours, ours)
        else:
            known.add(theirs - ours, ours)

    def knows(self, boot: str, at: float) -> bool:
        """Whether a machine's clock is known at `at` on ours."""
        if boot == self._own:
            return True
        known = self._ahead.get(boot)
        return known is not None and at - known.heard < _OLD

    def there(self, boot: str, time: float) -> float:
        """One of our times on that machine's clock, or a little earlier."""
        return time + self._difference(boot)

    def here(self, boot: str, time: float) -> float:
        """A time of that machine on our clock, or a little later."""
        return time - self._difference(boot)

    def _difference(self, boot: str) -> float:
        known = self._ahead.get(boot)
        return max(known.now, known.before) if known is not None else 0.0
