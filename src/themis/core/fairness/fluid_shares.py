"""Apps that share GPUs in equal parts, like a fluid: S = 1, no restarts, no beats.

    shares = EqualShares(capacity=64)
    shares.join(AppId("a"), weight=1.0, phases=sums, at=0.0)
    shares.advance(600.0)
    shares.expected_contention(AppId("a"))

Run to its end it is the reference that policies are compared by (`fluid`). Kept up beside a real
run, it tells an arbiter how crowded the cluster would be if every app had its share all the time,
whatever the policy does: who is let in first is gone sooner, and who waits stays longer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from themis.core.fairness.contention import ContentionClock, MeterState
from themis.core.fairness.exact_sums import IntegralState
from themis.core.fairness.loads import PhaseSums
from themis.core.fairness.max_min_shares import TakerState, WaterLevel, WaterState
from themis.core.model import AppId
from themis.errors import DuplicateError

LULL = 0.25
"""How far a forecast goes from "as crowded as now" to "no app comes any more" (decision 0052)."""

GREW = 1.25
"""A finished app has more to do only if its work grows by this factor. A little more
is what comes of others surviving a phase than was thought, and changes nobody's contention."""

LEAST_CAPACITY = 1e-3
"""With no GPU at all no app would ever end."""


@dataclass(frozen=True, slots=True)
class SharesState:
    """The run written down, without its apps."""

    water: WaterState
    contention: IntegralState


@dataclass(frozen=True, slots=True)
class ShareState:
    """An app of the run written down."""

    group: str
    total: float
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

    group: str
    total: float
    """The weight of all in its group together."""
    weight: float
    """Its own: the group's, divided by those of them who take a share now."""
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

    @property
    def takes(self) -> bool:
        """Whether it takes its share now."""
        return not (self.away or self.done)


