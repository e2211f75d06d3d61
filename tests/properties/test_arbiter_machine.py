"""The arbiter among random events: every promise holds after each, and replay equals run."""

import math
import random
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from themis.arbiter import Settings, events
from themis.arbiter.settings import BidderKind
from themis.model import (
    AppId,
    Bid,
    Chunk,
    Constraint,
    GpuId,
    JobId,
    Machine,
    OwnerId,
    Phase,
    Row,
    Source,
    TableRow,
    Topology,
)
from themis.model.reasons import SUSPENSIONS, Reason
from themis.policies import Allotment, Plan, Policy, View, policy
from themis.policies.base import AskBids, Round
from themis.policies.themis import Themis
from themis.testing.checkers import Watch
from themis.testing.world import Puppet, ScriptedWorld, SolverMood, replay, simple_app

MACHINES = (
    Machine("m0", "r0", (2, 2)),
    Machine("m1", "r0", (2,)),
    Machine("m2", "r1", (1, 1), gpu_model="v100", gpu_memory=32.0),
)
JOINING = Machine("m3", "r1", (2,), gpu_model="v100", gpu_memory=32.0)
NAMES = tuple(machine.name for machine in (*MACHINES, JOINING))
APPS = tuple(AppId(f"a{i}") for i in range(6))
OWNERS = tuple(OwnerId(f"o{i}") for i in range(3))


class Flaky(Themis):
    """Raises in every third round, before or after its question."""

    def hold_round(self, view: View, rng: random.Random) -> Round:
        if view.round % 6 == 2:
            raise RuntimeError("no round today")
        plan = yield from super().hold_round(view, rng)
        if view.round % 6 == 5:
            raise RuntimeError("lost the plan")
        return plan


class Confused(Policy):
    """Asks and answers nonsense, a different kind each round."""

    name = "confused"

    def hold_round(self, view: View, rng: random.Random) -> Round:
        kind = view.round % 5
        if kind == 0:
            yield AskBids((AppId("stranger"),))
        if kind == 1:
            while True:
                yield AskBids(())
        if kind == 2:
            yield "what?"  # type: ignore[misc]  # a user's mistake, on purpose
        return nonsense(view)


def nonsense(view: View) -> Plan:
    """A plan that cannot be carried out, unless nobody is there."""
    if not view.apps:
        return Plan(())
    app = view.apps[0].app
    first = view.offer[:1]
    return (
        Plan((Allotment(app, (*first, *first), Source.DIRECT),)),
        Plan((Allotment(app, (GpuId(999),), Source.DIRECT),)),
        Plan((Allotment(AppId("stranger"), first, Source.DIRECT),)),
        Plan((Allotment(app, first, Source.DIRECT, until=math.nan),)),
        Plan((), (Allotment(app, first, Source.DIRECT),)),
        Plan((Allotment(app, view.offer * 2, Source.DIRECT),)),
        Plan(("what?",)),  # type: ignore[arg-type]  # a user's mistake, on purpose
    )[view.round % 7]


KINDS: dict[str, Callable[[], Policy]] = {
    "themis with lottery": lambda: policy("themis", f=0.5),
    "themis with gpus": lambda: policy("themis", f=0.0, payment="gpus"),
    "themis with time": lambda: policy("themis", f=0.0, payment="time"),
    "themis with floor": lambda: policy("themis", f=0.0, payment="floor", guard_rounds=1),
    "themis that asks afresh": lambda: policy("themis", f=0.0, rank="now", fresh_tables=True),
    "themis-paper": lambda: policy("themis-paper", f=0.5),
    "equal-share": lambda: policy("equal-share"),
    "worst-first": lambda: policy("worst-first"),
    "tiresias": lambda: policy("tiresias"),
    "fifo": lambda: policy("fifo"),
    "raises": lambda: Flaky(f=0.0, payment="time"),
    "confused": Confused,
    "nonsense": lambda: Puppet(nonsense),
}

SETTINGS = (
    Settings(),
    Settings(bidder=BidderKind.APP, lease=300.0),
    Settings(lease=120.0, grace=5.0, pooling=0.0),
    Settings(lease=90.0, grace=60.0, guard=10.0, idle_after=0.0),
)

apps = st.sampled_from(APPS)
owners = st.sampled_from(OWNERS)
machines = st.sampled_from(NAMES)
gpus = st.integers(0, 9).map(GpuId)
suspensions = st.sampled_from(sorted(SUSPENSIONS))


