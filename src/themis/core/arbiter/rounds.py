"""Rounds: opened when GPUs are available, carried through the policy's questions, settled."""

import math
from collections.abc import Iterable

from themis.core.arbiter import events as ev
from themis.core.arbiter.alarms import Alarms, CloseAnswers
from themis.core.arbiter.app_reasons import explain_round
from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.cluster_state import World, first_beat_after, is_newcomer
from themis.core.arbiter.commands import Ask, Command, RecordRound, Solve
from themis.core.arbiter.leasing import DRAINING, Leasing
from themis.core.arbiter.offer import lent_gpus, offered_gpus, settle_view, view_of
from themis.core.arbiter.records import RoundRecord
from themis.core.arbiter.round_session import OpenRound, bid_from_cache, check_plan, open_round
from themis.core.arbiter.state_parts import RoundsPart
from themis.core.model import AppId, Bid, GpuId, LeaseSource, Offer
from themis.core.policies.base import Allotment, AskBids, AskSolve, Plan, Policy
from themis.errors import InvariantError, StaleAnswerError

MAX_QUESTIONS = 1000
"""A policy that asks more in one round will ask for ever."""

FIRST_TABLE = 0
"""The round number under which an app is asked for a valuation outside any round."""


class Rounds:
    """At most one round at a time. `now` and `out` are set by the arbiter before anything else."""

    def __init__(
        self, world: World, alarms: Alarms, leasing: Leasing, policy: Policy, seed: int
    ) -> None:
        self._world = world
        self._alarms = alarms
        self._leasing = leasing
        self._policy = policy
        self._seed = seed
        self.count = 0
        self.open: OpenRound | None = None
        self._passed: float | None = None
        """The beat of the last round at a beat."""
        self.tells_rho = policy.looks_at_progress
        """Whether records tell the rho of every app, which means something if it is measured."""
        self.now = -math.inf
        self.out: list[Command] = []

    def could_give(self) -> bool:
        """Whether a round between beats has GPUs to give and an app that wants them."""
        world = self._world
        wanting = self._wanting()
        if not wanting:
            return False
        if any(map(world.takes_leases, world.ledger.free())):
            return True
        return self._policy.calls_in and self._any_newcomer(wanting)

    def _any_newcomer(self, apps: Iterable[AppState]) -> bool:
        return any(is_newcomer(state, self.now, self._world.settings) for state in apps)

    def _wanting(self) -> list[AppState]:
        """Apps that could use more than they have."""
        holdings = self._world.ledger.holdings
        apps = self._world.apps.items()
        return [s for app, s in apps if s.active and s.wanted > len(holdings(app))]

    def begin(self, beat: float | None = None) -> None:
        """Open a round for this beat, or for what is free, if there is anything to offer."""
        at_beat = beat is not None
        self._world.sharing.advance(self.now)
        offer, cordoned = offered_gpus(self._world, self.now, beat)
        end = self._end_of_leases(beat)
        for gpu, tail in cordoned:
            if self._world.keeps_leases(gpu):
                self._leasing.renew(gpu, tail, tail.source, end)
            else:
                self._leasing.take_away(gpu, tail.app, DRAINING)
        called, objection = ((), "") if at_beat else self._called_in(offer, end)
        offer = tuple(sorted((*offer, *called)))
        if not offer and not objection:
            return
        if at_beat and beat != self._passed:  # It may be that of a round that was forgotten.
            self._passed = beat
            for state in self._world.apps.values():
                if state.unready:
                    # It is offered nothing meanwhile because it could not run: that is no waiting.
                    self._world.count_anew(state, self.now)
                state.pass_beat()
        self.count += 1
        view = view_of(
            self._world,
            offer,
            now=self.now,
            round_number=self.count,
            at_beat=at_beat,
            end=end,
            seed=self._seed,
        )
        trigger = "beat" if at_beat else "call" if called else "free"
        self.open = open_round(self.count, trigger, view, self._policy, self._seed)
        if objection:
            self.open.failed = objection
            self._settle(self.open)
        else:
            self._advance(self.open, None)

    def _called_in(self, free: tuple[GpuId, ...], end: float) -> tuple[tuple[GpuId, ...], str]:
        """What the policy calls in for newcomers, and why that failed if it did."""
        if not self._policy.calls_in or not self._any_newcomer(self._wanting()):
            return (), ""
        view = view_of(
            self._world,
            free,
            now=self.now,
            round_number=self.count + 1,
            at_beat=False,
            end=end,
            seed=self._seed,
        )
        lent = lent_gpus(self._world, end)
        try:
            wanted = frozenset(self._policy.call_in(view, lent))
        except Exception as error:  # a user's policy may raise anything; the round fails alone
            return (), f"calling GPUs in: {type(error).__name__}: {error}"
        return tuple(gpu for gpu in lent if gpu in wanted), ""

    @property
    def open_beat(self) -> float | None:
        """The beat that the open round is for."""
        return self._passed if self.open is not None and self.open.view.at_beat else None

    def forget(self) -> None:
        """Drop the open round, if there is one; its offer was not binding."""
        self.open = None

    def part(self) -> RoundsPart:
        """Write down what stays when an open round is forgotten."""
        return RoundsPart(self.count, self._passed)

    def take_back(self, part: RoundsPart) -> None:
        """Become what was written down."""
        self.count, self._passed = part.count, part.beat

    def _end_of_leases(self, beat: float | None) -> float:
        """When leases given in this round end: at the first beat whose round has not opened."""
        settings = self._world.settings
        if not self._policy.keeps_to_beats:
            return self.now + settings.round_lead + settings.lease
        # New settings may put a beat of theirs before the one this round was opened for.
        opened = self.now if beat is None else max(self.now, beat - settings.round_lead)
        return first_beat_after(opened, settings)

    # The conversation

    def _advance(self, current: OpenRound, answer: object) -> None:
        """Continue the session until it waits for an answer or ends."""
        current.advance(answer)
        while current.plan is None and not current.failed:
            match current.question:
                case _ if current.questions > MAX_QUESTIONS:
                    current.failed = f"the policy asked more than {MAX_QUESTIONS} questions"
                case AskBids(apps=apps, tables_only=blind) if current.knows(apps):
                    self._ask(current, apps, blind=blind)
                    if current.waiting:
                        settle_view(current.view)
                        return
                    current.advance(current.sorted_bids())
                case AskSolve(problem=problem):
                    settings = self._world.settings
                    deadline = self.now + settings.solve_budget + settings.heartbeat
                    self._alarms.set(deadline, CloseAnswers(current.number, current.questions))
                    self.out.append(Solve(current.number, problem, settings.solve_work, deadline))
                    settle_view(current.view)
                    return
                case other:
                    current.failed = f"the policy asked {other!r}"
        self._settle(current)

    def _ask(self, current: OpenRound, apps: tuple[AppId, ...], *, blind: bool) -> None:
        current.bids = {}
        view = current.view
        deadline = self.now + self._world.settings.bid_deadline
        # Most apps may use everything, and then the offer is one and the same.
        everything = () if blind else view.offer
        seats = view.topology.seats
        views = {seen.app: seen for seen in view.apps}
        for app in sorted(set(apps)):
            state = self._world.apps.get(app)
            if state is None or not state.active:
                continue  # It ended or was suspended after the round opened.
            asked = views[app]
            gpus, allowed = everything, asked.machines
            if allowed is not None:
                gpus = tuple([gpu for gpu in everything if seats[gpu].machine in allowed])
            current.waiting.add(app)
            offer = Offer(current.number, gpus, asked.kept, asked.expiring)
            self.out.append(Ask(app, offer, deadline))
        if current.waiting:
            self._alarms.set(deadline, CloseAnswers(current.number, current.questions))

    def take_bid(self, state: AppState, number: int, bid: Bid) -> None:
        """Take an agent's answer; the round goes on when it was the last one.

        Raises:
            StaleAnswerError: The round does not wait for it.
            InvalidBidError: It cannot be taken; the app is out of this round.
        """
        current = self.open
        if current is None or number != current.number or not current.awaits_bid(state.id):
            raise StaleAnswerError(state.id, f"no bid of round {number} is waited for")
        try:
            current.take_bid(bid)
            current.bids[state.id] = state.hear(bid, self._world.settings.audit_tolerance)
        finally:
            if not current.waiting:
                self._advance(current, current.sorted_bids())

    def expect_no_bid(self, app: AppId) -> None:
        """An app ended or is suspended: an open round does not wait for it."""
        current = self.open
        if current is not None and current.awaits_bid(app):
            current.waiting.discard(app)
            if not current.waiting:
                self._advance(current, current.sorted_bids())

    def take_solution(self, event: ev.Solved | ev.SolveFailed) -> None:
        """Take the solver's answer.

        Raises:
            StaleAnswerError: The round does not wait for it.
        """
        current = self.open
        if current is None or event.round != current.number or not current.awaits_solution():
            raise StaleAnswerError("solver", f"no solution of round {event.round} is waited for")
        if isinstance(event, ev.Solved):
            self._advance(current, event.solution)
        else:
            current.failed = f"the solver failed: {event.reason}"
            self._settle(current)

    def stop_waiting(self, number: int, question: int) -> None:
        """A deadline has come: go on with what is there."""
        current = self.open
        if current is None or current.number != number or current.questions != question:
            return
        if current.awaits_solution():
            current.failed = "the solver did not answer in time"
            self._settle(current)
            return
        seen = {view.app: view for view in current.view.apps}
        for app in sorted(current.waiting):
            state = self._world.apps.get(app)
            if state is not None and state.active and state.valuation is not None:
                current.bids[app] = bid_from_cache(
                    seen[app],
                    state.valuation,
                    state.work_left,
                    len(current.view.offer),
                )
        current.waiting.clear()
        self._advance(current, current.sorted_bids())

    # The end

    def _settle(self, current: OpenRound) -> None:
        """Carry out the plan, or renew every lease if there is none."""
        self.open = None
        plan = current.plan
        if plan is not None and not current.failed:
            current.failed = _objection(plan, current)
        if plan is None or current.failed:
            plan = _renewal(current, self._world)
        dropped = self._leasing.carry_out(plan, current.view)
        self._count_hunger(current)
        lines = explain_round(current, plan, self._world, with_rho=self.tells_rho)
        self.out.append(
            RecordRound(
                RoundRecord(
                    round=current.number,
                    opened=current.opened,
                    settled=self.now,
                    trigger=current.trigger,
                    offered=len(current.view.offer),
                    allotments=plan.allotments,
                    followups=plan.followups,
                    dropped=dropped,
                    apps=lines,
                    notes=plan.notes,
                    refused=dict(sorted(current.refused.items())),
                    failed=current.failed,
                    idle=_idle(plan, current),
                )
            )
        )

    def _count_hunger(self, current: OpenRound) -> None:
        """Count a starved beat for each app without GPUs; rounds between beats do not count."""
        for view in current.view.apps:
            held = self._world.ledger.holdings(view.app)
            if not current.view.at_beat and not held:
                continue
            state = self._world.apps.get(view.app)
            if state is not None:
                self._leasing.note_waiting(state)
                state.count_hunger(fed=bool(held))


def _objection(plan: Plan, current: OpenRound) -> str:
    """Why a plan cannot be carried out; empty if it can."""
    try:
        check_plan(plan, current.view)
    except InvariantError as error:
        return error.what
    except Exception as error:  # a user's policy may return anything; the round fails alone
        return f"the plan makes no sense: {type(error).__name__}: {error}"
    return ""


def _renewal(current: OpenRound, world: World) -> Plan:
    """A failed round never ends training: whoever holds a GPU keeps it for one beat."""
    mine: dict[AppId, list[GpuId]] = {}
    for gpu, app in sorted(current.view.holders.items()):
        tail = world.ledger.tail(gpu)
        if tail is not None and tail.app == app:  # else it gave the GPU back or lost it since
            mine.setdefault(app, []).append(gpu)
    return Plan(
        tuple(Allotment(app, tuple(gpus), LeaseSource.RENEWED) for app, gpus in mine.items())
    )


def _idle(plan: Plan, current: OpenRound) -> tuple[GpuId, ...]:
    given = {gpu for item in plan.allotments for gpu in item.gpus}
    return tuple([gpu for gpu in current.view.offer if gpu not in given])
