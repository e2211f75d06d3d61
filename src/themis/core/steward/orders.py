"""What a node is told: ledger and wanted runs as orders."""

from collections.abc import Mapping

from themis.core.arbiter import Arbiter
from themis.core.model import GpuId
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.rows import WantedRun
from themis.core.steward.run_table import Runbook
from themis.protocol.node_messages import LeaseOrder, LeaseTerms, Orders, RunOrder


def orders_for(
    node: NodeEntry,
    arbiter: Arbiter,
    book: Runbook,
    machine_of: Mapping[GpuId, NodeEntry],
    *,
    epoch: int,
    terms: LeaseTerms,
    heard: tuple[tuple[int, int], ...] = (),
    nonce: str = "",
) -> Orders:
    """The whole of what is wanted on a node, as an answer to its kept report."""
    runs = [
        _run_order(run, node, machine_of)
        for run in book.on_node(node.gpus)
        if run.ordered and node.name not in run.over
    ]
    return Orders(
        epoch,
        node.boot,
        node.number,
        node.revision,
        _lease_orders(node, arbiter) if node.present else (),
        tuple(runs),
        terms,
        node.forget,
        introduce=node.machine is None,
        heard=heard,
        nonce=nonce,
        logs=node.logs,
    )


def _lease_orders(node: NodeEntry, arbiter: Arbiter) -> tuple[LeaseOrder, ...]:
    orders = []
    apps = arbiter.world.apps
    for index, gpu in enumerate(node.gpus):
        lease = arbiter.ledger.lease(gpu)
        if lease is not None:
            owner = apps[lease.app].spec.owner
            remaining = lease.end - node.held_at
            orders.append(LeaseOrder(index, lease.app, owner, lease.token, remaining))
    return tuple(orders)


def _run_order(run: WantedRun, node: NodeEntry, machine_of: Mapping[GpuId, NodeEntry]) -> RunOrder:
    """What one of the nodes of a run is told."""
    names = list(dict.fromkeys(machine_of[gpu].name for gpu in run.gpus))
    mine = [i for i, gpu in enumerate(run.gpus) if machine_of[gpu] is node]
    first = node.gpus[0]
    return RunOrder(
        run.run,
        run.app,
        run.owner,
        run.job,
        tuple(run.gpus[i] - first for i in mine),
        tuple(run.tokens[i] for i in mine),
        run.program,
        run.limit,
        run.stop,
        names.index(node.name),
        len(names),
        names[0],
        run.born,
    )