class ArbiterMachine(RuleBasedStateMachine):
    """One cluster and what may happen to it."""

    world: ScriptedWorld

    @initialize(
        kind=st.sampled_from(sorted(KINDS)),
        settings=st.sampled_from(SETTINGS),
        seed=st.integers(0, 3),
        start=st.sampled_from([0.0, 1_790_000_000.3]),
        drain=st.sampled_from([0.0, 5.0, 1000.0]),
    )
    def begin(self, kind: str, settings: Settings, seed: int, start: float, drain: float) -> None:
        self.kind, self.settings, self.seed = kind, settings, seed
        self.watch = Watch()
        self.world = ScriptedWorld(
            Topology(MACHINES),
            KINDS[kind](),
            settings,
            seed=seed,
            slowdown=(1.0, 1.1, 1.3, 1.6),
            drain=drain,
            on_event=[self.watch],
        )
        self.world.now = start
        for index in (0, 1):
            self.arrive(APPS[index], OWNERS[index], 4, 1, 1, 2, picky=False)

    # Apps

    @rule(
        app=apps,
        owner=owners,
        gpus=st.integers(1, 4),
        jobs=st.integers(1, 3),
        gang=st.integers(1, 2),
        phases=st.integers(1, 2),
        picky=st.booleans(),
    )
    def arrive(
        self, app: AppId, owner: OwnerId, gpus: int, jobs: int, gang: int, phases: int, picky: bool
    ) -> None:
        spec = simple_app(
            app,
            owner=owner,
            gpus=gpus,
            jobs=jobs,
            min_gpus=min(gang, gpus),
            phases=(Phase(jobs, 100), Phase(1, 200))[:phases],
            constraint=Constraint("v100", 20.0) if picky else None,
        )
        self.world.submit(spec)

    @rule(app=apps)
    def finish(self, app: AppId) -> None:
        self.world.finish(app)

    @rule(app=apps, iterations=st.sampled_from([0.0, 10.0, 99.0, 100.0, 300.0, math.nan]))
    def progress(self, app: AppId, iterations: float) -> None:
        samples = tuple(events.Sample(JobId(f"j{i}"), iterations, 1.0) for i in range(3))
        self.world.send(events.ProgressMeasured(self.world.now, app, samples))

    @rule(app=apps, phase=st.integers(1, 2), goal=st.sampled_from([100.0, 250.0, math.inf]))
    def next_phase(self, app: AppId, phase: int, goal: float) -> None:
        targets = ((JobId("j0"), goal),)
        self.world.send(events.PhaseStarted(self.world.now, app, phase, targets))

    @rule(app=apps, reason=suspensions)
    def suspend(self, app: AppId, reason: Reason) -> None:
        self.world.suspend(app, reason)

    @rule(app=apps, reason=suspensions)
    def resume(self, app: AppId, reason: Reason) -> None:
        self.world.resume(app, reason)

    # Shares

    @rule(owner=owners, limit=st.sampled_from([None, 0, 1, 3, 100]))
    def set_quota(self, owner: OwnerId, limit: int | None) -> None:
        self.world.send(events.QuotaChanged(self.world.now, owner, limit))

    @rule(app=apps, owner=owners, weight=st.sampled_from([0.0, 0.5, 1.0, 4.0]), whole=st.booleans())
    def set_weight(self, app: AppId, owner: OwnerId, weight: float, whole: bool) -> None:
        at = self.world.now
        if whole:
            self.world.send(events.WeightChanged(at, weight, owner=owner))
        else:
            self.world.send(events.WeightChanged(at, weight, app=app))

    @rule(settings=st.sampled_from(SETTINGS))
    def set_settings(self, settings: Settings) -> None:
        self.world.send(events.SettingsChanged(self.world.now, settings))

    # Machines

    @rule(name=machines, drain=st.booleans())
    def cordon(self, name: str, drain: bool) -> None:
        self.world.send(events.MachineCordoned(self.world.now, name, drain))

    @rule(name=machines)
    def uncordon(self, name: str) -> None:
        self.world.send(events.MachineUncordoned(self.world.now, name))

    @rule(name=machines)
    def leave(self, name: str) -> None:
        self.world.send(events.MachineLeft(self.world.now, name))

    @rule(machine=st.sampled_from((*MACHINES, JOINING)))
    def join(self, machine: Machine) -> None:
        self.world.send(events.MachineJoined(self.world.now, machine))

    @rule(gpu=gpus)
    def quarantine(self, gpu: GpuId) -> None:
        self.world.send(events.GpuQuarantined(self.world.now, gpu, "xid 79"))

    @rule(gpu=gpus)
    def restore(self, gpu: GpuId) -> None:
        self.world.send(events.GpuRestored(self.world.now, gpu))

    # Slots

    @rule(app=apps, some=st.sets(gpus, min_size=1, max_size=4))
    def release(self, app: AppId, some: set[GpuId]) -> None:
        self.world.send(events.GpusReleased(self.world.now, app, tuple(sorted(some))))

    @rule(app=apps, gpu=gpus)
    def stop_job(self, app: AppId, gpu: GpuId) -> None:
        self.world.send(events.JobStopped(self.world.now, app, JobId("j0"), (gpu,)))

    @rule(gpu=gpus, token=st.one_of(st.none(), st.integers(0, 20)))
    def vacate(self, gpu: GpuId, token: int | None) -> None:
        ledger = self.world.arbiter.ledger
        lease = ledger.lease(gpu) if gpu < len(ledger) else None
        number = lease.token if lease is not None and token is None else token or 0
        self.world.send(events.GpusVacated(self.world.now, ((gpu, number),)))

    # Drivers and agents

    @rule(app=apps)
    def fall_silent(self, app: AppId) -> None:
        self.world.silent ^= {app}

    @rule(app=apps)
    def grow_lazy(self, app: AppId) -> None:
        self.world.lazy ^= {app}

    @rule(gpu=gpus)
    def get_stuck(self, gpu: GpuId) -> None:
        self.world.stuck ^= {gpu}

    @rule(mood=st.sampled_from(["answers", "answers", "fails", "silent"]))
    def change_mood(self, mood: SolverMood) -> None:
        self.world.solver_mood = mood

    @rule(
        app=st.sampled_from((*APPS, AppId("stranger"))),
        signed=apps,
        ahead=st.integers(-1, 1),
        rows=st.lists(
            st.builds(
                Row,
                st.lists(
                    st.builds(
                        Chunk,
                        st.integers(-1, 4),
                        st.integers(-1, 9),
                        st.one_of(st.none(), st.integers(0, 4)),
                    ),
                    max_size=2,
                ).map(tuple),
                st.sampled_from([1.0, 50.0, 0.0, -3.0, math.nan, math.inf]),
            ),
            max_size=2,
        ),
        table=st.lists(
            st.builds(
                TableRow,
                st.integers(-1, 4),
                st.integers(0, 4),
                st.sampled_from([1.0, 0.0, math.nan]),
            ),
            max_size=2,
        ),
    )
    def bid_anything(
        self, app: AppId, signed: AppId, ahead: int, rows: list[Row], table: list[TableRow]
    ) -> None:
        number = max(0, self.world.arbiter.rounds + ahead)
        bid = Bid(signed, tuple(rows), tuple(table))
        self.world.send(events.BidReceived(self.world.now, app, number, bid))

    @rule(late=st.booleans())
    def lose_solution(self, late: bool) -> None:
        number = self.world.arbiter.rounds - late
        self.world.send(events.SolveFailed(self.world.now, number, "the worker died"))

    # Time

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.9, 5.0, 31.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance(self.world.now + seconds)

    @precondition(lambda self: hasattr(self, "world"))
    @rule(beats=st.sampled_from([0, 1, 3]), into=st.sampled_from([0.5, 1.0, 2.1, 40.0]))
    def wait_for_a_round(self, beats: int, into: float) -> None:
        """Often into the short time in which a round waits for answers."""
        world = self.world
        settings = world.arbiter.settings
        beat = math.ceil(world.now / settings.lease) + beats
        world.advance(beat * settings.lease - settings.round_lead + into)

    @rule(past=st.sampled_from([0.0, 10.0, 1e6]))
    def wake_for_nothing(self, past: float) -> None:
        self.world.send(events.Woken(self.world.now - past))

    def teardown(self) -> None:
        if not hasattr(self, "world") or self.watch.broken:
            return
        self.world.advance(self.world.now + 2000.0)
        again = replay(
            self.world.history, Topology(MACHINES), KINDS[self.kind](), self.settings, self.seed
        )
        assert again == [step.commands for step in self.world.history]


TestArbiterMachine = ArbiterMachine.TestCase
