"""Values that tests of the steward's components begin with."""

from themis.core.model import AppId, GpuId, JobId, Machine, OwnerId, Topology
from themis.core.steward.node_table import NodeEntry, NodeTable
from themis.core.steward.rows import ActiveRun, RunEnd
from themis.protocol.node_messages import (
    NodeReport,
    Program,
    RunReport,
    RunState,
    SlotReport,
    SlotState,
)

A, B, J0, J1 = AppId("a"), AppId("b"), JobId("j0"), JobId("j1")
ANN = OwnerId("ann")
TRAIN = Program(("train",))
TOPOLOGY = Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (2,))))
EPOCH, TTL, GUARD, HEARTBEAT = 1, 20.0, 2.0, 1.0
EMPTY = (SlotState.EMPTY, SlotState.EMPTY)


def active_run(number: int = 1, *gpus: int, job: JobId = J0, dispatched: bool = True) -> ActiveRun:
    """A run of app A under tokens that equal its number."""
    used = tuple(map(GpuId, gpus or (0,)))
    tokens = (number,) * len(used)
    key = f"k{number}"
    return ActiveRun(number, A, ANN, job, key, used, tokens, TRAIN, dispatched=dispatched)


def run_end(number: int = 1, *, points_on: str = "", code: int | None = 0) -> RunEnd:
    """How the run of this number ended."""
    state = RunState.EXITED if code is not None else RunState.LOST
    gpus = (GpuId(0),)
    return RunEnd(number, A, J0, f"k{number}", state, code, 3.0, gpus=gpus, points_on=points_on)


def two_nodes() -> NodeTable:
    """Machines m0 and m1 of two GPUs each, which have not reported yet."""
    nodes = NodeTable(epoch=EPOCH, node_ttl=TTL)
    for machine in TOPOLOGY.machines:
        nodes.join(nodes.add(machine.name, 0.0), TOPOLOGY, GUARD)
    return nodes


def report_to(
    nodes: NodeTable,
    number: int,
    *runs: RunReport,
    at: float = 1.0,
    slots: tuple[SlotState, ...] = EMPTY,
    epoch: int = EPOCH,
    name: str = "m0",
) -> NodeEntry:
    """A node that has reported."""
    node = nodes.by_name[name]
    states = tuple(SlotReport(gpu, 0, state) for gpu, state in enumerate(slots))
    report = NodeReport(name, 1, number, epoch, node.revision, states, runs)
    nodes.take(node, report, at, HEARTBEAT)
    return node
