"""Apps: submitted, shown, paused, ended."""

import json
import secrets
import zlib

from themis.apps import Minder, parse_app, plan_app
from themis.apps.app_file import AppFile
from themis.apps.plan import SweepPlan, optuna_wanted
from themis.apps.program import program_of
from themis.core.arbiter import events as ev
from themis.core.arbiter.cluster_state import World
from themis.core.arbiter.offer import fairness_of
from themis.core.model import AppId, AppSpec, OwnerId
from themis.core.model.ids import check_name
from themis.core.model.reasons import Reason
from themis.errors import MissingError, RefusedError
from themis.integrations.optuna_search import MISSING, is_able
from themis.recording.codec import decode
from themis.security.permissions import decide
from themis.service.admission_warnings import outlook, spread
from themis.service.explanations import facts_of, facts_of_ended
from themis.service.http import serializers
from themis.service.http.routes.base import Call, Data, Handlers
from themis.service.http.routes.endpoints import MOST_ENDED
from themis.service.program_checks import check_metric, trouble_with
from themis.service.run_diagnostics import runs_by_app


class AppRoutes(Handlers):
    """What people with sweeps ask for."""

    def _app(self, call: Call) -> AppId:
        """The app in the path, if the caller may do this to it."""
        name = AppId(call.path("app"))
        self._allow(call, self._service.owner_of(name))
        if name not in self._service.steward.arbiter.world.apps:
            shown = "`themis ls --all` shows what there is"
            raise MissingError(name, f"there is no such app, or it has ended; {shown}")
        return name

    async def submit(self, call: Call) -> Data:
        body, key = call.body, str(call.body["key"])
        # Half a character, which JSON can say, cannot be stored; a zero not in every store.
        if not key or not key.isprintable():
            reason = "one line of printable text, which this submission, sent again, has again"
            raise RefusedError("key", reason)
        if ("spec" in body) == ("app" in body):
            raise RefusedError("app", "either an app file under `app`, or a spec under `spec`")
        if "app" in body:
            return await self._submit_file(call, key)
        spec = decode(AppSpec, body["spec"])
        self._allow(call, spec.owner)
        row = self._row(call, spec.id, owner=spec.owner)
        most = self._settings.limits.apps
        return {"app": await self._service.submit(spec, key, row, most=most)}

    async def _submit_file(self, call: Call, key: str) -> Data:
        body = call.body
        written = parse_app(body["app"])
        check_metric(written.metric)
        named = body.get("owner") or (call.identity.subject if call.identity else "")
        owner = OwnerId(check_name("owner", named))
        self._allow(call, owner)
        seed = body.get("seed")
        if seed is None:
            # The same for the same submission, sent again.
            seed = zlib.crc32(f"{owner}/{key}".encode())
        plan = plan_app(written, AppId(written.name), owner, seed)
        _check_runnable(written, plan)
        world = self._service.steward.arbiter.world
        owners = {state.spec.owner for state in world.apps.values()} | {owner}
        sheet = serializers.plan_sheet(plan, world.topology.gpus, len(owners))
        if written.tuner is Minder.OWN:
            sheet["tuner"] = str(written.tuner)
        warnings = _warnings(world, plan)
        if body.get("dry_run"):
            most = self._settings.limits.apps
            self._service.check_file(written, owner, key, seed, most=most)
            return {"app": None, "plan": sheet, "warnings": warnings}
        app = await self._service.submit_file(
            written,
            owner,
            key,
            seed,
            lambda name: self._row(call, name, owner=owner),
            most=self._settings.limits.apps,
        )
        return {"app": app, "plan": sheet, "warnings": warnings}

    async def results(self, call: Call) -> Data:
        name = AppId(call.path("app"))
        self._allow(call, self._service.owner_of(name))
        service = self._service
        sheet, ended = service.hosting.sheet(name), service.departed.find(name)
        return serializers.results_sheet(name, service.steward, sheet, ended)

    async def retry(self, call: Call) -> Data:
        name = AppId(call.path("app"))
        self._allow(call, self._service.owner_of(name))
        sheet = self._service.hosting.sheet(name)
        if name in self._service.steward.arbiter.world.apps:
            raise RefusedError(name, "it is not over; `themis submit` begins another beside it")
        app = await self._service.submit_file(
            parse_app(json.loads(sheet.body)),
            sheet.owner,
            secrets.token_hex(16),
            sheet.seed,
            lambda again: self._row(call, again, owner=sheet.owner, of=name),
            most=self._settings.limits.apps,
        )
        return {"app": app}

    async def list_apps(self, call: Call) -> Data:
        steward = self._service.steward
        now = self._service.now()
        stands, runs = fairness_of(steward.arbiter.world, now), runs_by_app(steward)
        lines = []
        for _, state in sorted(steward.arbiter.world.apps.items()):
            decision = decide(call.identity, call.endpoint.verb, state.spec.owner)
            if decision.anonymous:
                lines.append(serializers.sealed_line(steward, state, stands.get(state.id)))
            elif decision.allowed:
                mine = runs.get(state.id, ())
                lines.append(serializers.app_line(steward, state, stands.get(state.id), mine, now))
        gpus = serializers.gpu_counts(steward, self._service.removed)
        found = {"apps": lines, "gpus": gpus, "now": now}
        if call.request.query_params.get("ended") == "true":
            found |= self._ended(call)
        return found

    def _ended(self, call: Call) -> Data:
        """Apps that are over, of whom the caller may see the names."""
        active = self._service.steward.arbiter.world.apps
        seen = []
        for app, ended in self._service.departed.all():
            decision = decide(call.identity, call.endpoint.verb, ended.owner)
            if app not in active and decision.allowed and not decision.anonymous:
                seen.append((app, ended))
        lines = [serializers.ended_sheet(app, ended) for app, ended in seen[:MOST_ENDED]]
        return {"ended": lines, "left_out": len(seen) - len(lines)}

    async def status(self, call: Call) -> Data:
        name = AppId(call.path("app"))
        now, ended = self._service.now(), self._service.departed.find(name)
        if ended is not None and name not in self._service.steward.arbiter.world.apps:
            self._allow(call, ended.owner)
            return {**serializers.ended_sheet(name, ended), "now": now}
        steward, app = self._service.steward, self._app(call)
        told = serializers.app_sheet(steward, app, now)
        if app in self._service.hosting:
            plan = serializers.plan_of(app, self._service.hosting.sheet(app))
            params = serializers.parameters(steward, app, plan)
            for line in told["jobs"]:
                line["params"] = params.get(line["job"])
        return {**told, "now": now}

    async def explain(self, call: Call) -> Data:
        name = AppId(call.path("app"))
        now, ended = self._service.now(), self._service.departed.find(name)
        if ended is not None and name not in self._service.steward.arbiter.world.apps:
            self._allow(call, ended.owner)
            return serializers.explanation_sheet(facts_of_ended(name, ended, now))
        return serializers.explanation_sheet(facts_of(self._service, self._app(call), now))

    async def _suspend(self, call: Call, reason: Reason) -> Data:
        app = self._app(call)
        return await self._carry_out(call, ev.AppSuspended(self._service.now(), app, reason), app)

    async def _let_go(self, call: Call, reason: Reason) -> Data:
        app = self._app(call)
        state = self._service.steward.arbiter.world.apps[app]
        changed = reason in state.suspended
        event = ev.AppResumed(self._service.now(), app, reason)
        done = await self._carry_out(call, event, app)
        return {**done, "changed": changed, "suspended": sorted(state.suspended)}

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


def _warnings(world: World, plan: SweepPlan) -> list[dict[str, str | None]]:
    """What people should know who submit this: one line each, and a reason if it never runs."""
    found: list[dict[str, str | None]] = []
    never = outlook(world, plan.spec)
    if never is not None:
        found.append({"reason": never.reason, "what": never.what, "why": never.why,
                      "then": never.then})  # fmt: skip
    elif wide := spread(world, plan.spec):
        found.append({"reason": None, "what": wide, "why": "", "then": ""})
    return found


def _check_runnable(app: AppFile, plan: SweepPlan) -> None:
    """Refuse what would only fail when its jobs begin, or never begin.

    Raises:
        RefusedError: No node could run it, or nobody here could choose its trials.
    """
    if app.tuner is Minder.SERVICE and optuna_wanted(app.search) and not is_able():
        raise RefusedError(app.name, MISSING)
    blank = dict.fromkeys(app.search.params, "") if app.search is not None else {}
    for trial in plan.trials:
        trouble = trouble_with(program_of(app, blank if trial.params is None else trial.params))
        if trouble:
            raise RefusedError(app.name, trouble)
