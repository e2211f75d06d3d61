"""The arbiter among random events: every promise holds after each, and replay equals run.

It is saved after every event too, and restored now and then: nothing may tell the difference.
"""

import math
import random
from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.arbiter_invariants import Watch
from tests.support.save_restore import Saver
from tests.support.scripted_world import Puppet, ScriptedWorld, SolverMood, replay, simple_app
from themis.core.arbiter import Arbiter, Settings, events
from themis.core.arbiter.commands import Command, RecordRound
from themis.core.arbiter.settings import BidderKind, ContentionOf
from themis.core.model import (
    AppId,
    Bid,
    Chunk,
    Constraint,
    GpuId,
    JobId,
    LeaseSource,
    Machine,
    OwnerId,
    Phase,
    Row,
    TableRow,
    Topology,
)
from themis.core.model.reasons import SUSPENSIONS, Reason
from themis.core.policies import Allotment, Plan, Policy, View, policy
from themis.core.policies.base import AskBids, Round
from themis.core.policies.themis import Themis

MACHINES = (
    Machine("m0", "r0", (2, 2)),
    Machine("m1", "r0", (2,)),
    Machine("m2", "r1", (1, 1), gpu_model="v100", gpu_memory=32.0),
)
JOINING = Machine("m3", "r1", (2,), gpu_model="v100", gpu_memory=32.0)
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
        Plan((Allotment(app, (*first, *first), LeaseSource.DIRECT),)),
        Plan((Allotment(app, (GpuId(999),), LeaseSource.DIRECT),)),
        Plan((Allotment(AppId("stranger"), first, LeaseSource.DIRECT),)),
        Plan((Allotment(app, first, LeaseSource.DIRECT, until=math.nan),)),
        Plan((), (Allotment(app, first, LeaseSource.DIRECT),)),
        Plan((Allotment(app, view.offer * 2, LeaseSource.DIRECT),)),
        Plan(("what?",)),  # type: ignore[arg-type]  # a user's mistake, on purpose
    )[view.round % 7]


