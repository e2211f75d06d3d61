"""Apps that share GPUs in equal parts, like a fluid: S = 1, no restarts, no beats.

    shares = EqualShares(capacity=64)
    shares.join(AppId("a"), weight=1.0, phases=sums, at=0.0)
    shares.advance(600.0)
    shares.expected_contention(AppId("a"))

Run to its end it is the reference that policies are compared by (`fluid`). Kept up beside a real
run, it tells an arbiter how crowded the cluster would be if everybody had its share all the time,
whatever the policy does: who is let in first is gone sooner, and who waits stays longer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from themis.errors import DuplicateError
from themis.fairness.contention import ContentionClock, MeterState
from themis.fairness.loads import PhaseSums
from themis.fairness.sums import IntegralState
from themis.fairness.water import TakerState, WaterLevel, WaterState
from themis.model import AppId

LULL = 0.25
"""How far a forecast goes from "as crowded as now" to "nobody comes any more" (decision 0052)."""

LEAST_CAPACITY = 1e-3
"""With no GPU at all nobody would ever end."""


@dataclass(frozen=True, slots=True)
class SharesState:
    """The run written down, without its apps."""

    water: WaterState
    contention: IntegralState


@dataclass(frozen=True, slots=True)
class ShareState:
    """An app of the run written down."""

    weight: float
    phases: tuple[PhaseSums, ...]
    phase: int
    left: float
    taker: TakerState | None
    meter: MeterState | None
    parting: bool


@dataclass(slots=True)
class _Share:
    """One app."""

    weight: float
    phases: tuple[PhaseSums, ...]
    phase: int = 0
    """Which of them it is in; as many as there are when it is done."""
    left: float = 0.0
    """Work left in this phase while it is away; while it takes its share the water knows."""
    away: bool = False
    parting: bool = False
    """Whether it is to be forgotten when it is done."""

    @property
    def done(self) -> bool:
        """Whether all of its work is."""
        return self.phase >= len(self.phases)


@dataclass(slots=True)
class _Lull:
    """When everybody would end if nobody came any more, and how crowded it would be until then."""

    of: dict[AppId, tuple[float, float]] = field(default_factory=dict)
    """Seconds from now, and the integral of the app's contention over them."""


