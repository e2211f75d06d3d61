"""Equal shares kept up beside the leases, where ideal times inside the scheduler ask for them."""

from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.app_status import FINISHED
from themis.core.arbiter.state_parts import Shelf, Written, take
from themis.core.fairness.fluid_shares import EqualShares, SharesState, ShareState
from themis.core.fairness.loads import PhaseSums
from themis.core.model import AppId


class ShareTracker:
    """The progress of every app had it its equal share; idle while switched off."""

    def __init__(self) -> None:
        self._run: EqualShares | None = None
        self._stirred = False
        """Whether time has passed, or it was switched, since it was last written down."""
        self._gone: set[AppId] = set()
        """Apps of a run that was switched off, to be struck out."""

    @property
    def is_on(self) -> bool:
        """Whether shares are kept up."""
        return self._run is not None

    def __contains__(self, app: object) -> bool:
        return self._run is not None and app in self._run

    def begin(self, capacity: float, at: float) -> None:
        """Keep shares up from now on."""
        self._run = EqualShares(capacity)
        self._run.advance(at)
        self._stirred = True

    def end(self) -> None:
        """Keep no shares any more."""
        if self._run is not None:
            self._gone.update(self._run.apps(), self._run.touched)
        self._run = None
        self._stirred = True

    def advance(self, at: float) -> None:
        """Let time pass."""
        if self._run is not None:
            self._stirred = True
            self._run.advance(at)

    def set_capacity(self, gpus: float, at: float) -> None:
        """Set the number of GPUs from now on."""
        if self._run is not None:
            self._stirred = True
            self._run.set_capacity(gpus, at)

    def follow(self, state: AppState, at: float) -> None:
        """Record an app's remaining work, or that it ended.

        An app that finished stays until its share would have got it there, so that no app's
        contention depends on how soon another one was served. A cancelled app leaves at once.
        """
        run = self._run
        if run is None or state.id not in run or run.is_parting(state.id):
            return
        if not state.outcome:
            if not run.revise(state.id, state.whole_sums()[0], at):
                return
            if not state.active:
                run.leave(state.id, at)  # It may have been done, and not be any more.
        elif state.outcome == FINISHED:
            if state.work_left > 0.0:
                # It had less work than declared; others must not wait for the rest.
                run.revise(state.id, tuple(map(PhaseSums.of, state.trained())), at)
            run.part(state.id, at)
        else:
            run.forget(state.id, at)
        self._stirred = True

    def take(self, state: AppState, group: str, weight: float, at: float) -> None:
        """Let an active app have its share from now on, or again; the weight is of its group."""
        run = self._run
        if run is None:
            return
        self._stirred = True
        if state.id in run and not run.is_parting(state.id):
            run.come_back(state.id, at)
            return
        # An app of the same name may have ended before its share would have.
        run.forget(state.id, at)
        phases, work = state.whole_sums()
        used = max(0.0, work - state.work_left)
        run.join(state.id, weight, phases, at, used=used, group=group)

    def take_anew(self, state: AppState, group: str, weight: float, at: float) -> None:
        """Let an active app have its share as if it had just come, with what it has left to do."""
        if self._run is not None:
            self._run.forget(state.id, at)
            self.take(state, group, weight, at)

    def rest(self, app: AppId, at: float) -> None:
        """Let an app have no share until it is active again."""
        run = self._run
        if run is not None and app in run and not run.is_parting(app):
            self._stirred = True
            run.leave(app, at)

    def set_weight(self, group: str, weight: float, at: float) -> None:
        """Change the weight of a group that has an active app."""
        if self._run is not None:
            self._stirred = True
            self._run.set_weight(group, weight, at)

    def expected_contention(self, app: AppId) -> float | None:
        """The mean contention of an active app to its end with shares; None while this is off."""
        return None if self._run is None else self._run.expected_contention(app)

    # Writing down

    def parts(self, *, changed: bool) -> Written:
        """All parts, or those that changed since they were last asked for."""
        run = self._run
        if self._stirred or not changed:
            if run is not None:
                yield "shares", run.state()
            elif changed:
                yield "shares", None
        if not changed:
            apps = run.apps() if run is not None else []
        else:
            apps = take(self._gone)
            if run is not None:
                apps = sorted({*apps, *take(run.touched)})
        for app in apps:
            yield f"share/{app}", run.share_state(app) if run is not None else None
        if changed:
            self._stirred = False

    @staticmethod
    def restored(shelf: Shelf) -> "ShareTracker":
        """What was written down; off if nothing was."""
        sharing = ShareTracker()
        written = shelf.all(SharesState).get("")
        if written is not None:
            apps = {AppId(name): part for name, part in shelf.all(ShareState).items()}
            sharing._run = EqualShares.restored(written, apps)
        return sharing
