"""Machines and their GPUs: shown, cordoned, drained, removed."""

from themis.core.arbiter import events as ev
from themis.core.arbiter.cluster_state import GONE
from themis.core.model import GpuId
from themis.errors import MissingError, RefusedError
from themis.security.tokens import Role
from themis.service.http import serializers
from themis.service.http.context import ApiContext
from themis.service.http.routing import ApiRequest, Data


async def list_nodes(api: ApiContext, request: ApiRequest) -> Data:
    """The machines that the caller may see."""
    sealed = request.allow(request.subject)
    service, steward = api.service, api.service.steward
    rows = [
        serializers.node_row(steward, node, sealed=sealed)
        for name, node in sorted(steward.nodes.items())
        if name not in service.retired and request.decide(name).allowed
    ]
    return {"nodes": rows, "now": service.now(), "trouble": _trouble(api, request)}


def _trouble(api: ApiContext, request: ApiRequest) -> str:
    """Why machines may be missing; in full for admins only, as it may name hosts and files."""
    trouble = api.settings.trouble()
    full = request.identity is not None and request.identity.role is Role.ADMIN
    return trouble if full or not trouble else "the engine has trouble; operators see which"


async def cordon(api: ApiContext, request: ApiRequest) -> Data:
    """Grant no new leases on a machine."""
    return await _cordon(api, request, drain=False)


async def drain(api: ApiContext, request: ApiRequest) -> Data:
    """Grant no new leases on a machine, and renew none."""
    return await _cordon(api, request, drain=True)


async def _cordon(api: ApiContext, request: ApiRequest, *, drain: bool) -> Data:
    node = _node(api, request)
    event = ev.MachineCordoned(api.service.now(), node, drain=drain)
    return await api.carry_out(event, request.audit_row(node))


async def uncordon(api: ApiContext, request: ApiRequest) -> Data:
    """Use a machine again."""
    node = _node(api, request)
    event = ev.MachineUncordoned(api.service.now(), node)
    return await api.carry_out(event, request.audit_row(node))


async def remove(api: ApiContext, request: ApiRequest) -> Data:
    """No longer show a silent machine."""
    node, service = _node(api, request), api.service
    world, ledger = service.steward.arbiter.world, service.steward.arbiter.ledger
    number = world.topology.number_of[node]
    if not world.is_gone(number):
        reason = "it is heard: drain it and stop its node first, then wait until it is silent"
        raise RefusedError(node, reason)
    if any(ledger.lease(gpu) is not None for gpu in world.topology.gpus_of[number]):
        raise RefusedError(node, "its leases have not ended yet: try again in a while")
    service.retired.retire(node)
    api.write_audit(request.audit_row(node))
    return {"done": True}


async def restore_gpu(api: ApiContext, request: ApiRequest) -> Data:
    """Take a GPU out of quarantine."""
    node, index = _node(api, request), request.path("index")
    arbiter = api.service.steward.arbiter
    gpus = arbiter.world.topology.gpus_of[arbiter.world.topology.number_of[node]]
    if not index.isdecimal() or len(index) > 6 or int(index) >= len(gpus):
        raise MissingError(f"{node} GPU {index[:20]}", f"it has GPUs 0 to {len(gpus) - 1}")
    gpu = GpuId(gpus[int(index)])
    changed = arbiter.ledger.quarantine_reason(gpu) not in {None, GONE}
    event = ev.GpuRestored(api.service.now(), gpu)
    done = await api.carry_out(event, request.audit_row(f"{node} GPU {index}"))
    return {**done, "changed": changed}


def _node(api: ApiContext, request: ApiRequest) -> str:
    """The machine in the path, if the caller may do this to it."""
    name = request.path("node")
    request.allow(name)
    if name not in api.service.steward.arbiter.world.topology.number_of:
        raise MissingError(name, "there is no such machine")
    return name
