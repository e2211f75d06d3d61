"""Whether a ledger contradicts itself: states, tokens and accounts."""

import itertools

from themis.core.arbiter.ledger import GpuState, Ledger
from themis.core.model import AppId, GpuId
from themis.errors import InvariantError


def check_ledger(ledger: Ledger) -> None:
    """Raise if the ledger contradicts itself.

    Raises:
        InvariantError: A GPU is leased twice, tokens fall, or the accounts do not add up.
    """
    total = sum(ledger.counts().values())
    if total != len(ledger):
        raise InvariantError(f"{total} GPUs are accounted for, there are {len(ledger)}")
    promised: dict[AppId, set[GpuId]] = {}
    present_of: dict[AppId, int] = {}
    tokens: set[int] = set()
    for index in range(len(ledger)):
        gpu = GpuId(index)
        present, chain = ledger.lease(gpu), ledger.chain(gpu)
        if present is not None:
            present_of[present.app] = present_of.get(present.app, 0) + 1
        if (ledger.state(gpu) is GpuState.FREE) != (gpu in ledger.free()):
            raise InvariantError(f"GPU {gpu} is {ledger.state(gpu)} but the free set differs")
        if ledger.state(gpu) in {GpuState.FREE, GpuState.QUARANTINED} and chain:
            raise InvariantError(f"GPU {gpu} is {ledger.state(gpu)} and has leases", chain)
        for earlier, later in itertools.pairwise(chain):
            if later.token <= earlier.token:
                raise InvariantError(f"tokens of GPU {gpu} do not rise", chain)
        for lease in chain:
            if lease.gpu != gpu or lease.token in tokens or lease.token >= ledger.next_token:
                raise InvariantError(f"GPU {gpu} has a lease that is not its own", chain)
            tokens.add(lease.token)
            leaving = lease is present and ledger.is_leaving(gpu)
            if not leaving and gpu in promised.setdefault(lease.app, set()):
                raise InvariantError(f"GPU {gpu} is promised twice to {lease.app}", chain)
            if not leaving:
                promised[lease.app].add(gpu)
    for app in sorted({*ledger.holders(), *promised, *present_of}):
        if set(ledger.holdings(app)) != promised.get(app, set()):
            raise InvariantError(f"holdings of {app} differ from the leases")
        if ledger.present(app) != present_of.get(app, 0):
            raise InvariantError(f"the slots of {app} are miscounted")
