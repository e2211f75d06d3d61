"""Themis: the worst-off apps bid, a partial-allocation auction picks winners, leftovers are dealt.

The default policy. The same mechanism with the text taken literally is in `themis_paper`.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, TypeVar

from themis.core.auction.mechanism import bind, draw, settle
from themis.core.auction.payments import Award
from themis.core.auction.payments import payment as payment_by_name
from themis.core.auction.problem import Bidder, Candidate, Problem, Quota, offered_machines
from themis.core.auction.row_cap import fair_rows, thinned
from themis.core.auction.solution import Solution
from themis.core.model import AppId, Bid, GpuId, LeaseSource
from themis.core.model.ids import check_count, check_number
from themis.core.model.reasons import Reason
from themis.core.policies.base import (
    Allotment,
    AppStanding,
    AppView,
    AskBids,
    AskSolve,
    Certificate,
    Notes,
    Plan,
    Round,
    View,
)
from themis.core.policies.leftovers import Barred, Hand
from themis.core.policies.newcomer_preemption import Caller
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import LATE, invite, worst_off
from themis.errors import ConfigError, unknown_name

_DAY = 86_400.0
_TRIED = 0.5
"""Leases of its smallest gang after which an app's jobs have shown whether they run."""

_Kind = TypeVar("_Kind", bound=StrEnum)


class Rank(StrEnum):
    """What the filter orders apps by."""

    NOW = "now"
    """Rho with what they hold."""
    BEST_CASE = "best-case"
    """Rho if they waited once more and were then given all they can use, where that is urgent."""


class Horizon(StrEnum):
    """For how long a bid's GPUs are taken to be the app's."""

    END = "end"
    """To the end: the paper's reading."""
    LEASE = "lease"
    """For one lease, and then all that the app can use."""


class Leftovers(StrEnum):
    """Who gets what the auction left."""

    RANKED = "ranked"
    """To all apps in the ranking, bidders too, but no app gets back what it paid."""
    OUTSIDE_FIRST = "outside-first"
    """Who ran there, then others outside the auction, then bidders; in the filter's order."""
    PAPER = "paper"
    """Apps outside the auction, at random."""


@dataclass
class _RoundAuction:
    """The state of a round so far."""

    view: View
    pool: Pool
    rho: dict[AppId, float] = field(default_factory=dict)
    """What people are told: rho now, or in the best case."""
    order: dict[AppId, float] = field(default_factory=dict)
    """What apps are ranked by, the largest first."""
    ranked: list[AppView] = field(default_factory=list)
    invited: list[AppView] = field(default_factory=list)
    bids: Mapping[AppId, Bid] = field(default_factory=dict)
    solution: Solution | None = None
    awards: Mapping[AppId, Award] = field(default_factory=dict)
    won: dict[AppId, tuple[GpuId, ...]] = field(default_factory=dict)
    guarded: list[Allotment] = field(default_factory=list)


