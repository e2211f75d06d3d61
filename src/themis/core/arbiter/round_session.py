"""One round as a conversation with the policy: questions out, answers in, a plan at the end."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from themis.core.auction.problem import check_bid_on, gpus_by_machine, offered_machines
from themis.core.fairness.valuation import Valuation
from themis.core.model import AppId, Bid, Chunk, GpuId, Row
from themis.core.policies.base import (
    Allotment,
    AppView,
    AskBids,
    AskSolve,
    Notes,
    Plan,
    Policy,
    Question,
    Round,
    View,
)
from themis.errors import InvariantError


@dataclass(slots=True)
class OpenRound:
    """A round under way. Offers are not binding, so a crash simply forgets it."""

    number: int
    trigger: str
    opened: float
    view: View
    conversation: Round
    question: Question | None = None
    questions: int = 0
    waiting: set[AppId] = field(default_factory=set)
    bids: dict[AppId, Bid] = field(default_factory=dict)
    refused: dict[AppId, str] = field(default_factory=dict)
    offered: Mapping[int, int] | None = None
    """The offered GPUs of each machine, once a bid with rows came."""
    plan: Plan | None = None
    failed: str = ""

    def advance(self, answer: object) -> None:
        """Hand an answer to the policy; afterwards there is a question, a plan or a failure."""
        self.question = None
        try:
            self.question = self.conversation.send(answer)
            self.questions += 1
        except StopIteration as stop:
            self.plan = stop.value
        except Exception as error:  # a user's policy may raise anything; the round fails alone
            self.failed = f"{type(error).__name__}: {error}{_where(error)}"

    def take_bid(self, bid: Bid) -> None:
        """Take an answer that is waited for.

        Raises:
            InvalidBidError: It cannot be taken; the app has then no bid in this round.
        """
        self.waiting.discard(bid.app)
        try:
            if bid.rows and self.offered is None:
                machines = offered_machines(self.view.offer, self.view.topology)
                self.offered = gpus_by_machine(machines)
            check_bid_on(bid, self.offered or {})
        except Exception as error:
            self.refused[bid.app] = str(error)
            raise
        self.bids[bid.app] = bid

    def knows(self, apps: tuple[AppId, ...]) -> bool:
        """Whether a question names only apps of this round."""
        return {app.app for app in self.view.apps}.issuperset(apps)

    def awaits_bid(self, app: AppId) -> bool:
        """Whether this app's bid is waited for."""
        return isinstance(self.question, AskBids) and app in self.waiting

    def awaits_solution(self) -> bool:
        """Whether the solver's answer is waited for."""
        return isinstance(self.question, AskSolve)

    def sorted_bids(self) -> dict[AppId, Bid]:
        """The bids that came, in the order of names: the order of arrival never decides."""
        return {app: self.bids[app] for app in sorted(self.bids)}


def _where(error: Exception) -> str:
    """The line of a user's own policy at which it failed, if it is one."""
    place = ""
    step = error.__traceback__
    while step is not None:
        if not str(step.tb_frame.f_globals.get("__name__", "")).startswith("themis."):
            name = step.tb_frame.f_code.co_filename.rsplit("/", 1)[-1]
            place = f" ({name}, line {step.tb_lineno})"
        step = step.tb_next
    return place


def open_round(number: int, trigger: str, view: View, policy: Policy, seed: int) -> OpenRound:
    """Begin a conversation; chance in it depends on the seed and the round's number alone."""
    rng = random.Random(f"{seed}/{number}")
    return OpenRound(number, trigger, view.now, view, _conversation(policy, view, rng))


def _conversation(policy: Policy, view: View, rng: random.Random) -> Round:
    # Begun inside, so that a policy which is no generator fails its round and nothing else.
    return (yield from policy.hold_round(view, rng))


def check_plan(plan: Plan, view: View) -> None:
    """Check that a plan can be carried out.

    Raises:
        InvariantError: It gives away a GPU that was not offered, twice, or to no app.
    """
    if not isinstance(plan, Plan):
        raise InvariantError(f"a policy must return a Plan, not {type(plan).__name__}")
    if not isinstance(plan.notes, Notes):
        raise InvariantError(f"notes of a plan must be Notes, not {type(plan.notes).__name__}")
    apps = {app.app: app for app in view.apps}
    offered = frozenset(view.offer)
    first = _owners(plan.allotments, offered, apps)
    second = _owners(plan.followups, offered, apps)
    for owners in (first, second):
        _check_machines(owners, apps, view)
    given = dict.fromkeys(apps, 0)
    for owner in (first, second):
        for allotment in owner.values():
            given[allotment.app] += 1
    for app, count in given.items():
        if count > apps[app].room:
            raise InvariantError(f"{app} is given {count} GPUs and has room for {apps[app].room}")
    for gpu, allotment in first.items():
        if allotment.until is not None and not view.now < allotment.until <= view.end:
            raise InvariantError(f"GPU {gpu} is given to {allotment.app} until {allotment.until}")
    for gpu, allotment in second.items():
        before = first.get(gpu)
        if before is None or before.until is None or before.app == allotment.app:
            raise InvariantError(f"GPU {gpu} has nobody before {allotment.app} to follow")
    _check_quotas(given, view)


def _owners(
    allotments: Sequence[Allotment], offered: frozenset[GpuId], apps: Mapping[AppId, AppView]
) -> dict[GpuId, Allotment]:
    owners: dict[GpuId, Allotment] = {}
    for allotment in allotments:
        app = apps.get(allotment.app)
        if app is None:
            raise InvariantError(f"{allotment.app} is given GPUs but is not active")
        for gpu in allotment.gpus:
            if gpu not in offered:
                raise InvariantError(f"GPU {gpu} was not offered but is given to {app.app}")
            if gpu in owners:
                raise InvariantError(f"GPU {gpu} is given to {owners[gpu].app} and {app.app}")
            owners[gpu] = allotment
    return owners


def _check_machines(
    owners: Mapping[GpuId, Allotment], apps: Mapping[AppId, AppView], view: View
) -> None:
    for gpu, allotment in owners.items():
        machines = apps[allotment.app].machines
        if machines is not None and view.topology.seats[gpu].machine not in machines:
            raise InvariantError(f"GPU {gpu} is not what {allotment.app} may use")


def _check_quotas(given: Mapping[AppId, int], view: View) -> None:
    for owner, limit in view.quotas.items():
        total = sum(given[app.app] for app in view.apps if app.owner == owner)
        if total > limit:
            raise InvariantError(f"{owner} is given {total} GPUs, its quota leaves {limit}")


def bid_from_cache(app: AppView, valuation: Valuation, work_left: float, offered: int) -> Bid:
    """What an app that did not answer in time would have bid, from its last valuation."""
    held = len(app.kept)
    scale = work_left / valuation.work_left if valuation.work_left > 0 else 1.0
    rows = []
    for entry in valuation.table:
        extra = entry.count - held
        if not 0 < extra <= min(offered, app.room):
            continue
        whole, rest = divmod(extra, app.gang)
        chunks = [Chunk(entry.level, app.gang)] * whole
        if rest:
            chunks.append(Chunk(entry.level, rest))
        rows.append(Row(tuple(chunks), entry.seconds * scale))
    return Bid(app.app, tuple(rows), valuation.table)
