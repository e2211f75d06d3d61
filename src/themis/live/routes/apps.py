"""Apps: submitted, shown, paused, ended."""

from themis.arbiter import events as ev
from themis.errors import MissingError, RefusedError
from themis.live import views
from themis.live.access import decide
from themis.live.routes.base import Call, Data, Handlers
from themis.model import AppId, AppSpec
from themis.model.reasons import Reason
from themis.records.codec import decode


class Apps(Handlers):
    """What people with sweeps ask for."""

    def _app(self, call: Call) -> AppId:
        """The app in the path, if the caller may do this to it."""
        name = AppId(call.path("app"))
        self._allow(call, self._service.owner_of(name))
        if name not in self._service.steward.arbiter.world.apps:
            raise MissingError(name, "there is no such app, or it has ended")
        return name

    async def submit(self, call: Call) -> Data:
        spec = decode(AppSpec, call.body["spec"])
        self._allow(call, spec.owner)
        key = str(call.body["key"])
        # Half a character, which JSON can say, cannot be stored; a zero not in every store.
        if not key or not key.isprintable():
            reason = "one line of printable text, which this submission, sent again, has again"
            raise RefusedError("key", reason)
        row = self._row(call, spec.id, owner=spec.owner)
        return {"app": await self._service.submit(spec, key, row)}

    async def list_apps(self, call: Call) -> Data:
        steward = self._service.steward
        lines = []
        for _, state in sorted(steward.arbiter.world.apps.items()):
            decision = decide(call.identity, call.endpoint.verb, state.spec.owner)
            if decision.anonymous:
                lines.append(views.sealed_line(steward, state))
            elif decision.allowed:
                lines.append(views.app_line(steward, state))
        now = self._service.now()
        return {"apps": lines, "gpus": views.gpu_counts(steward), "now": now}

    async def status(self, call: Call) -> Data:
        name = AppId(call.path("app"))
        now, ended = self._service.now(), self._service.departed.find(name)
        if ended is not None and name not in self._service.steward.arbiter.world.apps:
            self._allow(call, ended.owner)
            return {**views.ended_sheet(name, ended), "now": now}
        return {**views.app_sheet(self._service.steward, self._app(call)), "now": now}

    async def _suspend(self, call: Call, reason: Reason) -> Data:
        app = self._app(call)
        return await self._carry_out(call, ev.AppSuspended(self._service.now(), app, reason), app)

    async def _let_go(self, call: Call, reason: Reason) -> Data:
        app = self._app(call)
        return await self._carry_out(call, ev.AppResumed(self._service.now(), app, reason), app)

    async def pause(self, call: Call) -> Data:
        return await self._suspend(call, Reason.PAUSED_BY_USER)

    async def resume(self, call: Call) -> Data:
        return await self._let_go(call, Reason.PAUSED_BY_USER)

    async def hold(self, call: Call) -> Data:
        return await self._suspend(call, Reason.HELD_BY_ADMIN)

    async def release(self, call: Call) -> Data:
        return await self._let_go(call, Reason.HELD_BY_ADMIN)

    async def cancel(self, call: Call) -> Data:
        app = self._app(call)
        event = ev.AppEnded(self._service.now(), app, "cancelled")
        return await self._carry_out(call, event, app)
