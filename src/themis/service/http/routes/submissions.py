"""Apps submitted: as a file that an agent of the service runs, or as a spec with an own agent."""

import json
import secrets
import zlib

from themis.apps import TunedBy, parse_app, plan_app
from themis.apps.app_file import AppFile
from themis.apps.plan import SweepPlan
from themis.apps.program import program_of
from themis.core.arbiter.cluster_state import World
from themis.core.model import AppId, AppSpec, OwnerId
from themis.core.model.ids import check_name
from themis.errors import RefusedError
from themis.integrations.optuna_search import MISSING, is_able
from themis.recording.codec import decode
from themis.service.admission_warnings import outlook, spread
from themis.service.http import serializers
from themis.service.http.bodies import Submission
from themis.service.http.context import ApiContext
from themis.service.http.routing import ApiRequest, Data
from themis.service.program_checks import check_metric, trouble_with


async def submit(api: ApiContext, request: ApiRequest) -> Data:
    """Take in an app."""
    body: Submission = request.body
    key = body.key
    # JSON can hold half a surrogate pair, which no store takes, and a NUL, which some refuse.
    if not key or not key.isprintable():
        reason = "one line of printable text, which this submission, sent again, has again"
        raise RefusedError("key", reason)
    if (body.spec is None) == (body.app is None):
        raise RefusedError("app", "either an app file under `app`, or a spec under `spec`")
    if body.app is not None:
        return await _submit_file(api, request, body)
    spec = decode(AppSpec, body.spec)
    request.allow(spec.owner)
    row = request.audit_row(spec.id, owner=spec.owner)
    return {
        "app": await api.service.submissions.submit(spec, key, row, most=api.settings.limits.apps)
    }


async def _submit_file(api: ApiContext, request: ApiRequest, body: Submission) -> Data:
    key, seed, most = body.key, body.seed, api.settings.limits.apps
    written = parse_app(body.app)
    check_metric(written.metric)
    owner = OwnerId(check_name("owner", body.owner or request.subject or ""))
    request.allow(owner)
    if seed is None:
        # The same submission, sent again, gets the same seed.
        seed = zlib.crc32(f"{owner}/{key}".encode())
    plan = plan_app(written, AppId(written.name), owner, seed)
    _check_runnable(written, plan)
    world = api.service.steward.arbiter.world
    owners = {state.spec.owner for state in world.apps.values()} | {owner}
    answer: Data = {
        "app": None,
        "plan": serializers.plan(plan, world.topology.gpus, len(owners)),
        "warnings": _warnings(world, plan),
    }
    if written.tuner is TunedBy.OWN:
        answer["plan"]["tuner"] = str(written.tuner)
    if body.dry_run:
        api.service.submissions.check_file(plan, key, most=most)
        return answer
    app = await api.service.submissions.submit_file(
        plan,
        key,
        lambda name: request.audit_row(name, owner=owner),
        most=most,
    )
    return {**answer, "app": app}


async def retry(api: ApiContext, request: ApiRequest) -> Data:
    """Submit an ended app once more."""
    name = AppId(request.path("app"))
    request.allow(api.service.owner_of(name))
    sheet = api.service.files.file(name)
    if name in api.service.steward.arbiter.world.apps:
        raise RefusedError(name, "it has not ended; `themis submit` begins another beside it")
    written = parse_app(json.loads(sheet.body))
    app = await api.service.submissions.submit_file(
        plan_app(written, AppId(written.name), sheet.owner, sheet.seed),
        secrets.token_hex(16),
        lambda again: request.audit_row(again, owner=sheet.owner, of=name),
        most=api.settings.limits.apps,
    )
    return {"app": app}


def _warnings(world: World, plan: SweepPlan) -> list[dict[str, str | None]]:
    """What the submitter should know: one entry each, with a reason if the app can never run."""
    never = outlook(world, plan.spec)
    if never is not None:
        return [{"reason": never.reason, "what": never.what, "why": never.why, "then": never.then}]
    wide = spread(world, plan.spec)
    return [{"reason": None, "what": wide, "why": "", "then": ""}] if wide else []


def _check_runnable(app: AppFile, plan: SweepPlan) -> None:
    """Refuse now what would fail when its jobs begin.

    Raises:
        RefusedError: No node could run a job, or the service cannot choose its trials.
    """
    if app.tuner is TunedBy.SERVICE and app.uses_optuna and not is_able():
        raise RefusedError(app.name, MISSING)
    blank = dict.fromkeys(app.search.params, "") if app.search is not None else {}
    for trial in plan.trials:
        trouble = trouble_with(program_of(app, blank if trial.params is None else trial.params))
        if trouble:
            raise RefusedError(app.name, trouble)
