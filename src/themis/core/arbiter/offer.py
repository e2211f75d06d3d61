"""What a round has to give, and what the policy sees of the world."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from themis.core.arbiter.app_view import ArbiterAppView, Surroundings
from themis.core.arbiter.cluster_state import World
from themis.core.arbiter.settings import BidderKind
from themis.core.model import AppId, GpuId, Lease, OwnerId
from themis.core.policies.base import View


def offered_gpus(
    world: World, now: float, beat: float | None
) -> tuple[tuple[GpuId, ...], list[tuple[GpuId, Lease]]]:
    """What is available, and leases that end on machines which take no new ones.

    Available are GPUs promised to no app and, at a beat, those whose last lease ends with it.
    """
    ledger = world.ledger
    if beat is None:
        return tuple(filter(world.takes_leases, ledger.unpromised())), []
    # The later of the two: new settings may have a shorter lead than this beat was opened with.
    ending = ledger.ending(max(beat, now + world.settings.round_lead) + 1e-6)
    if not world.any_cordoned:
        return tuple(ending), []
    offer = tuple(filter(world.takes_leases, ending))
    tails = ((gpu, ledger.tail(gpu)) for gpu in ending if not world.takes_leases(gpu))
    return offer, [(gpu, tail) for gpu, tail in tails if tail is not None]


def lent_gpus(world: World, end: float) -> dict[GpuId, AppId]:
    """Who holds or is promised each GPU that could be called in, of those leased up to a time.

    Not where two share a lease's time: the first would get back less than it has, or more.
    """
    ledger = world.ledger
    lent = {}
    for gpu in map(GpuId, range(len(ledger))):
        tail = ledger.tail(gpu)
        if tail is None or tail.end < end - 1e-6 or not world.takes_leases(gpu):
            continue
        waiting = len(ledger.queue(gpu))
        if waiting == 0 or (waiting == 1 and ledger.is_leaving(gpu)):
            lent[gpu] = tail.app
    return lent


def view_of(
    world: World,
    offer: tuple[GpuId, ...],
    *,
    now: float,
    round_number: int,
    at_beat: bool,
    end: float,
    seed: int,
) -> View:
    """The world as a policy sees it when a round opens."""
    contention = partial(world.contention_inside, at=now)
    return _view(world, offer, contention, now, round_number, at_beat=at_beat, end=end, seed=seed)


def _view(
    world: World,
    offer: tuple[GpuId, ...],
    contention: Callable[[AppId], float],
    now: float,
    round_number: int = 0,
    *,
    at_beat: bool = False,
    end: float,
    seed: int = 0,
) -> View:
    settings = world.settings
    offered = frozenset(offer)
    quotas = world.quotas_left(offered)
    around = Surroundings(
        now=now,
        settings=settings,
        topology=world.topology,
        offered=offered,
        elapsed=lambda app: world.contention.elapsed(app, now),
        mean_contention=contention,
        mean_capacity=lambda app: world.capacity.mean_capacity(app, now),
        attained=lambda app: world.ledger.attained_total(app, now),
        weight=_for_owners(world, world.weight),
        queued_work=_for_owners(world, world.queued_work),
        quota_left=quotas.get,
    )
    apps = tuple(
        ArbiterAppView(
            state,
            world.ledger.held(app),
            world.allowed_machines(state.spec.constraint),
            around,
        )
        for app, state in sorted(world.apps.items())
        if state.active
    )
    return View(
        now=now,
        round=round_number,
        at_beat=at_beat,
        topology=world.topology,
        offer=offer,
        holders=world.ledger.promised(offer),
        apps=apps,
        lease=settings.lease,
        end=end,
        quotas=quotas,
        by_owner=settings.bidder is BidderKind.OWNER,
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class Fairness:
    """How an app stands now."""

    elapsed: float
    """Active seconds."""
    ideal_time: float
    rho: float
    """If it keeps what it holds to the end."""


def fairness_of(world: World, now: float) -> dict[AppId, Fairness]:
    """How every active app stands by the contention of the run, as it will be reported."""
    contention = partial(world.contention.mean_contention, at=now)
    view = _view(world, (), contention, now, end=now)
    return {app.app: Fairness(app.elapsed, app.ideal_time, app.rho_now) for app in view.apps}


def _for_owners(world: World, compute: Callable[[AppId], float]) -> Callable[[AppId], float]:
    """The same number, worked out once for each owner where all its apps share it.

    Good for one view, which reads everything before the world goes on.
    """
    if world.settings.bidder is not BidderKind.OWNER:
        return compute
    known: dict[OwnerId, float] = {}

    def shared(app: AppId) -> float:
        owner = world.apps[app].spec.owner
        if owner not in known:
            known[owner] = compute(app)
        return known[owner]

    return shared


def settle_view(view: View) -> None:
    """A round waits: what its view has not read yet may change before it goes on."""
    for app in view.apps:
        if isinstance(app, ArbiterAppView):
            app.settle()
