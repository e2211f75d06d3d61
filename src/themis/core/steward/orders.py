"""The orders of a node: its leases and runs, as the answer to its held report."""

from themis.core.arbiter import Arbiter
from themis.core.steward.node_table import NodeEntry, NodeTable
from themis.core.steward.rows import ActiveRun
from themis.core.steward.run_table import RunTable
from themis.protocol.node_messages import LeaseOrder, LeaseTerms, Orders, RunOrder


def orders_for(
    node: NodeEntry,
    arbiter: Arbiter,
    runs: RunTable,
    nodes: NodeTable,
    *,
    epoch: int,
    acknowledged: tuple[tuple[int, int], ...] = (),
    nonce: str = "",
) -> Orders:
    """The wanted state of a node, as a whole."""
    wanted = [
        run for run in runs.on_gpus(node.gpus) if run.dispatched and node.name not in run.ended_on
    ]
    return Orders(
        epoch,
        node.boot,
        node.number,
        node.revision,
        _lease_orders(node, arbiter) if node.present else (),
        tuple(_run_order(run, node, nodes) for run in wanted),
        lease_terms(arbiter, nodes),
        node.forget,
        introduce=node.machine is None,
        heard=acknowledged,
        nonce=nonce,
        logs=node.logs,
    )


def lease_terms(arbiter: Arbiter, nodes: NodeTable) -> LeaseTerms:
    """The times that the service and its nodes keep to."""
    return LeaseTerms(arbiter.settings.heartbeat, nodes.node_ttl, arbiter.settings.grace)


def outdated_orders(node: NodeEntry, number: int, epoch: int, terms: LeaseTerms) -> Orders:
    """The answer to a report that is older than the last one.

    It arrived late, and its sender ignores the answer; or the node has lost its disk, and has to
    count its boots from the one that the service knows.
    """
    return Orders(epoch, node.boot, number, 0, (), (), terms, outdated=True)


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


def _run_order(run: ActiveRun, node: NodeEntry, nodes: NodeTable) -> RunOrder:
    """The part of a run that one of its nodes has."""
    names = nodes.names_of(run.gpus)
    first = node.gpus[0]
    own = [
        (gpu - first, t) for gpu, t in zip(run.gpus, run.tokens, strict=True) if gpu in node.gpus
    ]
    return RunOrder(
        run.run,
        run.app,
        run.owner,
        run.job,
        tuple(gpu for gpu, _ in own),
        tuple(token for _, token in own),
        run.program,
        run.limit,
        run.stop,
        names.index(node.name),
        len(names),
        names[0],
        run.born,
    )
