"""One run ahead: a fork of the state with or without the app, and how everybody fares in it."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from themis.core.arbiter import AppRecord, Settings
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.state_parts import Part, SettingsPart
from themis.core.fairness.ideal_time import ideal_time
from themis.core.model import AppId
from themis.core.policies import policy
from themis.errors import RefusedError
from themis.forecast.sampled_truth import arriving, draw
from themis.recording.cluster_snapshots import Snapshot
from themis.recording.forecast_questions import ForecastCase
from themis.sim.driver import StuckError
from themis.sim.modelled_jobs import declared_costs
from themis.sim.snapshot_sim import Fork

SOLVE_WORK = 5000
"""Work units for an auction of a forecast, where the simulator has 100,000.

In four states of 50 apps this moved the median finish by 0 to 4 %, either way; 200 units were
hardly quicker, and moved it by up to 3 %, always to later.
"""
OUTLINE_WORK = 500
"""The same for a run that is only to give an outline."""
HORIZON = 60 * 86400.0
"""Seconds ahead after which a run is given up."""


class Ahead:
    """A run from now on. `steps` goes on with it bit by bit."""

    def __init__(
        self, snapshot: Snapshot, case: ForecastCase | None, seed: int, stretch: float = 1.0
    ) -> None:
        """Begin.

        Args:
            snapshot: Where.
            case: What is submitted and changed; None for nothing.
            seed: What nobody knows is drawn from it.
            stretch: How many times longer leases are, for an outline with fewer rounds.

        Raises:
            RefusedError: The snapshot contradicts itself.
            ConfigError: There is no such policy.
        """
        self.at = snapshot.at
        self.start: float | None = None
        self.stuck = False
        self._refusal: str | None = None
        self._app = None if case is None else case.spec.id
        self._due = snapshot.at if case is None else snapshot.at + case.delay
        drawn = draw(snapshot, seed)
        other = case is not None and case.policy not in {"", snapshot.policy}
        rule = policy(case.policy) if other and case else None
        machines = () if case is None else case.machines
        self.fork = Fork.of(
            replace(drawn.snapshot, state=_cheaper(drawn.snapshot.state, stretch)),
            drawn.truths,
            [] if case is None else [arriving(case, snapshot.at, seed)],
            rule or policy(snapshot.policy, **dict(snapshot.options)),
            seed=seed,
            arbiter_seed=_other_seed(snapshot.seed, seed),
            costs_of=declared_costs,
            observers=(self,),
            first=[ev.MachineJoined(snapshot.at, machine) for machine in machines],
        )
        self.first = self.work(self.at)

    def handled(self, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        """Note when the app begins, and why it was not taken in."""
        if isinstance(event, ev.AppArrived) and event.app.id == self._app:
            for command in commands:
                # Also others may be refused something; that is nobody else's to know.
                if isinstance(command, cmd.Refuse) and command.who == self._app:
                    self._refusal = command.reason
        if isinstance(event, ev.JobStarted) and event.app == self._app and self.start is None:
            self.start = event.at

    @property
    def record(self) -> AppRecord | None:
        """How the app ended; None if it has not."""
        return None if self._app is None else self.fork.outcome.apps.get(self._app)

    @property
    def now(self) -> float:
        """How far it is."""
        return max(self.at, self.fork.arbiter.now)

    def steps(self) -> Iterator[None]:
        """Go on to the end of the app, a beat at a time.

        Raises:
            RefusedError: The app could never run on this cluster.
        """
        beat = self.fork.arbiter.settings.lease
        until = self.at
        while self.record is None and until < self._due + HORIZON:
            until += beat
            if not self._advance(until):
                break
            yield
        if self._refusal is not None:
            raise RefusedError(str(self._app), self._refusal.removeprefix(f"{self._app}: "))
        self.stuck = self.record is None

    def go_on(self, until: float) -> Iterator[None]:
        """Go on to a time, a beat at a time."""
        beat = self.fork.arbiter.settings.lease
        at = self.now
        while at < until:
            at = min(until, at + beat)
            if not self._advance(at):
                return
            yield

    def _advance(self, until: float) -> bool:
        """Whether there is more to come."""
        try:
            return self.fork.advance(until) is not None
        except StuckError:
            return False  # Nobody who waits can ever be served.

    def work(self, at: float) -> dict[AppId, float]:
        """Serial seconds left of every app that is there, at a time up to which it has come."""
        self.fork.look(at)
        apps = self.fork.arbiter.world.apps
        return {app: state.work_left for app, state in apps.items() if not state.outcome}

    def rho(self) -> float | None:
        """The rho that the app ended with."""
        record = self.record
        if record is None:
            return None
        ideal = ideal_time(
            self.fork.arbiter.settings.convention,
            record.phases,
            contention=max(1.0, record.mean_contention),
            capacity=record.mean_capacity,
            budget=record.budget or None,
        )
        return record.elapsed / ideal if 0.0 < ideal < math.inf else None


def delays_in(ahead: Ahead, without: Ahead, at: float) -> dict[AppId, float]:
    """By how many seconds apps finish later in one run than in another, both seen at a time.

    Of apps that go on, what is left counts as done at the pace that they had without the change.
    """
    left, left_without = ahead.work(at), without.work(at)
    ended, ended_without = ahead.fork.outcome.apps, without.fork.outcome.apps
    found = {}
    for app, first in without.first.items():
        rest = left_without.get(app, 0.0)
        pace = (first - rest) / max(1.0, at - without.at)
        if app in ended and app in ended_without:
            found[app] = ended[app].end - ended_without[app].end
        elif pace > 0.0:
            end = ended[app].end if app in ended else at + left.get(app, 0.0) / pace
            base = ended_without[app].end if app in ended_without else at + rest / pace
            found[app] = end - base
    return found


def _cheaper(state: Mapping[str, Part], stretch: float) -> dict[str, Part]:
    part = state["settings"]
    assert isinstance(part, SettingsPart)
    pending = part.pending and _sparing(part.pending, stretch)
    return {**state, "settings": SettingsPart(_sparing(part.present, stretch), pending)}


def _sparing(settings: Settings, stretch: float) -> Settings:
    if stretch == 1.0:
        return replace(settings, solve_work=min(SOLVE_WORK, settings.solve_work))
    lease = settings.lease * stretch
    return replace(
        settings,
        solve_work=min(OUTLINE_WORK, settings.solve_work),
        lease=lease,
        # Most rounds are those for GPUs that somebody left, so these wait for each other too.
        pooling=min(lease / 4.0, settings.pooling * stretch * 4.0),
    )


def _other_seed(own: int, seed: int) -> int:
    # Not the cluster's own: nobody shall ask until a lottery that is still to come suits them.
    digest = hashlib.blake2b(f"{own}/forecast/{seed}".encode(), digest_size=6).digest()
    return int.from_bytes(digest)
