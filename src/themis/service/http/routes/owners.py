"""Quotas and weights of owners."""

from themis.core.arbiter import events as ev
from themis.core.model import OwnerId
from themis.core.model.ids import check_name
from themis.service.http.context import ApiContext
from themis.service.http.routing import ApiRequest, Data


async def list_owners(api: ApiContext, request: ApiRequest) -> Data:
    """The owners that the caller may see."""
    world = api.service.steward.arbiter.world
    known = {*world.quotas, *world.owner_weights}
    known |= {state.spec.owner for state in world.apps.values()}
    return {
        "owners": [
            {
                "owner": owner,
                "quota": world.quotas.get(owner),
                "weight": world.owner_weights.get(owner),
            }
            for owner in sorted(known)
            if request.decide(owner).allowed
        ]
    }


async def set_quota(api: ApiContext, request: ApiRequest) -> Data:
    """Limit how many GPUs an owner may hold."""
    owner, gpus = _owner(request), request.body.gpus
    event = ev.QuotaChanged(api.service.now(), owner, gpus)
    return await api.carry_out(event, request.audit_row(owner, gpus=gpus))


async def set_weight(api: ApiContext, request: ApiRequest) -> Data:
    """Change an owner's share."""
    owner, weight = _owner(request), request.body.weight
    event = ev.WeightChanged(api.service.now(), weight, owner=owner)
    return await api.carry_out(event, request.audit_row(owner, weight=weight))


def _owner(request: ApiRequest) -> OwnerId:
    request.allow()
    return OwnerId(check_name("owner", request.path("owner")))
