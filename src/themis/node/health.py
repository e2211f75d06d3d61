"""Watches a node's GPUs and its shared folder."""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from themis.engines import base
from themis.engines.base import Engine
from themis.engines.host.detached_thread import in_own_thread
from themis.errors import ThemisError
from themis.node.core import events as ev
from themis.node.runs import MOST_MESSAGE, Put
from themis.node.shared_folder import SharedFolder

_LOG = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds after which a shared folder that does not answer counts as unusable."""
_SILENT = "it does not answer; is its file server down?"


class Health:
    """Puts events for changes since the last look."""

    def __init__(
        self,
        engine: Engine,
        storage: SharedFolder | None,
        put: Put,
        every: float,
        patience: float = PATIENCE,
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._put = put
        self._every = every
        self._patience = patience
        self._sick: dict[int, str] = {}
        self._nonce = ""
        self._look_now = asyncio.Event()

    def expect(self, nonce: str) -> None:
        """Leave marks with this nonce in the shared folder from now on."""
        self._nonce = nonce
        self._look_now.set()

    async def watch_gpus(self) -> None:
        """Put events for GPUs that fail and that work again; until cancelled."""
        while True:
            try:
                found = await self._engine.discover()
            except ThemisError as error:
                _LOG.warning("the GPUs cannot be looked at: %s", error)
            else:
                for gpu in (gpu for machine in found for gpu in machine.gpus):
                    self._see(gpu)
            await asyncio.sleep(self._every)

    async def watch_storage(self) -> None:
        """Put an event when the mark in the shared folder changes; until cancelled."""
        seen = ("", "")
        looking: asyncio.Task[str] | None = None
        while self._storage is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._look_now.wait()
            self._look_now.clear()
            if not self._nonce:
                continue
            # One look at a time: each look at a server that is down would hang.
            looking = looking or asyncio.create_task(in_own_thread(self._storage.look, self._nonce))
            found = await self._seen_by(looking, self._storage)
            looking = None if looking.done() else looking
            if found != seen:
                seen = found
                if found[1]:
                    _LOG.warning("the shared folder cannot be used: %s", found[1])
                self._put(partial(ev.StorageSeen, mark=found[0], trouble=found[1]))

    async def _seen_by(
        self, looking: "asyncio.Task[str]", storage: SharedFolder
    ) -> tuple[str, str]:
        """The mark that a look finds, and why there is none."""
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.shield(looking), ""
        except TimeoutError:
            trouble = _SILENT
        except OSError as error:
            trouble = str(error.strerror)
        return "", f"{trouble} ({storage.root})"[:MOST_MESSAGE]

    def _see(self, gpu: base.Gpu) -> None:
        before = self._sick.get(gpu.index, "")
        if gpu.trouble == before:
            return
        if gpu.trouble:
            self._sick[gpu.index] = gpu.trouble
            _LOG.warning("GPU %s must not be used: %s", gpu.index, gpu.trouble)
            self._put(partial(ev.GpuFailed, gpu=gpu.index, reason=gpu.trouble))
        else:
            del self._sick[gpu.index]
            _LOG.info("GPU %s is well again", gpu.index)
            self._put(partial(ev.GpuWell, gpu=gpu.index))
