"""What agents say, and what operators say of GPUs: taken if it can be, and never as proof.

Agents of an app are numbered. A word of one that was replaced counts for nothing, and a word about
a lease only for the lease that it names.
"""

from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId, JobId, Lease
from themis.core.steward.commands import AcceptRun, AcceptSession, RefuseRun, RefuseSession
from themis.core.steward.events import (
    AppWon,
    JobNoted,
    ReleaseRequested,
    RunRequested,
    SessionOpened,
    StopRequested,
    TrialChosen,
)
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.request_checks import objection
from themis.core.steward.rows import AgentSession, Release
from themis.core.steward.run_lifecycle import Running
from themis.core.steward.shared_storage import binds, birth_of, storage_objection
from themis.protocol.node_messages import RunState

DISPLACED = "another agent speaks for this app since"
"""What an agent is told whose session is over."""
FROM_NODE = "node: "
"""How reasons of quarantine begin that a node gave and may take back."""
_SESSIONS = 8
"""How many sessions of an app are known by name."""
_WORDS_IN_A_PHASE = 8
"""How often it is kept that a job is done: once for each phase, and for agents that began anew."""


class Hearing(Running):
    """The part of the steward that listens to agents and operators."""

    def _is_heard(self, app: AppId, fence: int) -> bool:
        """Whether a session is the one that speaks for its app."""
        return fence == self.fence_of(app)

    def _on_session(self, event: SessionOpened) -> None:
        """An agent begins. Its messages may be late, so that one from before must not begin."""
        known = self._book.sessions.get(event.app)
        if event.app not in self._arbiter.world.apps:
            self._commands.append(RefuseSession(event.app, "there is no such app"))
            return
        if known is None or known.session != event.session:
            if known is not None and event.session in known.before:
                self._commands.append(RefuseSession(event.app, DISPLACED))
                return
            before = (known.session, *known.before)[:_SESSIONS] if known is not None else ()
            self._sessions += 1
            # Above all others, also of an app of the same name, and also of what a store that was
            # brought back has forgotten: epochs rise. There they are seconds since 1970, and with
            # them the number still has to fit into 62 bits.
            fence = (self._epoch << 30) + self._sessions
            known = AgentSession(event.app, fence, event.session, before)
            self._book.open_session(known)
        self._commands.append(AcceptSession(event.app, event.session, known.fence))
        self._tell_again(event.app)

    def _on_arrival(self, event: ev.AppArrived) -> None:
        """Take an app in. One of the same name before it was another's, perhaps."""
        app, known = event.app.id, event.app.id in self._arbiter.world.apps
        if self._is_haunted(app):
            reason = "something of an app of this name is still alive; take another name"
            self._refuse(app, reason)
            return
        self._feed(event)
        if not known and app in self._arbiter.world.apps:
            self._book.trials.forget(app)
            self._book.logs.forget(app)

    def _on_trial(self, event: TrialChosen | JobNoted) -> None:
        """Keep what an agent says of a job, for whoever speaks for the app next, and for people."""
        state = self._arbiter.world.apps.get(event.app)
        job = event.job if isinstance(event, TrialChosen) else event.reached.job
        if state is None or all(job != known.id for known in state.spec.jobs):
            self._refuse(event.app, f"it has no job {job!r}")
        elif isinstance(event, TrialChosen):
            self._book.trials.choose(event.app, job, event.params)
        elif not self._book.trials.reach(
            event.app, event.reached, _WORDS_IN_A_PHASE * len(state.spec.phases)
        ):
            self._refuse(event.app, f"enough was said of job {job!r}")
        elif not event.reached.failed:
            self._give_back(event.app, job, event.reached.iterations)

    def _is_haunted(self, app: AppId) -> bool:
        """Whether runs outlasted the last app of this name: its next owner would be told of them.

        What does not die is out of use with its GPU, and its app is over all the same.
        """
        return app not in self._arbiter.world.apps and self._book.has_runs(app)

    def _on_won(self, event: AppWon) -> None:
        """An agent ends its app; which job won is kept."""
        if event.best:
            self._book.trials.win(event.app, event.best)
        self._feed(ev.AppEnded(event.at, event.app, event.outcome))

    def _on_stop(self, event: StopRequested) -> None:
        run = self._book.runs.get(event.run or self._book.asked(event.app, event.key) or 0)
        if run is not None and run.app == event.app:
            self._stop(run, "its agent stopped it")

    def _on_request(self, event: RunRequested) -> None:
        known = self._book.asked(event.app, event.key)
        if known is not None:
            self._commands.append(AcceptRun(event.app, event.key, known))
            return
        reason, home = objection(event, self._arbiter, self._book), ""
        if not reason:
            reason, home = self._storage_objection(event)
        if reason:
            self._commands.append(RefuseRun(event.app, event.key, reason, home))
            if home:
                self._bound[event.app, event.job] = (home, reason)
            return
        self._bound.pop((event.app, event.job), None)
        world = self._arbiter.world
        state, held = world.apps[event.app], world.ledger.holdings(event.app)
        gpus = self._in_order(event.gpus)
        run = self._book.add(
            app=event.app,
            owner=state.spec.owner,
            job=event.job,
            key=event.key,
            gpus=gpus,
            tokens=tuple(held[gpu].token for gpu in gpus),
            program=event.program,
            limit=event.limit,
            born=birth_of(event.app, state.spec.owner, state.submitted),
            note=self._loss(event),
        )
        self._commands.append(AcceptRun(event.app, event.key, run.run))

    def _in_order(self, gpus: tuple[GpuId, ...]) -> tuple[GpuId, ...]:
        """The GPUs of a run: those of the machine first that has the first one, and so rank 0."""
        machine_of = self._roster.machine_of
        first = machine_of[gpus[0]]
        return tuple(sorted(set(gpus), key=lambda gpu: (machine_of[gpu] is not first, gpu)))

    def _storage_objection(self, event: RunRequested) -> tuple[str, str]:
        """Why a job would not find its checkpoints where it is to run, and where it would."""
        last = self._last_on(event.app, event.job)
        home = last if last is not None and last.present else None
        machines = [self._roster.machine_of[gpu] for gpu in self._in_order(event.gpus)]
        silent = [node.name for node in (home, machines[0]) if node and node.last is None]
        if home is not None and home is not machines[0] and silent:
            # Soon it is: a node is heard within heartbeats, or given up.
            return f"it is not known yet what {silent[0]} sees: the service has just begun", ""
        if home is not None and binds(home, machines[0]):
            reason = f"its checkpoints are on {home.name} alone, without shared_dir: it waits there"
            return reason, home.name
        return storage_objection(machines, home, self._nonce), ""

    def _last_on(self, app: AppId, job: JobId) -> NodeEntry | None:
        """The machine that has the checkpoints of a job, if it has any."""
        runs = [run for run in self._book.of_job(app, job) if run.state is not RunState.STARTING]
        ended = [row for row in self._book.results(app) if row.job == job and row.iterations > 0.0]
        last = [row.gpus for row in ended if row.gpus] + [run.gpus for run in runs]
        return self._roster.machine_of[last[-1][0]] if last else None

    def _loss(self, event: RunRequested) -> str:
        """What a job that begins has lost."""
        last = self._last_on(event.app, event.job)
        here = self._roster.machine_of[event.gpus[0]]
        if last is None or last is here or last.present or not binds(last, here):
            return ""
        return f"it begins anew: its checkpoints are on {last.name}, which is gone"

    def _on_release(self, event: ReleaseRequested) -> None:
        """An agent says that it needs GPUs no more. Whether they are empty, nodes say."""
        if len(event.gpus) != len(event.tokens):
            self._refuse(event.app, "a release names a token for each GPU")
            return
        queued = []
        for gpu, token in sorted(set(zip(event.gpus, event.tokens, strict=True))):
            lease = self._lease_meant(event.app, gpu, token)
            if lease is None:
                continue
            run = self._book.on_lease(gpu, lease.token)
            if run is not None:
                self._stop(run, "its agent gave the GPU back")
            if self._arbiter.ledger.lease(gpu) is lease:
                self._book.release(Release(event.app, gpu, lease.token))
                self._touch(gpu)
            else:
                queued.append(gpu)
        if queued:
            self._feed(ev.GpusReleased(self._now, event.app, tuple(queued)))

    def _lease_meant(self, app: AppId, gpu: GpuId, token: int) -> Lease | None:
        """The lease that an agent speaks of: a late word must not touch what was given since."""
        lease = self._arbiter.ledger.holdings(app).get(gpu)
        return lease if lease is not None and lease.token == token else None

    def _on_restored(self, event: ev.GpuRestored) -> None:
        """An operator says that a GPU is well."""
        reason = self._arbiter.ledger.quarantine_reason(event.gpu) if self._knows(event.gpu) else ""
        node = self._roster.machine_of.get(event.gpu)
        empty = node is None or not node.present or event.gpu in node.empty()
        if not empty or self._book.on_gpu(event.gpu) or (reason or "").startswith(FROM_NODE):
            why = "its node does not say that it is empty and well; try again in a moment"
            self._refuse(f"GPU {event.gpu}", why)
        else:
            self._feed(event)

    def _knows(self, gpu: GpuId) -> bool:
        return 0 <= gpu < len(self._arbiter.ledger)
