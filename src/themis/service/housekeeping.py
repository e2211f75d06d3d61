"""What the service does beside its requests: snapshots, retention, and reading earlier rounds."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from themis.config.keys import Retention
from themis.errors import FatalStoreError, ThemisError
from themis.security.browser_sessions import drop_expired_sessions
from themis.security.token_store import TokenStore
from themis.service.persistence.round_history import REMEMBERED, Steps, read_rounds
from themis.service.service import Service

_LOG = logging.getLogger(__name__)

_PRUNE_EVERY = 3600.0
_SWEEP_EVERY = 600.0
_ENTRIES_AT_ONCE = 50


async def keep_house(service: Service, retention: Callable[[], Retention]) -> None:
    """Snapshot the state, so that the next start is quick, and prune what is old."""
    pruned = 0.0
    while True:
        await asyncio.sleep(retention().snapshot)
        try:
            await service.queue.run(service.store.snapshot)
            if service.now() - pruned >= _PRUNE_EVERY:
                pruned = service.now()
                await _prune(service, retention())
        except FatalStoreError as error:
            service.queue.fail(error)
            return
        except ThemisError as error:  # a full disk, perhaps: the next time may work
            _LOG.error("the store could not be tidied: %s", error)


async def _prune(service: Service, retention: Retention) -> None:
    prune = partial(
        service.store.prune,
        older_than=service.now() - retention.age,
        keep_bytes=retention.bytes,
        audit_older_than=time.time() - retention.age,
    )
    pruned: Any = await service.queue.run(prune)
    while pruned.more:
        pruned = await service.queue.run(prune)


async def sweep_sessions(token_store: TokenStore) -> None:
    """Remove browser sessions that have expired."""
    while True:
        drop_expired_sessions(token_store, now=time.time())
        await asyncio.sleep(_SWEEP_EVERY)


async def remember_rounds(service: Service) -> None:
    """Read the last rounds of earlier starts, a little at a time: nothing waits for them."""
    apps = service.steward.arbiter.world.apps
    present = {name: state.spec.owner for name, state in apps.items()}
    gone = {name: ended.owner for name, ended in service.ended.all() if name not in apps}
    store = service.store
    steps: Steps = ()
    try:
        usage: Any = await service.queue.run(store.usage)
        first, end = max(usage.first_entry, usage.next_entry - REMEMBERED), usage.next_entry
        while first < end and not service.rounds.full:
            begin = max(first, end - _ENTRIES_AT_ONCE)
            found: Any = await service.queue.run(partial(read_rounds, store, begin, end - 1))
            service.rounds.remember(found)
            steps = (*found, *steps)
            end = begin
        service.rounds.conclude(present)
    except ThemisError as error:
        _LOG.warning("earlier rounds cannot be shown: %s", error)
    service.past.remember(steps, {**gone, **present})
