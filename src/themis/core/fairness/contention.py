"""Exact time-weighted means, over the time an app is active, of contention and of usable GPUs.

clock = ContentionClock()
clock.join(AppId("a"), weight=1.0, at=0.0)
clock.join(AppId("b"), weight=1.0, at=10.0)
clock.mean_contention(AppId("a"), at=20.0)   # 1.5

Both clocks keep one running integral and a mark per app, so an event costs the same however many
apps there are. `touched` names the apps whose meters may have changed since it was last emptied.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from themis.core.fairness.exact_sums import NO_AREA, Area, ExactSum, IntegralState, StepIntegral
from themis.core.model import AppId
from themis.errors import InvariantError


@dataclass(frozen=True, slots=True)
class MeterState:
    """A meter written down; `high` and `low` are the integral when it began to gather."""

    weight: float
    seconds: float
    gathered: float
    since: float | None
    high: float
    low: float


@dataclass(slots=True)
class _Meter:
    """What one app has gathered while active, and since when it is active again."""

    integral: StepIntegral
    weight: float = 1.0
    seconds: float = 0.0
    gathered: float = 0.0
    """The integral over the active seconds, each part divided by the weight of its time."""
    since: float | None = None
    mark: Area = NO_AREA

    def begin(self, at: float) -> None:
        """Gather from now on."""
        self.mark = self.integral.at(at)
        self.since = at

    def pause(self, at: float) -> None:
        """Keep what was gathered, and gather no more."""
        self.seconds, self.gathered = self.read(at)
        self.since = None

    def read(self, at: float) -> tuple[float, float]:
        """The active seconds and what was gathered over them, up to a time."""
        if self.since is None:
            return self.seconds, self.gathered
        area = self.integral.at(at).since(self.mark)
        return self.seconds + (at - self.since), self.gathered + area / self.weight

    def state(self) -> MeterState:
        """Write it down."""
        # The mark of a meter that gathers nothing is never read.
        high, low = self.mark if self.since is not None else NO_AREA
        return MeterState(self.weight, self.seconds, self.gathered, self.since, high, low)


def _restored(state: MeterState, integral: StepIntegral) -> _Meter:
    mark = Area(state.high, state.low)
    return _Meter(integral, state.weight, state.seconds, state.gathered, state.since, mark)


class ContentionClock:
    """Who is active with which weight, and each app's contention N_i = total weight / w_i."""

    def __init__(self) -> None:
        self._total = ExactSum()
        self._integral = StepIntegral()
        self._meters: dict[AppId, _Meter] = {}
        self.touched: set[AppId] = set()

    @property
    def total_weight(self) -> float:
        """The weight of all active apps together."""
        return self._total.value

    def join(self, app: AppId, weight: float, at: float) -> None:
        """Let an app be active from now on: new, or back from a pause with its time kept.

        For an app that is active already this only sets the weight.
        """
        self.touched.add(app)
        meter = self._meters.setdefault(app, _Meter(self._integral, weight))
        if meter.since is None:
            meter.weight = weight
            self._change(at, added=weight)
            meter.begin(at)
        else:
            self.set_weight(app, weight, at)

    def leave(self, app: AppId, at: float) -> None:
        """Stop an app's time and means: it is paused, or over. Harmless when it has left."""
        meter = self._meter(app)
        if meter.since is not None:
            self.touched.add(app)
            meter.pause(at)
            self._change(at, removed=meter.weight)

    def set_weight(self, app: AppId, weight: float, at: float) -> None:
        """Change an app's weight from now on; its past keeps the weights it had."""
        meter = self._meter(app)
        if weight != meter.weight:
            self.touched.add(app)
        if meter.since is None:
            meter.weight = weight
        elif weight != meter.weight:
            meter.pause(at)
            self._change(at, added=weight, removed=meter.weight)
            meter.weight = weight
            meter.begin(at)

    def forget(self, app: AppId) -> None:
        """Drop an app that has left; unknown names are no matter.

        Raises:
            InvariantError: It is still active, and its weight would haunt the total.
        """
        if app in self._meters and self._meters[app].since is not None:
            raise InvariantError(f"{app} is forgotten while it is active")
        self.touched.add(app)
        self._meters.pop(app, None)

    def state(self) -> IntegralState:
        """The integral of the total weight, written down."""
        return self._integral.state()

    def meter_state(self, app: AppId) -> MeterState | None:
        """The meter of an app, written down; None if there is none."""
        meter = self._meters.get(app)
        return meter.state() if meter is not None else None

    def take_back(self, state: IntegralState, meters: Mapping[AppId, MeterState]) -> None:
        """Become the clock that was written down."""
        self._integral = StepIntegral.restored(state)
        self._meters = {app: _restored(meter, self._integral) for app, meter in meters.items()}
        self._total = ExactSum()
        for meter in self._meters.values():
            if meter.since is not None:
                self._total.change(added=meter.weight)

    def is_active(self, app: AppId) -> bool:
        """Whether an app is active now."""
        return app in self._meters and self._meters[app].since is not None

    def elapsed(self, app: AppId, at: float) -> float:
        """The seconds an app has been active."""
        return self._meter(app).read(at)[0]

    def mean_contention(self, app: AppId, at: float) -> float:
        """The mean of N_i over the app's active time; the present value before any has passed."""
        seconds, gathered = self._meter(app).read(at)
        return gathered / seconds if seconds > 0.0 else self.contention_now(app)

    def contention_now(self, app: AppId) -> float:
        """N_i at this moment; for an app that has left, as if it were active."""
        meter = self._meter(app)
        itself = meter.weight if meter.since is None else 0.0
        return (self._total.value + itself) / meter.weight

    def _change(self, at: float, added: float = 0.0, removed: float = 0.0) -> None:
        self._total.change(added, removed)
        self._integral.change(self._total.value, at)

    def _meter(self, app: AppId) -> _Meter:
        if app not in self._meters:
            raise InvariantError(f"{app} never joined the contention clock")
        return self._meters[app]


