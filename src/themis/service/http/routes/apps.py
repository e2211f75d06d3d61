"""Apps that are there or have ended: shown, explained, paused, cancelled."""

from themis.core.arbiter import events as ev
from themis.core.arbiter.offer import fairness_of
from themis.core.model import AppId
from themis.core.model.reasons import Reason
from themis.errors import MissingError
from themis.service.explanations import facts_of, facts_of_ended
from themis.service.http import serializers
from themis.service.http.context import ApiContext
from themis.service.http.query import flag
from themis.service.http.routing import ApiRequest, Data
from themis.service.retained_rows import EndedApp
from themis.service.run_diagnostics import runs_by_app

ENDED = flag("ended", "Also apps that have ended.")

_MOST_ENDED = 500
"""EndedApp apps in one answer, the last to end."""


async def list_apps(api: ApiContext, request: ApiRequest) -> Data:
    """All apps, those of others without names, and how many GPUs are in which state."""
    steward, now = api.service.steward, api.service.now()
    standings, runs = fairness_of(steward.arbiter.world, now), runs_by_app(steward)
    rows = []
    for name, state in sorted(steward.arbiter.world.apps.items()):
        decision = request.decide(state.spec.owner)
        if decision.anonymous:
            rows.append(serializers.nameless_app_row(steward, state, standings.get(name)))
        elif decision.allowed:
            mine = runs.get(name, ())
            rows.append(serializers.app_row(steward, state, standings.get(name), mine, now))
    gpus = serializers.gpu_counts(steward, api.service.retired)
    answer: Data = {"apps": rows, "gpus": gpus, "now": now}
    return answer | (_ended_apps(api, request) if request.read(ENDED) else {})


def _ended_apps(api: ApiContext, request: ApiRequest) -> Data:
    """EndedApp apps whose names the caller may see."""
    active = api.service.steward.arbiter.world.apps
    seen = []
    for app, ended in api.service.ended.all():
        decision = request.decide(ended.owner)
        if app not in active and decision.allowed and not decision.anonymous:
            seen.append((app, ended))
    rows = [serializers.ended_app(app, ended) for app, ended in seen[:_MOST_ENDED]]
    return {"ended": rows, "left_out": len(seen) - len(rows)}


async def status(api: ApiContext, request: ApiRequest) -> Data:
    """One app in full."""
    now, ended = api.service.now(), _ended(api, request)
    if ended is not None:
        return {**serializers.ended_app(AppId(request.path("app")), ended), "now": now}
    steward, app = api.service.steward, active_app(api, request)
    answer = serializers.app_in_full(steward, app, now)
    if app in api.service.files:
        plan = serializers.plan_of(app, api.service.files.file(app))
        params = serializers.parameters(steward, app, plan)
        for row in answer["jobs"]:
            row["params"] = params.get(row["job"])
    return {**answer, "now": now}


async def explain(api: ApiContext, request: ApiRequest) -> Data:
    """Why an app waits, or how it ended."""
    now, ended = api.service.now(), _ended(api, request)
    if ended is not None:
        return serializers.explanation(facts_of_ended(AppId(request.path("app")), ended, now))
    service, app = api.service, active_app(api, request)
    seen = service.agents.heard_at().get(app)
    return serializers.explanation(facts_of(service.steward, service.rounds, app, now, seen))


async def results(api: ApiContext, request: ApiRequest) -> Data:
    """Parameters, metric and checkpoint of each trial, and which is the best."""
    service, name = api.service, AppId(request.path("app"))
    request.allow(service.owner_of(name))
    sheet, ended = service.files.file(name), service.ended.find(name)
    return serializers.results(name, service.steward, sheet, ended)


def _ended(api: ApiContext, request: ApiRequest) -> EndedApp | None:
    """How the app in the path ended, if the caller may see it; None for an active app."""
    name = AppId(request.path("app"))
    ended = api.service.ended.find(name)
    if ended is None or name in api.service.steward.arbiter.world.apps:
        return None
    request.allow(ended.owner)
    return ended


def active_app(api: ApiContext, request: ApiRequest) -> AppId:
    """The app in the path, if the caller may do this to it and it has not ended."""
    name = AppId(request.path("app"))
    request.allow(api.service.owner_of(name))
    if name not in api.service.steward.arbiter.world.apps:
        hint = "`themis ls --all` shows what there is"
        raise MissingError(name, f"there is no such app, or it has ended; {hint}")
    return name


async def pause(api: ApiContext, request: ApiRequest) -> Data:
    """Give an app no new GPUs until its owner resumes it."""
    return await _suspend(api, request, Reason.PAUSED_BY_USER)


async def resume(api: ApiContext, request: ApiRequest) -> Data:
    """Undo `pause`."""
    return await _resume(api, request, Reason.PAUSED_BY_USER)


async def hold(api: ApiContext, request: ApiRequest) -> Data:
    """Give an app no new GPUs until an operator releases it."""
    return await _suspend(api, request, Reason.HELD_BY_ADMIN)


async def release(api: ApiContext, request: ApiRequest) -> Data:
    """Undo `hold`."""
    return await _resume(api, request, Reason.HELD_BY_ADMIN)


async def _suspend(api: ApiContext, request: ApiRequest, reason: Reason) -> Data:
    app = active_app(api, request)
    event = ev.AppSuspended(api.service.now(), app, reason)
    return await api.carry_out(event, request.audit_row(app))


async def _resume(api: ApiContext, request: ApiRequest, reason: Reason) -> Data:
    app = active_app(api, request)
    state = api.service.steward.arbiter.world.apps[app]
    changed = reason in state.suspended
    event = ev.AppResumed(api.service.now(), app, reason)
    done = await api.carry_out(event, request.audit_row(app))
    return {**done, "changed": changed, "suspended": sorted(state.suspended)}


async def cancel(api: ApiContext, request: ApiRequest) -> Data:
    """End an app."""
    app = active_app(api, request)
    event = ev.AppEnded(api.service.now(), app, "cancelled")
    return await api.carry_out(event, request.audit_row(app))
