"""Machines, and what their owners may use of them."""

from themis.core.arbiter import events as ev
from themis.core.arbiter.cluster_state import GONE
from themis.core.model import GpuId, OwnerId
from themis.core.model.ids import check_name
from themis.errors import MissingError, RefusedError
from themis.security.permissions import decide
from themis.security.tokens import Role
from themis.service.http import serializers
from themis.service.http.routes.base import Call, Data, Handlers


class Machines(Handlers):
    """What operators do to nodes and quotas."""

    async def nodes(self, call: Call) -> Data:
        own = call.identity.subject if call.identity else None
        sealed = self._allow(call, own)
        steward = self._service.steward
        lines = [
            serializers.node_line(steward, node, sealed=sealed)
            for name, node in sorted(steward.nodes.items())
            if name not in self._service.removed
            and decide(call.identity, call.endpoint.verb, name).allowed
        ]
        return {"nodes": lines, "now": self._service.now(), "trouble": self._trouble(call)}

    def _trouble(self, call: Call) -> str:
        """Why machines may be missing. It may name hosts and files, which are not for all."""
        trouble = self._settings.trouble()
        full = call.identity is not None and call.identity.role is Role.ADMIN
        return trouble if full or not trouble else "the engine has trouble; operators see which"

    def _node(self, call: Call) -> str:
        name = call.path("node")
        self._allow(call, name)
        if name not in self._service.steward.arbiter.world.topology.number_of:
            raise MissingError(name, "there is no such machine")
        return name

    async def cordon(self, call: Call) -> Data:
        node = self._node(call)
        return await self._carry_out(call, ev.MachineCordoned(self._service.now(), node), node)

    async def drain(self, call: Call) -> Data:
        node = self._node(call)
        event = ev.MachineCordoned(self._service.now(), node, drain=True)
        return await self._carry_out(call, event, node)

    async def uncordon(self, call: Call) -> Data:
        node = self._node(call)
        return await self._carry_out(call, ev.MachineUncordoned(self._service.now(), node), node)

    async def remove(self, call: Call) -> Data:
        node, service = self._node(call), self._service
        world, ledger = service.steward.arbiter.world, service.steward.arbiter.ledger
        number = world.topology.number_of[node]
        if not world.is_gone(number):
            reason = "it is heard: drain it and stop its node first, then wait until it is silent"
            raise RefusedError(node, reason)
        if any(ledger.lease(gpu) is not None for gpu in world.topology.gpus_of[number]):
            raise RefusedError(node, "its leases have not ended yet: try again in a while")
        service.keep(service.removed.note(node))
        service.writer.add(audit=self._row(call, node))
        return {"done": True}

    async def restore_gpu(self, call: Call) -> Data:
        node, index = self._node(call), call.path("index")
        world = self._service.steward.arbiter.world
        gpus = world.topology.gpus_of[world.topology.number_of[node]]
        if not index.isdecimal() or len(index) > 6 or int(index) >= len(gpus):
            raise MissingError(f"{node} GPU {index[:20]}", f"it has GPUs 0 to {len(gpus) - 1}")
        gpu = GpuId(gpus[int(index)])
        was = self._service.steward.arbiter.ledger.quarantine_reason(gpu)
        event = ev.GpuRestored(self._service.now(), gpu)
        answer = await self._carry_out(call, event, f"{node} GPU {index}")
        return {**answer, "changed": was not in {None, GONE}}

    # Owners

    async def owners(self, call: Call) -> Data:
        world = self._service.steward.arbiter.world
        known = {*world.quotas, *world.owner_weights}
        known |= {state.spec.owner for state in world.apps.values()}
        shown = [
            owner for owner in known if decide(call.identity, call.endpoint.verb, owner).allowed
        ]
        return {"owners": serializers.owner_lines(shown, world.quotas, world.owner_weights)}

    def _owner(self, call: Call) -> OwnerId:
        self._allow(call, None)
        return OwnerId(check_name("owner", call.path("owner")))

    async def quota(self, call: Call) -> Data:
        owner, gpus = self._owner(call), call.body["gpus"]
        event = ev.QuotaChanged(self._service.now(), owner, gpus)
        return await self._carry_out(call, event, owner, gpus=gpus)

    async def weight(self, call: Call) -> Data:
        owner, weight = self._owner(call), float(call.body["weight"])
        event = ev.WeightChanged(self._service.now(), weight, owner=owner)
        return await self._carry_out(call, event, owner, weight=weight)