class EqualShares:
    """Who takes which part of the GPUs, and the contention that everybody sees meanwhile.

    A phase with work W and share a advances at 1 / max(W / a, its longest job's time), and shares
    stop at the useful demand, where the two are equal. So it simply uses up its work at rate a.
    """

    def __init__(self, capacity: float) -> None:
        self._water = WaterLevel(max(LEAST_CAPACITY, capacity))
        self._clock = ContentionClock()
        self._apps: dict[AppId, _Share] = {}
        self._lull: _Lull | None = None

    @property
    def now(self) -> float:
        """How far it has come."""
        return self._water.now

    @property
    def touched(self) -> set[AppId]:
        """Apps whose state has changed since somebody emptied it."""
        return self._water.touched

    def __contains__(self, app: object) -> bool:
        return app in self._apps

    def join(
        self,
        app: AppId,
        weight: float,
        phases: Sequence[PhaseSums],
        at: float,
        *,
        used: float = 0.0,
    ) -> None:
        """Let an app take its share from now on, with so much of its work behind it.

        Raises:
            DuplicateError: It is there already.
        """
        if app in self._apps:
            raise DuplicateError(app, "it has its share already")
        self.advance(at)
        share = self._apps[app] = _Share(weight, tuple(phases), away=True)
        self._place(share, used)
        self._come(app, share)

    def leave(self, app: AppId, at: float) -> None:
        """Let an app rest; what it has used is kept. Harmless if it rests or is done."""
        self.advance(at)
        share = self._apps[app]
        if not (share.away or share.done):
            self._go(app, share)
            self._clock.leave(app, self.now)

    def come_back(self, app: AppId, at: float) -> None:
        """Let an app go on that rested. Harmless if it does or is done."""
        self.advance(at)
        share = self._apps[app]
        if share.away and not share.done:
            self._come(app, share)

    def revise(self, app: AppId, phases: tuple[PhaseSums, ...], at: float) -> None:
        """Let an app have other work than was thought; what it has used is kept.

        Who is done stays done: its contention is no longer a forecast.
        """
        share = self._apps[app]
        if share.phases is phases:
            return
        if share.phases == phases:
            share.phases = phases  # What is restored is equal, but not the same.
            return
        self.advance(at)
        if share.done:
            share.phases, share.phase = phases, len(phases)
            self.touched.add(app)
            return
        resting = share.away
        if not resting:
            self._go(app, share)
        used = sum([phase.work for phase in share.phases[: share.phase]])
        used += share.phases[share.phase].work - share.left
        share.phases = phases
        self._place(share, used)
        if resting:
            share.away = not share.done
            self.touched.add(app)
        else:
            self._come(app, share)

    def set_weight(self, app: AppId, weight: float, at: float) -> None:
        """Change an app's weight from now on."""
        share = self._apps[app]
        if weight == share.weight:
            return
        self.advance(at)
        share.weight = weight
        self.touched.add(app)
        if not (share.away or share.done):
            self._go(app, share)
            self._clock.set_weight(app, weight, self.now)
            self._come(app, share)

    def set_capacity(self, capacity: float, at: float) -> None:
        """Let there be so many GPUs from now on."""
        self.advance(at)
        self._water.set_capacity(max(LEAST_CAPACITY, capacity))
        self._lull = None

    def part(self, app: AppId, at: float) -> None:
        """Forget an app when it is done here too: it has ended, maybe before its share would."""
        self.come_back(app, at)
        share = self._apps[app]
        share.parting = True
        self.touched.add(app)
        if share.done:
            self._drop(app)

    def forget(self, app: AppId, at: float) -> None:
        """Drop an app at once; unknown names are no matter."""
        self.advance(at)
        if app in self._apps:
            self._drop(app)

    def advance(self, until: float) -> list[tuple[AppId, float]]:
        """Let time pass; returns who was done on the way, and when."""
        done: list[tuple[AppId, float]] = []
        water = self._water
        if until < water.now:
            return done
        while (ended := water.advance(until)) is not None:
            share = self._apps[ended]
            share.phase += 1
            self._skip_empty(share)
            self._lull = None
            if share.done:
                self._clock.leave(ended, water.now)
                done.append((ended, water.now))
            else:
                share.left = share.phases[share.phase].work
                self._take(ended, share)
        for app, _ in done:
            if self._apps[app].parting:
                self._drop(app)
        self._lull = None
        return done

    def is_parting(self, app: AppId) -> bool:
        """Whether an app is there only until it is done."""
        return self._apps[app].parting

    def is_done(self, app: AppId) -> bool:
        """Whether an app would have ended by now."""
        return self._apps[app].done

    def mean_contention(self, app: AppId) -> float:
        """The mean from its arrival to now, or to its end here."""
        return self._clock.mean_contention(app, self.now)

    def expected_contention(self, app: AppId) -> float:
        """The mean from its arrival to its end, as far as can be foreseen.

        Once it is done here it is known. Before that, most of the forecast is that it stays as
        crowded as it is, and the rest that nobody comes any more.
        """
        share = self._apps[app]
        mean = self.mean_contention(app)
        if share.done or share.away:
            return mean
        elapsed = self._clock.elapsed(app, self.now)
        contention = self._clock.contention_now(app)
        part = self._water.capacity / contention
        left = self._water.left(app)
        rest = left / min(part, self._water.demand(app))
        for phase in share.phases[share.phase + 1 :]:
            rest += max(phase.work / part, phase.longest)
        if elapsed + rest <= 0.0:
            return contention
        crowded = (mean * elapsed + contention * rest) / (elapsed + rest)
        until, area = self._foreseen().of[app]
        if elapsed + until <= 0.0:
            return crowded
        return (1.0 - LULL) * crowded + LULL * (mean * elapsed + area) / (elapsed + until)

    def _foreseen(self) -> _Lull:
        """Equal shares of what is left, as if everybody could use all of its part."""
        if self._lull is None:
            self._lull = _Lull()
            rest = []
            for app, share in self._apps.items():
                if not (share.away or share.done):
                    later = sum([phase.work for phase in share.phases[share.phase + 1 :]])
                    rest.append(((self._water.left(app) + later) / share.weight, app))
            rest.sort()
            weight = sum([self._apps[app].weight for _, app in rest])
            until = area = poured = 0.0
            for end, app in rest:
                step = (end - poured) * weight / self._water.capacity
                until += step
                area += step * weight
                poured = end
                own = self._apps[app].weight
                self._lull.of[app] = (until, area / own)
                weight = max(own, weight - own)
        return self._lull

    def _place(self, share: _Share, used: float) -> None:
        """Find the phase in which so much work has been used up."""
        share.phase = 0
        for phase in share.phases:
            if used < phase.work:
                share.left = phase.work - used
                return
            used -= phase.work
            share.phase += 1
        share.left = 0.0

    def _skip_empty(self, share: _Share) -> None:
        while not share.done and share.phases[share.phase].work <= 0.0:
            share.phase += 1

    def _come(self, app: AppId, share: _Share) -> None:
        share.away = False
        self.touched.add(app)
        self._lull = None
        self._clock.join(app, share.weight, self.now)
        if share.done:
            self._clock.leave(app, self.now)
        else:
            self._take(app, share)

    def _drop(self, app: AppId) -> None:
        share = self._apps.pop(app)
        if not (share.away or share.done):
            self._go(app, share)
            self._clock.leave(app, self.now)
        self._clock.forget(app)
        self.touched.add(app)

    def _go(self, app: AppId, share: _Share) -> None:
        share.left = self._water.remove(app)
        share.away = True
        self._lull = None

    def _take(self, app: AppId, share: _Share) -> None:
        phase = share.phases[share.phase]
        self._water.add(app, share.weight, share.left, phase.useful)

    # Writing down

    def state(self) -> SharesState:
        """Write down what is no app's."""
        return SharesState(self._water.state(), self._clock.state())

    def apps(self) -> list[AppId]:
        """Whose shares there are."""
        return sorted(self._apps)

    def share_state(self, app: AppId) -> ShareState | None:
        """Write down an app; None if there is none."""
        share = self._apps.get(app)
        if share is None:
            return None
        taker, meter = self._water.taker_state(app), self._clock.meter_state(app)
        left = share.left if share.away else 0.0
        return ShareState(
            share.weight, share.phases, share.phase, left, taker, meter, share.parting
        )

    @staticmethod
    def restored(state: SharesState, apps: Mapping[AppId, ShareState]) -> "EqualShares":
        """The run that was written down."""
        shares = EqualShares(state.water.capacity)
        takers = {app: each.taker for app, each in apps.items() if each.taker is not None}
        meters = {app: each.meter for app, each in apps.items() if each.meter is not None}
        shares._water = WaterLevel.restored(state.water, takers)
        shares._clock.take_back(state.contention, meters)
        for app, each in apps.items():
            share = _Share(each.weight, each.phases, each.phase, each.left)
            share.parting = each.parting
            share.away = each.taker is None and not share.done
            shares._apps[app] = share
        return shares