class Themis(Caller):
    """The default policy."""

    name: ClassVar[str] = "themis"
    asks_tables: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, object]] = {
        "bidder": "owner",
        "convention": "fair_share",
        "contention_of": "shares",
    }

    def __init__(
        self,
        *,
        f: float = 0.8,
        payment: str = "lottery",
        rank: str = Rank.BEST_CASE,
        lookahead: float = 1.0,
        urgent: float = 0.8,
        hysteresis: float = 0.05,
        min_invited: int = 2,
        horizon: str = Horizon.LEASE,
        leftovers: str = Leftovers.RANKED,
        guard_rounds: int = 5,
        guard_patience: int = 24,
        call_in_gain: float = 0.05,
        fresh_tables: bool = False,
    ) -> None:
        super().__init__(call_in_gain=call_in_gain)
        self.f = check_number("f", f, high=1.0)
        self.payment = payment_by_name(payment)
        self.rank = _choice("rank", rank, Rank)
        self.lookahead = check_number("lookahead", lookahead, high=100.0)
        self.urgent = check_number("urgent", urgent, high=10.0)
        self.hysteresis = check_number("hysteresis", hysteresis, high=10.0)
        self.min_invited = check_count("min_invited", min_invited, high=10_000)
        self.horizon = _choice("horizon", horizon, Horizon)
        self.leftovers = _choice("leftovers", leftovers, Leftovers)
        self.guard_rounds = check_count("guard_rounds", guard_rounds, low=0)
        self.guard_patience = check_count("guard_patience", guard_patience)
        if not isinstance(fresh_tables, bool):
            raise ConfigError("fresh_tables", fresh_tables, "true or false")
        self.fresh_tables = fresh_tables

    def hold_round(self, view: View, rng: random.Random) -> Round:
        """Rank, invite, ask, solve, settle, deal."""
        auction = _RoundAuction(view, Pool(view.topology, view.offer))
        if self.fresh_tables:
            # Only apps with unmet demand are invited or dealt to: no other rank matters.
            tables: Mapping[AppId, Bid] = yield AskBids(
                tuple(app.app for app in view.apps if app.room >= 1), tables_only=True
            )
            self._rank(auction, tables)
        else:
            self._rank(auction, {})
        self._serve_starved(auction)
        if auction.invited:
            auction.bids = yield AskBids(tuple(app.app for app in auction.invited))
            problem = self._problem(auction)
            if problem.bidders:
                auction.solution = yield AskSolve(problem)
                self._settle(auction)
        return self._deal(auction)

    # Visibility

    def _rank(self, auction: _RoundAuction, tables: Mapping[AppId, Bid]) -> None:
        """Order every active app, and invite the worst off of those with unmet demand."""
        for app in auction.view.apps:
            rho = self._rho(app, tables.get(app.app), auction.view)
            auction.rho[app.app] = rho
            auction.order[app.app] = self._urgency(app, rho, auction.view)
        auction.ranked = worst_off(
            auction.view, auction.view.apps, lambda app: auction.order[app.app]
        )
        wanting = [app for app in auction.ranked if app.room >= 1]
        auction.invited = invite(auction.view, wanting, self.f, self.min_invited)

    def _rho(self, app: AppView, fresh: Bid | None, view: View) -> float:
        if self.rank is Rank.BEST_CASE:
            return self._best_case(app, view)
        if fresh is not None and fresh.table and app.held:
            seats = view.topology.seats
            seconds = app.revalued(fresh).seconds(
                [seats[gpu] for gpu in app.held],
                gang=app.gang,
                gangs=app.runnable_jobs,
                work_left=app.remaining_work,
            )
            return min(app.rho_after(seconds), app.rho_nothing)
        return app.rho_now

    def _urgency(self, app: AppView, rho: float, view: View) -> float:
        """What an app is ranked by.

        An app without slack ranks by its best-case rho. The others would
        all be in time: of them those with the least work go first, so that most apps end soonest.
        """
        # A bonus for running apps: without it, equal apps take turns.
        bonus = 1.0 + self.hysteresis if app.held else 1.0
        # And it is urgent a little sooner, or it would lose what it won by being so, wait, and be
        # urgent again a beat later (decision 0031).
        if self.rank is Rank.NOW or rho * bonus >= self.urgent:
            return rho * bonus
        days = app.queued_work / (_DAY * max(1, view.topology.gpus))
        # Below every urgent app, even with the bonus for running apps.
        return bonus * self.urgent / (1.0 + self.hysteresis) / (1.0 + days)

    def _best_case(self, app: AppView, view: View) -> float:
        """Rho if the app waits for the next beat and is then given all it can use."""
        return app.rho_after(self.lookahead * view.lease + app.best_case_seconds)

    def _is_starved(self, app: AppView, view: View) -> bool:
        """Whether an app has waited too long.

        An app with slack gets more patience: it would start and stop one gang again
        and again. An app that has hardly run learns early whether its jobs run at all.
        """
        if app.held or app.hungry_rounds < self.guard_rounds:
            return False
        if self.rank is Rank.NOW or app.attained < _TRIED * app.min_gang * view.lease:
            return True
        if app.hungry_rounds >= self.guard_patience * self.guard_rounds:
            return True
        return self._best_case(app, view) > LATE

    def _serve_starved(self, auction: _RoundAuction) -> None:
        """Give starved apps one gang before the auction, the longest starved first."""
        if not self.guard_rounds:
            return
        left = dict(auction.view.quotas)
        for app in sorted(auction.ranked, key=lambda app: -app.hungry_rounds):
            room = min(app.room, left.get(app.owner, app.room))
            if room < app.min_gang or not self._is_starved(app, auction.view):
                continue
            gpus = auction.pool.take(app.min_gang, gang=app.min_gang, machines=app.machines)
            if len(gpus) < app.min_gang or math.isinf(app.seconds_with(gpus)):
                for gpu in gpus:
                    auction.pool.put_back(gpu)
                continue
            if app.owner in left:
                left[app.owner] -= len(gpus)
            auction.guarded.append(Allotment(app.app, gpus, LeaseSource.GUARD))
        served = {item.app for item in auction.guarded}
        auction.invited = [app for app in auction.invited if app.app not in served]

    # Allocation

    def _problem(self, auction: _RoundAuction) -> Problem:
        bidders = []
        most = fair_rows([len(bid.rows) for bid in auction.bids.values()])
        for app in sorted(auction.invited, key=lambda app: app.app):
            bid = auction.bids.get(app.app)
            worth = self._worth(app, auction.view)
            nothing = worth(math.inf)
            if bid is None or not _sound(nothing):
                continue
            rows = [
                Candidate(row.chunks, rho)
                for row in thinned(bid.rows, most)
                if row.gpus <= app.room and _sound(rho := worth(row.seconds))
            ]
            if rows:
                bidders.append(Bidder(app.app, app.weight, nothing, tuple(rows), app.machines))
        return Problem(
            offered_machines(auction.pool.gpus(), auction.view.topology),
            tuple(bidders),
            self._quotas(auction, {bidder.app for bidder in bidders}),
            self.payment.objective,
        )

    def _worth(self, app: AppView, view: View) -> Callable[[float], float]:
        """Rho by the seconds that an app says it would need with a row; infinite for no row.

        GPUs are leased, not given: what counts is how far the app gets in this lease. Taken as
        binding to the end, an app that is late and nearly done gains next to nothing by them, and
        the auction keeps it waiting.
        """
        if self.horizon is Horizon.END:
            return lambda seconds: (
                app.rho_after(seconds) if math.isfinite(seconds) else app.rho_nothing
            )
        lease, best = _span(view)[1], app.best_case_seconds
        kept = app.seconds_with(app.kept)

        def worth(seconds: float) -> float:
            seconds = min(seconds, kept)
            if seconds <= lease:
                return app.rho_after(seconds)
            return app.rho_after(lease + (1.0 - lease / seconds) * min(best, seconds))

        return worth

    def _quotas(self, auction: _RoundAuction, bidding: set[AppId]) -> tuple[Quota, ...]:
        quotas = []
        for owner, limit in sorted(auction.view.quotas.items()):
            apps = [app.app for app in auction.invited if app.owner == owner and app.app in bidding]
            taken = sum(
                len(item.gpus)
                for item in auction.guarded
                if auction.view.find(item.app).owner == owner
            )
            if apps:
                quotas.append(Quota(tuple(sorted(apps)), max(0, limit - taken)))
        return tuple(quotas)

    def _settle(self, auction: _RoundAuction) -> None:
        if auction.solution is None:
            return
        view = auction.view
        solution = draw(auction.solution, view.rng("lottery"))
        offered = auction.pool.gpus()
        held = {app.app: app.expiring for app in auction.invited}
        units = {app.app: app.min_gang for app in auction.invited}
        bound = bind(solution, offered, held, view.topology)
        auction.won = {
            app: tuple(sorted(gpu for chunk in chunks for gpu in chunk))
            for app, chunks in bound.items()
        }
        outcome = settle(
            solution,
            bound,
            units,
            self.payment,
            _span(view)[1],
            view.topology,
            offered,
            lambda app: view.rng(f"payment/{app}"),
        )
        auction.awards = outcome.awards
        for award in outcome.awards.values():
            auction.pool.remove(award.gpus)

    # Leftovers

    def _deal(self, auction: _RoundAuction) -> Plan:
        hand = Hand(auction.view, auction.pool)
        by_name = {app.app: app for app in auction.view.apps}
        for item in auction.guarded:
            hand.note(by_name[item.app], item.gpus)
        for name, award in auction.awards.items():
            hand.note(by_name[name], award.gpus)
        settled = {gpu for item in auction.guarded for gpu in item.gpus}
        settled.update(gpu for award in auction.awards.values() for gpu in award.gpus)
        # No refund: no app gets back in the same round what it has paid.
        self._deal_leftovers(auction, hand, {name: a.paid for name, a in auction.awards.items()})
        allotments = [
            *auction.guarded,
            *self._award_allotments(auction),
            *hand.allotments(LeaseSource.LEFTOVER, skip=settled),
        ]
        return Plan(tuple(allotments), self._followups(auction, hand), self._notes(auction, hand))

    def _deal_leftovers(self, auction: _RoundAuction, hand: Hand, barred: Barred) -> None:
        """To all apps in the ranking, or by section 5 of the paper's rules."""
        if self.leftovers is Leftovers.RANKED:
            for app in auction.ranked:
                hand.deal([app], barred=barred.get(app.app, ()))
            hand.deal_rest(auction.ranked, barred)
            return
        asked = {app.app for app in auction.invited}
        outside = [app for app in auction.ranked if app.app not in asked]
        if self.leftovers is Leftovers.PAPER:
            auction.view.rng("leftovers").shuffle(outside)
            hand.deal(outside)
            return
        hand.deal_own(outside)
        hand.deal(outside)
        for app in auction.ranked:
            if app.app in asked:
                hand.deal([app], barred=barred.get(app.app, ()))
        hand.deal_rest(auction.ranked, barred)

    def _award_allotments(self, auction: _RoundAuction) -> list[Allotment]:
        start, length = _span(auction.view)
        result = []
        for app, award in sorted(auction.awards.items()):
            if not award.gpus:
                continue
            part = award.until_fraction
            until = None if part is None else start + part * length
            result.append(Allotment(app, award.gpus, LeaseSource.AUCTION, until))
        return result

    def _followups(self, auction: _RoundAuction, hand: Hand) -> tuple[Allotment, ...]:
        """Second owners of GPUs whose first owner has them for part of the lease."""
        shared = {
            gpu: app
            for app, award in auction.awards.items()
            if award.until_fraction is not None
            for gpu in award.gpus
        }
        if not shared:
            return ()
        pool = Pool(auction.view.topology, shared)
        later = Hand(auction.view, pool)
        for app in auction.view.apps:
            later.note(app, hand.given(app.app))
        mine: dict[AppId, list[GpuId]] = {}
        for gpu, app_id in shared.items():
            mine.setdefault(app_id, []).append(gpu)
        self._deal_leftovers(auction, later, mine)
        return tuple(
            Allotment(item.app, gpus, item.source)
            for item in later.allotments(LeaseSource.LEFTOVER)
            if (gpus := tuple(gpu for gpu in item.gpus if shared.get(gpu) not in {None, item.app}))
        )

    def _notes(self, auction: _RoundAuction, hand: Hand) -> Notes:
        asked = {app.app for app in auction.invited}
        guarded = {item.app for item in auction.guarded}
        standings = []
        for rank, app in enumerate(auction.ranked, start=1):
            invited = app.app in asked
            why = None
            if not invited and app.app not in guarded:
                why = Reason.NOT_IN_AUCTION if app.room else _without_room(app)
            standings.append(AppStanding(app.app, auction.rho[app.app], rank, invited, why))
        solution = auction.solution
        certificate = None
        if solution is not None:
            certificate = Certificate(
                solution.solver, solution.value, solution.bound, solution.exact
            )
        awards = sorted(auction.awards.items())
        return Notes(
            standings=tuple(standings),
            bids=tuple(auction.bids[app] for app in sorted(auction.bids)),
            won=dict(sorted(auction.won.items())),
            kept_fractions={app: award.kept_fraction for app, award in awards},
            paid={app: award.paid for app, award in awards if award.paid},
            declined=tuple(sorted(hand.declined)),
            certificate=certificate,
        )


def _without_room(app: AppView) -> Reason:
    """Why an app that wants nothing in this round was not asked."""
    if len(app.kept) >= app.demand:
        return Reason.SERVED
    # It gave GPUs back that it could not use, or its owner's quota is used up.
    return Reason.PARTLY_SERVED if app.held else Reason.QUOTA_REACHED


def _choice(key: str, given: object, kind: type[_Kind]) -> _Kind:
    if given not in set(kind):
        # Options may come from a file or a command line, where 3 is a number.
        raise unknown_name(key, given, [str(item) for item in kind])
    return kind(str(given))


def _span(view: View) -> tuple[float, float]:
    """When leases given in this round begin, and how long they are.

    At a beat they begin with it; a grant between beats begins now and is shorter.
    """
    # New settings can make the first lease on their grid of beats a short one.
    start = max(view.now, view.end - view.lease) if view.at_beat else view.now
    return start, min(view.lease, view.end - start)


def _sound(rho: float) -> bool:
    """Whether a rho can be part of a product; one without any usable GPU is zero."""
    return math.isfinite(rho) and rho > 0.0
