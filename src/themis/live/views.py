"""What people see of the service's state, as plain data.

app_sheet(service, app)       # one app: what it holds, wants and waits for
"""

from collections.abc import Iterable, Mapping
from typing import Any

from themis.arbiter.apps import AppState
from themis.fleet import Steward
from themis.fleet.roster import Node
from themis.live.keeping import Ended
from themis.model import AppId, Machine, OwnerId

ANONYMOUS = "(another owner's)"


def app_sheet(steward: Steward, app: AppId) -> dict[str, Any]:
    """One app in full, for who may see it."""
    state = steward.arbiter.world.apps[app]
    held = steward.arbiter.ledger.holdings(app)
    runs = [run for run in steward.runs.values() if run.app == app]
    return {
        **app_line(steward, state),
        "weight": state.weight,
        "phase": state.phase,
        "phases": len(state.spec.phases),
        "work_left_seconds": state.work_left,
        "suspended": sorted(state.suspended),
        "leases": [
            {"gpu": gpu, "machine": machine_of(steward, gpu), "token": lease.token,
             "end": lease.end}
            for gpu, lease in sorted(held.items())
        ],
        "jobs": [
            {"job": job, "iterations": progress.done, "target": progress.target}
            for job, progress in sorted(state.jobs.items())
        ],
        "runs": [
            {"run": run.run, "job": run.job, "state": run.state, "gpus": list(run.gpus)}
            for run in sorted(runs, key=lambda run: run.run)
        ],
    }  # fmt: skip


def ended_sheet(app: AppId, ended: Ended) -> dict[str, Any]:
    """One app that is over, for who may see it."""
    return {
        "app": app,
        "owner": ended.owner,
        "submitted": ended.submitted,
        "ended": ended.at,
        "outcome": ended.outcome,
        "elapsed_seconds": ended.elapsed,
    }


def app_line(steward: Steward, state: AppState) -> dict[str, Any]:
    """One app as a line of a list."""
    return {
        "app": state.id,
        "owner": state.spec.owner,
        "submitted": state.submitted,
        "demand": state.demand,
        "held": len(steward.arbiter.ledger.holdings(state.id)),
        "reason": state.reason,
    }


def sealed_line(steward: Steward, state: AppState) -> dict[str, Any]:
    """The same of somebody else: how many GPUs, and no names."""
    held = len(steward.arbiter.ledger.holdings(state.id))
    return {"app": ANONYMOUS, "owner": ANONYMOUS, "demand": state.demand, "held": held}


def machine_of(steward: Steward, gpu: int) -> str:
    """The name of the machine that a GPU is in."""
    topology = steward.arbiter.world.topology
    return topology.machines[topology.seats[gpu].machine].name


def node_line(steward: Steward, node: Node, *, sealed: bool) -> dict[str, Any]:
    """One machine with its GPUs."""
    world, ledger = steward.arbiter.world, steward.arbiter.ledger
    number = world.topology.number_of.get(node.name)
    gpus = []
    for index, gpu in enumerate(node.gpus):
        lease, quarantine = ledger.lease(gpu), ledger.quarantine_reason(gpu)
        state = "free"
        if quarantine is not None:
            state = "quarantined"
        elif lease is not None:
            state = "fencing" if ledger.is_leaving(gpu) else "leased"
        line: dict[str, Any] = {"index": index, "gpu": gpu, "state": state}
        if lease is not None:
            line["app"] = ANONYMOUS if sealed else lease.app
        if quarantine is not None:
            # The text may name an app.
            line["reason"] = "out of use" if sealed else quarantine
        gpus.append(line)
    last = node.last
    return {
        "node": node.name,
        "rack": node.machine.rack if node.machine else None,
        "present": node.present,
        "heard": node.heard,
        "cordoned": number is not None and world.is_cordoned(number),
        "trouble": _shape_trouble(steward, node),
        "control": last.control if last else None,
        "version": last.version if last else None,
        "trust_tenants": last.trust_tenants if last else None,
        "storage": _storage(steward, node, sealed=sealed),
        "gpus": gpus,
    }


def _shape_trouble(steward: Steward, node: Node) -> str:
    """Why a machine that is heard is not used; empty if it is, or is only silent."""
    topology = steward.arbiter.world.topology
    number = topology.number_of.get(node.name)
    if number is None or node.machine is None or node.machine == topology.machines[number]:
        return ""
    was, now = _shape(topology.machines[number]), _shape(node.machine)
    return f"it is back as {now} and was {was}; give it another name, or what it was"


def _shape(machine: Machine) -> str:
    slots = ", ".join(map(str, machine.slots))
    return f"{machine.gpus} x {machine.gpu_model} in slots of {slots}, rack {machine.rack}"


def _storage(steward: Steward, node: Node, *, sealed: bool) -> dict[str, Any]:
    last = node.last
    line: dict[str, Any] = {"sharing": steward.sharing(node)}
    if last is not None and not sealed:
        line |= {"dir": last.shared_dir, "trouble": last.storage_trouble}
    return line


def gpu_counts(steward: Steward) -> dict[str, int]:
    """How many GPUs are in each state."""
    counts = {"free": 0, "leased": 0, "fencing": 0, "quarantined": 0}
    for node in steward.nodes.values():
        for line in node_line(steward, node, sealed=True)["gpus"]:
            counts[line["state"]] += 1
    return counts


def owner_lines(
    owners: Iterable[OwnerId],
    quotas: Mapping[OwnerId, int],
    weights: Mapping[OwnerId, float],
) -> list[dict[str, Any]]:
    """Quotas and weights by owner."""
    return [
        {"owner": owner, "quota": quotas.get(owner), "weight": weights.get(owner)}
        for owner in sorted(owners)
    ]
