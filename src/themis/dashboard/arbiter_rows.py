"""Rows of the pages from the state of an arbiter: of a live service, or of a snapshot."""

from themis.core.arbiter import Arbiter
from themis.core.arbiter.app_state import AppState
from themis.core.arbiter.cluster_state import GONE
from themis.core.arbiter.offer import Fairness
from themis.core.model import GpuId, Machine
from themis.dashboard.model import AppRow, GpuRow, MachineRow, PhaseRow, Point, finite

_RHO_DIGITS = 3
"""A smaller change of rho is none: a row that is equal is not sent again."""


def app_row(
    arbiter: Arbiter,
    state: AppState,
    fairness: Fairness | None,
    at: float,
    *,
    reason: str | None,
    history: tuple[Point, ...] = (),
) -> AppRow:
    """An active app in a list."""
    held = len(arbiter.ledger.holdings(state.id))
    return AppRow(
        app=state.id,
        owner=state.spec.owner,
        state="suspended" if state.suspended else "running" if held else "waiting",
        reason=reason,
        rho=rounded(fairness.rho, _RHO_DIGITS) if fairness else None,
        held=held,
        demand=state.demand,
        submitted=state.submitted,
        elapsed=rounded(fairness.elapsed) if fairness else None,
        ideal_seconds=rounded(fairness.ideal_time) if fairness else None,
        gpu_seconds=rounded(arbiter.ledger.attained_total(state.id, at)),
        history=history,
    )


def phase_rows(state: AppState) -> tuple[PhaseRow, ...]:
    """The phases of an active app."""
    return tuple(
        PhaseRow(
            phase.jobs,
            phase.iterations,
            "over" if number < state.phase else "now" if number == state.phase else "to come",
        )
        for number, phase in enumerate(state.spec.phases)
    )


def gpu_row(arbiter: Arbiter, gpu: GpuId, index: int) -> GpuRow:
    """One GPU; `index` is its number on its machine."""
    ledger = arbiter.ledger
    lease, quarantine = ledger.lease(gpu), ledger.quarantine_reason(gpu)
    state = "absent" if quarantine == GONE else str(ledger.state(gpu))
    return GpuRow(
        gpu,
        index,
        arbiter.world.topology.seats[gpu].slot,
        state,
        None if lease is None else str(lease.app),
        None if lease is None else finite(lease.end),
        "" if state == "absent" or quarantine is None else quarantine,
    )


def machine_row(
    machine: Machine, state: str, gpus: tuple[GpuRow, ...], number: int | None
) -> MachineRow:
    """One machine; `number` is what bids call it."""
    return MachineRow(
        machine.name,
        machine.rack,
        machine.gpu_model,
        machine.gpu_memory,
        state,
        gpus,
        number=number,
    )


def rounded(value: float | None, digits: int = 0) -> float | None:
    """The number with this many decimals; None if it is not finite."""
    known = finite(value)
    return None if known is None else round(known, digits)
