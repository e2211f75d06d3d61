"""Submissions of apps: durable when they return; the same key again is the same app.

submissions = Submissions(loop, ended, files)
app = await submissions.submit_file(plan, key)     # an agent of the service's
app = await submissions.submit(spec, key)          # the caller has an agent
"""

import asyncio
import json
import math
from collections.abc import Callable

from themis.apps import SweepPlan, plain_app
from themis.core.arbiter import events as ev
from themis.core.model import AppId, AppSpec, OwnerId
from themis.errors import RefusedError
from themis.protocol.agent_messages import MOST_BODY, SubmittedApp
from themis.security.audit import AuditRow
from themis.service.persistence.commit_queue import Rows
from themis.service.persistence.store.base import Batch
from themis.service.retained_rows import EndedApps, SubmissionKeys, owner_of
from themis.service.steward_loop import StewardLoop
from themis.service.submitted_apps import SubmittedApps

INTENT = "intent/"
"""Keys of rows that say that a submission is under way begin with this."""
_LONGEST_NAME = 63


class Submissions:
    """Takes apps in, one at a time: the same key, or the same name, may be under way twice."""

    def __init__(self, loop: StewardLoop, ended: EndedApps, files: SubmittedApps) -> None:
        self._loop = loop
        self._steward = loop.steward
        self._ended = ended
        self._files = files
        self._keys = SubmissionKeys(loop.rows)
        self._turn = asyncio.Lock()

    def forget_old(self) -> None:
        """Drop keys that are too old or too many."""
        self._keys.forget_old(self._loop.now(), self._steward.arbiter.world.apps)

    async def submit(
        self,
        spec: AppSpec,
        key: str,
        audit: AuditRow | None = None,
        *,
        most: float = math.inf,
    ) -> AppId:
        """Take an app in whose agent comes by itself.

        Args:
            spec: The app.
            key: Of this submission.
            audit: Its row of the audit log.
            most: Apps that its owner may have at a time.

        Raises:
            RefusedError: The app cannot be taken.
            UnavailableError: There is no room for it on disk.
        """
        self._loop.check_open()
        async with self._turn:
            known = self._keys.find(spec.owner, key)
            if known is None:
                await self._admit(spec, key, audit, {}, most)
            elif known != spec.id:
                raise RefusedError(key, f"this key was used for {known}")
            await self._loop.queue.settled()
            return spec.id

    async def submit_file(
        self,
        plan: SweepPlan,
        key: str,
        audit: Callable[[AppId], AuditRow] | None = None,
        *,
        most: float = math.inf,
    ) -> AppId:
        """Take an app in as it was written; the service runs its agent.

        Its name gets a number where it is taken.

        Raises:
            RefusedError: The app cannot be taken.
            UnavailableError: There is no room for it on disk.
        """
        self._loop.check_open()
        async with self._turn:
            known = self._keys.find(plan.spec.owner, key)
            if known is not None:
                await self._loop.queue.settled()
                return known
            name = self.free_name(plan.app.name)
            plan = plan.named(name)
            rows = self._files.add(_as_kept(plan))
            try:
                await self._admit(plan.spec, key, audit and audit(name), rows, most)
            finally:
                if name in self._steward.arbiter.world.apps:
                    self._files.notify()
                else:
                    self._files.forget([name])
        return name

    def check_file(self, plan: SweepPlan, key: str, *, most: float = math.inf) -> None:
        """Refuse what `submit_file` would refuse now.

        Raises:
            RefusedError: The app could not be taken.
            UnavailableError: The service is stopping.
        """
        self._loop.check_open()
        if self._keys.find(plan.spec.owner, key) is None:
            plan = plan.named(self.free_name(plan.app.name))
            _as_kept(plan)
            self._check_count(plan.spec.owner, most)
            self._steward.arbiter.world.check_fits(plan.spec)

    def free_name(self, wanted: str) -> AppId:
        """The name for an app that asks for this one."""
        number, name = 1, AppId(wanted)
        # Runs of an ended app may still be alive; the next app must not be told of them.
        alive = {run.app for run in self._steward.runs.values()}
        while name in alive or name in self._files or self._is_used(name):
            number += 1
            tail = f"-{number}"
            name = AppId(wanted[: _LONGEST_NAME - len(tail)] + tail)
        return name

    def _is_used(self, name: AppId) -> bool:
        return owner_of(self._steward, self._ended, name) is not None

    async def _admit(
        self, spec: AppSpec, key: str, audit: AuditRow | None, rows: Rows, most: float
    ) -> None:
        self._check_count(spec.owner, most)
        # May fail for want of space, before anything depends on it.
        intent = f"{INTENT}{spec.owner}/{key}"
        await self._loop.queue.apart(Batch(kept={intent: spec.id}, essential=False))
        now = self._loop.now()
        used = self._keys.row(spec.owner, key, spec.id, now)
        try:
            arrival = ev.AppArrived(now, spec)
            await self._loop.carry_out(arrival, audit, {**used, **rows, intent: None})
        except RefusedError:
            self._loop.rows.keep({intent: None})
            raise

    def _check_count(self, owner: OwnerId, most: float) -> None:
        apps = self._steward.arbiter.world.apps.values()
        mine = sum(state.spec.owner == owner for state in apps)
        if mine >= most:
            reason = f"{mine} apps are not over, allowed: at most {most:g} (limits.apps)"
            raise RefusedError(owner, reason)


def _as_kept(plan: SweepPlan) -> SubmittedApp:
    """A file as it is stored.

    Raises:
        RefusedError: It is too long.
    """
    spec, body = plan.spec, json.dumps(plain_app(plan.app))
    kept = SubmittedApp(spec.id, spec.owner, body, plan.seed)
    if len(kept.body) > MOST_BODY:
        reason = f"{len(kept.body)} characters as JSON, allowed: at most {MOST_BODY}"
        raise RefusedError(plan.app.name, reason)
    return kept