class CapacityClock:
    """The GPUs that apps of each constraint class may use, and each app's mean of them."""

    def __init__(self) -> None:
        self._capacities: dict[Hashable, StepIntegral] = {}
        self._meters: dict[AppId, _Meter] = {}
        self.touched: set[AppId] = set()

    def set_capacity(self, key: Hashable, gpus: float, at: float) -> None:
        """Let a class have this many usable GPUs from now on."""
        if key in self._capacities:
            self._capacities[key].change(float(gpus), at)
        else:
            self._capacities[key] = StepIntegral(float(gpus), at)

    def start(self, app: AppId, key: Hashable, at: float) -> None:
        """Let an app be active in a class from now on; time in other classes is kept.

        Raises:
            InvariantError: The class has no capacity yet.
        """
        if key not in self._capacities:
            raise InvariantError(f"no capacity is known for {key!r}, which {app} needs")
        self.touched.add(app)
        meter = self._meters.setdefault(app, _Meter(self._capacities[key]))
        if meter.since is not None:
            meter.pause(at)
        meter.integral = self._capacities[key]
        meter.begin(at)

    def stop(self, app: AppId, at: float) -> None:
        """Stop an app's mean: it is paused, or over. Harmless when it has stopped."""
        meter = self._meter(app)
        if meter.since is not None:
            self.touched.add(app)
            meter.pause(at)

    def forget(self, app: AppId) -> None:
        """Drop an app; unknown names are no matter."""
        self.touched.add(app)
        self._meters.pop(app, None)

    def class_state(self, key: Hashable) -> IntegralState:
        """The capacity of a class, written down."""
        return self._capacities[key].state()

    def meter_state(self, app: AppId) -> MeterState | None:
        """The meter of an app, written down; None if there is none."""
        meter = self._meters.get(app)
        return meter.state() if meter is not None else None

    def take_back(
        self,
        classes: Mapping[Hashable, IntegralState],
        meters: Mapping[AppId, tuple[Hashable, MeterState]],
    ) -> None:
        """Become the clock that was written down; meters come with the class of their app."""
        self._capacities = {key: StepIntegral.restored(state) for key, state in classes.items()}
        self._meters = {
            app: _restored(meter, self._capacities[key]) for app, (key, meter) in meters.items()
        }

    def mean_capacity(self, app: AppId, at: float) -> float:
        """The mean over the app's active time; the present value before any has passed."""
        meter = self._meter(app)
        seconds, gathered = meter.read(at)
        return gathered / seconds if seconds > 0.0 else meter.integral.value

    def capacity_now(self, key: Hashable) -> float:
        """The GPUs a class may use at this moment; zero for one that was never set."""
        return self._capacities[key].value if key in self._capacities else 0.0

    def _meter(self, app: AppId) -> _Meter:
        if app not in self._meters:
            raise InvariantError(f"{app} never started on the capacity clock")
        return self._meters[app]
