"""The JSON Schema of the app file, for editors that complete and check it."""

from enum import StrEnum
from typing import Any

from themis.apps.app_file import Goal, Method, MetricSource, Minder, StopRule
from themis.core.model.ids import LEAST_WEIGHT, MOST_WEIGHT
from themis.core.model.zoo import ZOO

_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
_TIME = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*[smhd]?$"},
    ]
}
_NUMBER = {"type": ["number", "string"]}
_PAIR = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_VALUE = {"type": ["string", "number", "boolean"]}


def app_schema() -> dict[str, Any]:
    """The schema, with what each key means."""
    return _object(
        {
            "name": _about({"type": "string", "pattern": _NAME}, "The app's name."),
            "command": _about(
                {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
                "What each job runs, as a list; {lr} stands for the parameter lr.",
            ),
            "workdir": _about(
                {"type": "string"}, "Where it runs (default: where you submit), on every machine."
            ),
            "env": _about(
                {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
                "Variables of its environment. Never shown or logged.",
            ),
            "search": _about(_search(), "Which trials there are. Without it there is one job."),
            "stop": _about(_stop(), "How far trials train, and who goes on."),
            "tuner": _about(
                _words(Minder),
                "Who decides within what `stop` says: the service, or a process of your own.",
            ),
            "metric": _about(_metric(), "What trials are judged by, and where it is read from."),
            "gpus": _about(_gpus(), "What a job can use."),
            "iteration_seconds": _about(
                {"type": "number", "exclusiveMinimum": 0},
                "How long an iteration takes on one GPU, if you know.",
            ),
            "duration": _about(
                _TIME, "How long a job takes on one GPU that counts no iterations, if you know."
            ),
            "model": _about(
                {"enum": [entry.name for entry in ZOO]},
                "A known model that yours is like: how much it dislikes distance between GPUs.",
            ),
            "checkpoint": _about(_checkpoint(), "How jobs save."),
            "retries": _about(_count(0, 1000), "How often a job that fails is tried again."),
            "max_runtime": _about(_TIME, "How long a job may run in all."),
            "weight": _about(
                {"type": "number", "minimum": LEAST_WEIGHT, "maximum": MOST_WEIGHT},
                "The app's share, within its owner's.",
            ),
        },
        ("name", "command"),
        title="Themis app",
    )


def _object(
    properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    made = made if "title" in more else {}
    made |= {**more, "type": "object", "properties": properties, "additionalProperties": False}
    return made | ({"required": list(required)} if required else {})


def _about(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"description": text, **schema}


def _count(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def _words(kind: type[StrEnum]) -> dict[str, Any]:
    return {"enum": [str(each) for each in kind]}


def _search() -> dict[str, Any]:
    ranges = [_object({kind: _PAIR}, (kind,)) for kind in ("uniform", "log", "int")]
    values = {"type": "array", "items": _VALUE, "minItems": 1}
    params = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"anyOf": [values, *ranges]},
    }
    return _object(
        {
            "method": _about(_words(Method), "How trials are chosen (default: random)."),
            "n": _about(_count(1, 10_000), "How many trials."),
            "params": _about(params, "What each parameter may be."),
        },
        ("params",),
    )


def _stop() -> dict[str, Any]:
    return _object(
        {
            "method": _about(_words(StopRule), "Who is stopped early (default: none)."),
            "max_iterations": _about(_count(1, 10**12), "Of a job that is never stopped early."),
            "eta": _about(_count(2, 100), "One in so many goes on (default: 2)."),
        }
    )


def _metric() -> dict[str, Any]:
    return _object(
        {
            "name": _about(
                {"type": "string", "minLength": 1, "maxLength": 64},
                "What it is called where it is read from (default: loss).",
            ),
            "goal": _about(_words(Goal), "Which way is better (default: minimize)."),
            "source": _about(_words(MetricSource), "Where it is read from (default: jsonl)."),
            "path": _about({"type": "string"}, "Folder of event files, for tensorboard."),
            "pattern": _about({"type": "string"}, "RE2 with groups it and the metric, for regex."),
        }
    )


def _gpus() -> dict[str, Any]:
    return _object(
        {
            "per_job_max": _about(_count(1, 100_000), "A job can use so many (default: 1)."),
            "per_job_min": _about(_count(1, 100_000), "It needs so many (default: 1)."),
            "model": _about({"type": "string", "pattern": _NAME}, "Which GPUs (default: any)."),
            "memory": _about({"type": ["number", "string"]}, "Of each GPU: 16G."),
        }
    )


def _checkpoint() -> dict[str, Any]:
    return _object(
        {
            "every": _about(_TIME, "Told to the job as THEMIS_CHECKPOINT_EVERY."),
            "grace": _about(
                _TIME, "What it gets to save when its GPUs go (default: 60s; at most 1h)."
            ),
            "save": _about(_TIME, "How long saving takes (default: 7.5s)."),
            "restart": _about(_TIME, "How long a start takes until it trains (default: 35s)."),
        }
    )