KINDS: dict[str, Callable[[], Policy]] = {
    "themis with lottery": lambda: policy("themis", f=0.5),
    "themis with gpus": lambda: policy("themis", f=0.0, payment="gpus"),
    "themis with time": lambda: policy("themis", f=0.0, payment="time"),
    "themis with lottery-pf": lambda: policy("themis", f=0.8, payment="lottery-pf"),
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

UNRELIABLE = {"raises", "confused", "nonsense"}

SETTINGS = (
    Settings(contention_of=ContentionOf.SHARES),
    Settings(bidder=BidderKind.APP, lease=300.0, contention_of=ContentionOf.SHARES),
    Settings(lease=120.0, grace=5.0, pooling=0.0),
    Settings(lease=90.0, grace=60.0, guard=10.0, idle_after=0.0),
)

apps = st.sampled_from(APPS)
owners = st.sampled_from(OWNERS)
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
        self.saver = Saver(KINDS[kind](), seed=seed)
        self.world = ScriptedWorld(
            Topology(MACHINES),
            KINDS[kind](),
            settings,
            seed=seed,
            slowdown=(1.0, 1.1, 1.3, 1.6),
            drain=drain,
            on_event=[self.watch, self.expect_plans, self.expect_contention, self.saver],
        )
        self.world.now = start
        for index in (0, 1):
            self.arrive(APPS[index], OWNERS[index], 4, 1, 1, 2, picky=False)

    def expect_plans(
        self, arbiter: Arbiter, event: events.Event, commands: Sequence[Command]
    ) -> None:
        """Our own policies never make a plan that cannot be carried out."""
        for command in commands:
            if isinstance(command, RecordRound) and self.kind not in UNRELIABLE:
                failed = command.record.failed
                assert not failed or failed.startswith("the solver"), failed

    def expect_contention(
        self, arbiter: Arbiter, event: events.Event, commands: Sequence[Command]
    ) -> None:
        """Whoever is active has a share, and a contention, which counts itself."""
        world = arbiter.world
        for app, state in world.apps.items():
            if state.active and world.sharing.is_on:
                contention = world.sharing.expected_contention(app)
                assert contention is not None
                assert 1.0 - 1e-9 <= contention < math.inf

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

    @rule(
        what=st.sampled_from(["progress", "progress", "phase"]),
        app=apps,
        iterations=st.sampled_from([0.0, 10.0, 99.0, 100.0, 300.0, math.nan]),
        phase=st.integers(1, 2),
    )
    def work(self, what: str, app: AppId, iterations: float, phase: int) -> None:
        at = self.world.now
        if what == "phase":
            targets = ((JobId("j0"), iterations),)
            self.world.send(events.PhaseStarted(at, app, phase, targets))
        else:
            samples = tuple(
                events.ProgressSample(JobId(f"j{i}"), iterations, 1.0) for i in range(3)
            )
            self.world.send(events.ProgressMeasured(at, app, samples))

    @rule(app=apps, reason=suspensions, back=st.booleans())
    def suspend(self, app: AppId, reason: Reason, back: bool) -> None:
        if back:
            self.world.resume(app, reason)
        else:
            self.world.suspend(app, reason)

    # Operators. Few rules with many kinds, so that what matters most comes often enough.

    @rule(
        what=st.sampled_from(["quota", "app weight", "owner weight", "settings"]),
        app=apps,
        owner=owners,
        limit=st.sampled_from([None, 0, 1, 3, 100]),
        weight=st.sampled_from([0.0, 0.5, 1.0, 4.0]),
        settings=st.sampled_from(SETTINGS),
    )
    def change_shares(
        self,
        what: str,
        app: AppId,
        owner: OwnerId,
        limit: int | None,
        weight: float,
        settings: Settings,
    ) -> None:
        at = self.world.now
        kinds: dict[str, events.Event] = {
            "quota": events.QuotaChanged(at, owner, limit),
            "app weight": events.WeightChanged(at, weight, app=app),
            "owner weight": events.WeightChanged(at, weight, owner=owner),
            "settings": events.SettingsChanged(at, settings),
        }
        self.world.send(kinds[what])

    @rule(
        what=st.sampled_from(["cordon", "drain", "uncordon", "leave", "join"]),
        machine=st.sampled_from((*MACHINES, JOINING)),
    )
    def change_machine(self, what: str, machine: Machine) -> None:
        at, name = self.world.now, machine.name
        kinds: dict[str, events.Event] = {
            "cordon": events.MachineCordoned(at, name),
            "drain": events.MachineCordoned(at, name, drain=True),
            "uncordon": events.MachineUncordoned(at, name),
            "leave": events.MachineLeft(at, name),
            "join": events.MachineJoined(at, machine),
        }
        self.world.send(kinds[what])

    @rule(
        what=st.sampled_from(["quarantine", "restore", "release", "stop", "vacate", "stale"]),
        app=apps,
        gpu=gpus,
        some=st.sets(gpus, max_size=4),
    )
    def change_slots(self, what: str, app: AppId, gpu: GpuId, some: set[GpuId]) -> None:
        at, ledger = self.world.now, self.world.arbiter.ledger
        lease = ledger.lease(gpu) if gpu < len(ledger) else None
        token = lease.token if lease is not None else 1
        kinds: dict[str, events.Event] = {
            "quarantine": events.GpuQuarantined(at, gpu, "xid 79"),
            "restore": events.GpuRestored(at, gpu),
            "release": events.GpusReleased(at, app, (gpu, *sorted(some))),
            "stop": events.JobStopped(at, app, JobId("j0"), (gpu,)),
            "vacate": events.GpusVacated(at, ((gpu, token),)),
            "stale": events.GpusVacated(at, ((gpu, token - 1),)),
        }
        self.world.send(kinds[what])

    # Drivers and agents

    @rule(
        what=st.sampled_from(["silent", "lazy", "stuck", "solver"]),
        app=apps,
        gpu=gpus,
        mood=st.sampled_from(["answers", "answers", "fails", "silent"]),
    )
    def change_mood(self, what: str, app: AppId, gpu: GpuId, mood: SolverMood) -> None:
        if what == "silent":
            self.world.silent ^= {app}
        elif what == "lazy":
            self.world.lazy ^= {app}
        elif what == "stuck":
            self.world.stuck ^= {gpu}
        else:
            self.world.solver_mood = mood

    @rule(
        what=st.sampled_from(
            ["end", "pause", "work", "leave", "cordon", "drain", "quarantine", "release", "quota"]
        ),
        app=apps,
        owner=owners,
        machine=st.sampled_from(MACHINES),
        gpu=gpus,
        answers=st.lists(st.sampled_from(["good", "good", "bad", "none"]), min_size=6, max_size=6),
    )
    def disturb_a_round(
        self,
        what: str,
        app: AppId,
        owner: OwnerId,
        machine: Machine,
        gpu: GpuId,
        answers: list[str],
    ) -> None:
        """Something happens while a round waits for answers; then some come, good or bad."""
        world = self.world
        self.wait_for_a_round(0, 0.5, APPS)
        at = world.now
        finished = (
            events.ProgressSample(JobId("j0"), 100.0, 1.0),
            events.ProgressSample(JobId("j1"), 100.0, 1.0),
        )
        kinds: dict[str, events.Event] = {
            "end": events.AppEnded(at, app),
            "pause": events.AppSuspended(at, app, Reason.PAUSED_BY_USER),
            "work": events.ProgressMeasured(at, app, finished),
            "leave": events.MachineLeft(at, machine.name),
            "cordon": events.MachineCordoned(at, machine.name),
            "drain": events.MachineCordoned(at, machine.name, drain=True),
            "quarantine": events.GpuQuarantined(at, gpu, "xid 79"),
            "release": events.GpusReleased(at, app, (gpu, GpuId(0))),
            "quota": events.QuotaChanged(at, owner, 1),
        }
        world.send(kinds[what])
        for name, kind in zip(APPS, answers, strict=True):
            if name not in world.unanswered or name not in world.arbiter.world.apps:
                continue
            if kind == "good":
                world.speak(name)
            elif kind == "bad":
                world.speak(name, Bid(name, (Row((Chunk(3, 1),), math.nan),)))
        world.silent.clear()
        world.advance(at + 3.0)

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

    # Time

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.9, 5.0, 31.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance(self.world.now + seconds)

    @rule(
        beats=st.sampled_from([0, 1, 3]),
        into=st.sampled_from([0.5, 1.0, 2.1, 40.0]),
        quiet=st.sampled_from([(), APPS, APPS, APPS[:2]]),
    )
    def wait_for_a_round(self, beats: int, into: float, quiet: tuple[AppId, ...]) -> None:
        """Often into the short time in which a round waits for answers."""
        world = self.world
        settings = world.arbiter.settings
        world.silent = set(quiet)
        beat = math.ceil((world.now + settings.round_lead) / settings.lease) + beats
        world.advance(beat * settings.lease - settings.round_lead + into)

    @rule(what=st.sampled_from(["woken", "woken late", "solver died", "solver died late"]))
    def call_for_nothing(self, what: str) -> None:
        at, number = self.world.now, self.world.arbiter.rounds
        kinds: dict[str, events.Event] = {
            "woken": events.Woken(at),
            "woken late": events.Woken(at - 1e6),
            "solver died": events.SolveFailed(at, number, "the worker died"),
            "solver died late": events.SolveFailed(at, number - 1, "the worker died"),
        }
        self.world.send(kinds[what])

    @rule(down=st.sampled_from([0.0, 1.0, 30.0, 700.0]))
    def restart(self, down: float) -> None:
        """The service dies, whatever it does, and comes back from what it had stored."""
        world = self.world
        world.arbiter = self.saver.restore()
        world.now += down
        world.send(events.ServiceRestarted(world.now))

    def teardown(self) -> None:
        if not hasattr(self, "world") or self.watch.broken:
            return
        self.world.advance(self.world.now + 2000.0)
        again = replay(
            self.world.history, Topology(MACHINES), KINDS[self.kind](), self.settings, self.seed
        )
        assert again == [step.commands for step in self.world.history]


TestArbiterMachine = ArbiterMachine.TestCase
