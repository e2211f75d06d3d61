"""The summary of a demo as plain data: fairness, winners, holders of GPUs over time, and waits.

made = summarize(observer.looks, observer.apps, observer.results())
made["apps"][0]["rho"], made["apps"][0]["waited"]
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from themis.client import Answer
from themis.core.explain import WORDS
from themis.demo.observer import Observation
from themis.demo.tenants import Tenant

WHY = {str(reason): words for reason, words in WORDS.items()}
"""Reasons of the service in words."""


def summarize(
    looks: Sequence[Observation], apps: Mapping[str, Tenant], results: Mapping[str, Answer]
) -> dict[str, Any]:
    """The whole summary."""
    end = looks[-1].at if looks else 0.0
    return {
        "seconds": end,
        "apps": [_app(app, tenant, looks, results.get(app, {})) for app, tenant in apps.items()],
        "gpus": timeline(looks),
        "gpu_seconds": {app: _gpu_seconds(app, looks) for app in apps},
        "used": _used(looks),
    }


def _app(app: str, tenant: Tenant, looks: Sequence[Observation], results: Answer) -> dict[str, Any]:
    sheet = looks[-1].sheets.get(app, {}) if looks else {}
    return {
        "app": app,
        "owner": tenant.owner,
        "about": tenant.about,
        "submitted": next((look.at for look in looks if app in look.sheets), None),
        "outcome": sheet.get("outcome"),
        "rho": sheet.get("rho"),
        "elapsed": sheet.get("elapsed"),
        "ideal_seconds": sheet.get("ideal_seconds"),
        "winner": _winner(results),
        "waited": waits(app, looks, held=False),
        "short": waits(app, looks, held=True),
    }


def _winner(results: Answer) -> dict[str, Any] | None:
    best = results.get("best")
    for job in results.get("jobs") or ():
        if job["job"] == best:
            return {key: job.get(key) for key in ("job", "params", "metric", "iterations")}
    return None


def waits(app: str, looks: Sequence[Observation], *, held: bool) -> list[dict[str, Any]]:
    """Seconds in which an app had no GPU (or some, but fewer than it wanted), by reason."""
    seconds: dict[str, float] = {}
    for look, following in pairwise(looks):
        sheet = look.sheets.get(app)
        if sheet is None or "outcome" in sheet:
            continue
        has, wants = int(sheet.get("held") or 0), int(sheet.get("demand") or 0)
        if has < wants and bool(has) == held:
            reason = str(sheet.get("reason") or "")
            seconds[reason] = seconds.get(reason, 0.0) + following.at - look.at
    ranked = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": reason, "seconds": round(value, 1)} for reason, value in ranked]


def timeline(looks: Sequence[Observation]) -> list[dict[str, Any]]:
    """Each GPU with its holders in order: app (None: free), start and end."""
    gpus = sorted({gpu for look in looks for gpu in look.holders}, key=_place)
    lines = []
    for gpu in gpus:
        spans: list[dict[str, Any]] = []
        for look, following in pairwise(looks):
            app = look.holders.get(gpu) or None
            if spans and spans[-1]["app"] == app:
                spans[-1]["until"] = round(following.at, 2)
            else:
                until = round(following.at, 2)
                spans.append({"app": app, "from": round(look.at, 2), "until": until})
        lines.append({"rack": gpu.rack, "node": gpu.node, "index": gpu.index, "spans": spans})
    return lines


def _place(gpu: Any) -> tuple[str, str, int]:
    return gpu.rack, gpu.node, gpu.index


def _gpu_seconds(app: str, looks: Sequence[Observation]) -> float:
    return sum(
        (following.at - look.at) * sum(holder == app for holder in look.holders.values())
        for look, following in pairwise(looks)
    )


def _used(looks: Sequence[Observation]) -> float | None:
    """The share of all GPU time in which an app held the GPU."""
    held = total = 0.0
    for look, following in pairwise(looks):
        length = following.at - look.at
        held += length * sum(map(bool, look.holders.values()))
        total += length * len(look.holders)
    return held / total if total else None


def in_words(reason: str) -> str:
    """A reason of the service in plain words."""
    return WHY.get(reason, reason.lower().replace("_", " ") or "no reason was given")