class EqualShares:
    """The part of the GPUs that each app takes, and the contention that it sees meanwhile.

    A phase with work W and share a advances at 1 / max(W / a, its longest job's time), and shares
    stop at the useful demand, where the two are equal. So it simply uses up its work at rate a.

    Apps of one group share the weight of the group: those of an owner, where owners count.
    """

    def __init__(self, capacity: float) -> None:
        self._water = WaterLevel(max(LEAST_CAPACITY, capacity))
        self._clock = ContentionClock()
        self._apps: dict[AppId, _Share] = {}
        self._groups: dict[str, set[AppId]] = {}
        self._lull: dict[AppId, tuple[float, float]] | None = None

    @property
    def now(self) -> float:
        """How far it has come."""
        return self._water.now

    @property
    def touched(self) -> set[AppId]:
        """Apps whose state has changed since it was last emptied."""
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
        group: str = "",
    ) -> None:
        """Let an app take its share from now on.

        Args:
            app: Who.
            weight: Of all in its group together.
            phases: All of its work.
            at: When.
            used: The work that is behind it.
            group: The group that it shares its weight with, if any.

        Raises:
            DuplicateError: It is there already.
        """
        if app in self._apps:
            raise DuplicateError(app, "it has its share already")
        self.advance(at)
        share = _Share(group or app, weight, weight, tuple(phases), away=True)
        self._apps[app] = share
        self._groups.setdefault(share.group, set()).add(app)
        self._place(share, used)
        self.set_weight(share.group, weight, at)
        self._come(app, share)

    def leave(self, app: AppId, at: float) -> None:
        """Let an app rest; what it has used is kept. Harmless if it rests or is done."""
        self.advance(at)
        share = self._apps[app]
        if share.takes:
            share.left = self._water.remove(app)
            share.away = True
            self._stop(app, share)

    def come_back(self, app: AppId, at: float) -> None:
        """Let an app go on that rested. Harmless if it does or is done."""
        self.advance(at)
        share = self._apps[app]
        if share.away and not share.done:
            self._come(app, share)

    def revise(self, app: AppId, phases: tuple[PhaseSums, ...], at: float) -> bool:
        """Let an app have other work than was thought; what it has used is kept.

        Returns:
            Whether that is any news.
        """
        share = self._apps[app]
        if share.phases is phases:
            return False
        if share.phases == phases:
            share.phases = phases  # What is restored is equal, but not the same.
            return False
        self.advance(at)
        self._lull = None
        self.touched.add(app)
        used = sum([phase.work for phase in share.phases[: share.phase]])
        if share.done and sum([phase.work for phase in phases]) <= GREW * used:
            share.phases, share.phase = phases, len(phases)
            return True
        taking, resting = share.takes, share.away
        if taking:
            share.left = self._water.remove(app)
        if not share.done:
            used += share.phases[share.phase].work - share.left
        share.phases = phases
        self._place(share, used)
        share.away = resting and not share.done
        if taking and share.done:
            self._stop(app, share)
        elif taking:
            self._take(app, share)
        elif share.takes:
            self._come(app, share)
        return True

    def set_weight(self, group: str, weight: float, at: float) -> None:
        """Change the weight of a group from now on."""
        mine = self._groups[group]
        if all(self._apps[app].total == weight for app in mine):
            return
        self.advance(at)
        for app in sorted(self._groups.get(group, ())):
            self._apps[app].total = weight
            self.touched.add(app)
        self._split(group)

    def set_capacity(self, capacity: float, at: float) -> None:
        """Let there be this many GPUs from now on."""
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
        self._lull = None
        while (ended := water.advance(until)) is not None:
            share = self._apps[ended]
            share.phase += 1
            while not share.done and share.phases[share.phase].work <= 0.0:
                share.phase += 1
            if share.done:
                self._stop(ended, share)
                done.append((ended, water.now))
            else:
                share.left = share.phases[share.phase].work
                self._take(ended, share)
        for app, _ in done:
            if self._apps[app].parting:
                self._drop(app)
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
        crowded as it is, and the rest that no app comes any more.
        """
        share = self._apps[app]
        mean = self.mean_contention(app)
        if not share.takes:
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
        until, area = self._without_newcomers()[app]
        if elapsed + until <= 0.0:
            return crowded
        return (1.0 - LULL) * crowded + LULL * (mean * elapsed + area) / (elapsed + until)

    def _without_newcomers(self) -> dict[AppId, tuple[float, float]]:
        """When each would end if no app came any more, and its contention summed up until then.

        Equal shares of what is left, as if every app could use all of its part.
        """
        if self._lull is None:
            rest = []
            for app, share in self._apps.items():
                if share.takes:
                    later = sum([phase.work for phase in share.phases[share.phase + 1 :]])
                    rest.append(((self._water.left(app) + later) / share.weight, app))
            rest.sort()
            weights, weight = [], 0.0
            for _, app in reversed(rest):
                weight += self._apps[app].weight
                weights.append(weight)
            self._lull = {}
            until = area = poured = 0.0
            for end, app in rest:
                weight = weights.pop()
                step = (end - poured) * weight / self._water.capacity
                until += step
                area += step * weight
                poured = end
                self._lull[app] = (until, area / self._apps[app].weight)
        return self._lull

    def _place(self, share: _Share, used: float) -> None:
        """Find the phase in which so much work has been used up."""
        share.phase, used = 0, max(0.0, used)
        for phase in share.phases:
            if used < phase.work:
                share.left = phase.work - used
                return
            used -= phase.work
            share.phase += 1
        share.left = 0.0

    def _come(self, app: AppId, share: _Share) -> None:
        """Let an app that rested, or was thought to be done, take its share."""
        share.away = False
        self.touched.add(app)
        self._lull = None
        if share.done:
            self._clock.join(app, share.weight, self.now)
            self._clock.leave(app, self.now)
            return
        self._split(share.group, but=app)
        self._clock.join(app, share.weight, self.now)
        self._take(app, share)

    def _stop(self, app: AppId, share: _Share) -> None:
        """An app takes no share any more."""
        self._clock.leave(app, self.now)
        self.touched.add(app)
        self._lull = None
        self._split(share.group)

    def _split(self, group: str, *, but: AppId | None = None) -> None:
        """Divide the weight of a group among those who take a share; one of them has none yet."""
        takers = [app for app in sorted(self._groups[group]) if self._apps[app].takes]
        for app in takers:
            share = self._apps[app]
            weight = share.total / len(takers)
            if weight == share.weight:
                continue
            share.weight = weight
            self._lull = None
            if app != but:
                share.left = self._water.remove(app)
                self._clock.set_weight(app, weight, self.now)
                self._take(app, share)

    def _drop(self, app: AppId) -> None:
        share = self._apps[app]
        if share.takes:
            self._water.remove(app)
            share.away = True
            self._stop(app, share)
        del self._apps[app]
        mine = self._groups[share.group]
        mine.discard(app)
        if not mine:
            del self._groups[share.group]
        self._clock.forget(app)
        self.touched.add(app)

    def _take(self, app: AppId, share: _Share) -> None:
        self._water.add(app, share.weight, share.left, share.phases[share.phase].useful)

    # Writing down

    def state(self) -> SharesState:
        """Write down what is no app's."""
        self._clock.touched.clear()  # It is not needed.
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
        return ShareState(
            group=share.group,
            total=share.total,
            weight=share.weight,
            phases=share.phases,
            phase=share.phase,
            left=share.left if share.away else 0.0,
            taker=taker,
            meter=meter,
            parting=share.parting,
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
            share = _Share(each.group, each.total, each.weight, each.phases, each.phase, each.left)
            share.parting = each.parting
            share.away = each.taker is None and not share.done
            shares._apps[app] = share
            shares._groups.setdefault(share.group, set()).add(app)
        return shares
