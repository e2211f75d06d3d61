"""An agent that keeps one job on each GPU its app holds: enough to see leases at work."""

import asyncio
import random

from themis.agent_host.session_client import SessionClient
from themis.core.model import SLOT, AppSpec, Bid, Chunk, GpuId, JobId, Lease, Row
from themis.errors import DeniedError, ThemisError, UnknownAppError
from themis.protocol.agent_messages import (
    AgentStart,
    AppEndNews,
    BidReply,
    EndApp,
    LeaseNews,
    NewsItem,
    OfferNews,
    RefusalNews,
    RunNews,
    RunRequest,
)
from themis.protocol.node_messages import Program, RunState
from themis.rpc.client import AgentClient, Connection

_FINISHED = 0
_SECONDS = 1e4
"""How long its jobs say they would take one after the other."""


class ToyAgent:
    """Wants a GPU for each job, and starts its jobs again until each has exited with 0."""

    def __init__(self, connection: Connection, spec: AppSpec, program: Program) -> None:
        self.app = spec.id
        self.held: dict[GpuId, Lease] = {}
        self.runs: dict[int, RunNews] = {}
        self.ended: list[RunNews] = []
        """Runs that are over, as they were told."""
        self.refusals: list[RefusalNews] = []
        self.standings = 0
        """How often it had to begin anew: once, and once for each restart of the service."""
        self.over = False
        self._program = program
        self._todo = [job.id for job in spec.jobs]
        self._asked: dict[JobId, tuple[GpuId, str]] = {}
        self._count = 0
        self._connection = connection
        client = AgentClient(self._connection)
        self._link = SessionClient(client, spec.id, random.Random(1), longest_wait=0.4)
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """How many of its runs are known to run."""
        return sum(run.state is RunState.RUNNING for run in self.runs.values())

    @property
    def finishing(self) -> bool:
        """Whether it has said, or heard, that the app is over."""
        return self.over or not self._todo

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._listen())

    def finish(self) -> None:
        """Say that the app is over."""
        self._todo = []
        self._link.say(EndApp())

    async def close(self) -> None:
        """Fall silent.

        Raises:
            Exception: What had made it fall silent before.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()
        await self._connection.close()

    async def _listen(self) -> None:
        while not self.over:
            try:
                async for item in self._link.news():
                    self._take(item)
                    self._place()
            except (UnknownAppError, DeniedError):
                # The last news was lost with a service, or all of the app with its store.
                self.over = True
            except ThemisError as error:
                self.refusals.append(RefusalNews("report", str(error)))
                await asyncio.sleep(0.2)

    def _take(self, item: NewsItem) -> None:
        match item:
            case AgentStart():
                self.standings += 1
                self.held = {lease.gpu: lease for lease in item.leases}
                alive = [run for run in item.runs if not run.state.over]
                self.runs = {run.run: run for run in alive}
                self._asked = {run.job: (run.gpus[0], run.key) for run in alive}
                told = {run.run for run in self.ended}
                for run in item.runs:
                    if run.state.over and run.run not in told:
                        self._take_run(run)
            case LeaseNews():
                self.held.update((lease.gpu, lease) for lease in (*item.granted, *item.renewed))
                for lease in item.revoked:
                    self.held.pop(lease.gpu, None)
            case RunNews():
                self._take_run(item)
            case RefusalNews():
                self.refusals.append(item)
                refused = [job for job, (_, key) in self._asked.items() if key == item.what]
                for job in refused:
                    del self._asked[job]
            case OfferNews():
                self._link.say(BidReply(item.offer.round, self._bid(item)))
            case AppEndNews():
                self.over = True
            case _:
                pass

    def _bid(self, news: OfferNews) -> Bid:
        """One more GPU is worth one more job at a time."""
        most = min(len(self._todo), len(news.offer.gpus))
        kept = len(news.offer.kept)
        rows = [
            Row(tuple([Chunk(SLOT, 1)] * count), _SECONDS / (kept + count))
            for count in range(1, most + 1)
        ]
        return Bid(self.app, tuple(rows))

    def _take_run(self, run: RunNews) -> None:
        self.runs[run.run] = run
        if not run.state.over:
            return
        self.ended.append(self.runs.pop(run.run))
        self._asked.pop(run.job, None)
        if run.code == _FINISHED and run.job in self._todo:
            self._todo.remove(run.job)
            if not self._todo:
                self.finish()

    def _place(self) -> None:
        taken = {gpu for gpu, _ in self._asked.values()}
        free = [gpu for gpu in sorted(self.held) if gpu not in taken]
        idle = [job for job in self._todo if job not in self._asked]
        for gpu, job in zip(free, idle, strict=False):
            self._count += 1
            key = f"{id(self):x}-{self._count}"
            self._asked[job] = (gpu, key)
            self._link.say(RunRequest(job, (gpu,), self._program, key))
