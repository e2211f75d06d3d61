"""What is asked of Themis for a script: the app, the seats' command, and what they need to call."""

import json
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from themis.agent_host.own_tuner import ServiceAddress
from themis.apps.app_file import TUNE_SEAT
from themis.integrations.ray_tune.script_agent import ParamsOf, ScriptAgent
from themis.integrations.ray_tune.seat import OPTIONS_VARIABLE, SECRET_VARIABLE
from themis.integrations.ray_tune.seat_server import SeatServer
from themis.security.token_files import token_places

MARK = "themis-"
"""How all resources begin that stand for seats."""
_NOT_FOR_NODES = frozenset({"RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_JOB_ID"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
_MOST_PARAMETERS = 50


@dataclass(frozen=True, slots=True)
class ScriptSettings:
    """What the user says."""

    name: str | None = None
    max_iterations: int | None = None
    trials: int | None = None
    iteration_seconds: float | None = None
    grace: float = 60.0
    weight: float = 1.0
    app: Mapping[str, Any] = field(default_factory=dict)
    service: tuple[str | None, str | None, str | os.PathLike[str] | None, str | None] = (
        None,
        None,
        None,
        None,
    )


@dataclass(frozen=True, slots=True)
class TuneTerms:
    """What Tune says."""

    trials: int
    gpus: int
    """Of each,"""
    resources: Mapping[str, float]
    """and what else it asks for."""
    iterations: int
    """Of each at most; 0 if nobody knows."""
    metric: str | None
    mode: str
    experiment: str
    config: Mapping[str, Any]
    """Of the first trial."""


@dataclass(frozen=True, slots=True)
class OpenedScript:
    """An app under way."""

    floor: SeatServer
    follower: ScriptAgent
    jobs: Sequence[str]
    mark: str
    """How the resource begins that only the seat of a trial has; the trial's job follows."""


def has_service(server: str | None) -> bool:
    """Whether this user has a service at all."""
    environ = os.environ
    if server or environ.get("THEMIS_SERVER"):
        return True
    return any(path.is_file() for path in token_places(environ, root=os.geteuid() == 0))


def open_script(
    place: ServiceAddress, wishes: ScriptSettings, terms: TuneTerms, address: str, params: ParamsOf
) -> OpenedScript:
    """Submit the app of a script.

    Args:
        place: The service.
        wishes: What the user says.
        terms: What Tune says.
        address: Of the script's Ray.
        params: Asked for the parameters of a job.

    Raises:
        ThemisError: It was refused.
    """
    floor = SeatServer(urlsplit(f"//{address}").hostname or "127.0.0.1")
    try:
        mark = f"{MARK}{secrets.token_hex(4)}-"
        app = app_keys(wishes, terms, address, floor.address, mark)
        app["env"] = {**node_environment(), SECRET_VARIABLE: floor.secret, **app["env"]}
        follower = ScriptAgent(place, app, f"tune {secrets.token_hex(8)}", params)
    except BaseException:
        floor.close()
        raise
    width = len(str(terms.trials - 1))
    return OpenedScript(
        floor, follower, [f"{index:0{width}d}" for index in range(terms.trials)], mark
    )


def app_keys(
    wishes: ScriptSettings, terms: TuneTerms, address: str, floor: str, mark: str
) -> dict[str, Any]:
    """The app file of a script, but for its environment."""
    own = dict(wishes.app)
    command = [
        *(sys.executable, "-m", TUNE_SEAT),
        *("--driver", floor, "--ray", address, "--trial", "{trial}"),
        *("--mark", mark, "--node", _braced(terms.resources)),
    ]
    parameters = {"trial": ["-"], **parameters_of(terms.config)}
    app: dict[str, Any] = {
        "name": wishes.name or app_name(terms.experiment),
        "command": command,
        "workdir": os.getcwd(),
        "tuner": "own",
        "search": {"method": "random", "n": terms.trials, "params": parameters},
        "gpus": {"per_job_min": terms.gpus, "per_job_max": terms.gpus},
        "checkpoint": {"grace": wishes.grace},
        "weight": wishes.weight,
    }
    if terms.iterations:
        app["stop"] = {"method": "none", "max_iterations": terms.iterations}
    if terms.metric:
        goal = "maximize" if terms.mode == "max" else "minimize"
        app["metric"] = {"name": terms.metric, "goal": goal}
    if wishes.iteration_seconds:
        app["iteration_seconds"] = wishes.iteration_seconds
    for key, value in own.items():
        nested = isinstance(value, Mapping) and isinstance(app.get(key), Mapping)
        app[key] = {**app[key], **value} if nested else value
    app["env"] = dict(own.get("env", {}))
    return app


def node_environment() -> dict[str, str]:
    """What Ray nodes need of the script's environment: Ray's settings, and where modules are."""
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") and name not in _NOT_FOR_NODES
    }
    # What a token is read from is on this machine; one that this Ray does not ask for stays here.
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        found.pop(name, None)
    if token := _ray_token():
        found["RAY_AUTH_TOKEN"] = token
    for name in ("PYTHONPATH", OPTIONS_VARIABLE):
        if os.environ.get(name):
            found[name] = os.environ[name]
    found.setdefault("PATH", os.environ.get("PATH", os.defpath))
    return found


def _ray_token() -> str:
    """What the script's Ray lets nodes in by; nothing if it asks for nothing."""
    # Ray says so itself when it is started, if it takes a token that it has found.
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return ""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return os.environ["RAY_AUTH_TOKEN"]
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path("~/.ray/auth_token").expanduser()
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def app_name(text: str) -> str:
    """A name that an app may have, of that of an experiment."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-") or "tune"


def parameters_of(config: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The parameters that are shown: those of a trial that are plain values."""
    names = [name for name in plain_values(config) if _NAME.match(name) and name != "trial"]
    return {name: ["-"] for name in names[:_MOST_PARAMETERS]}


def _braced(resources: Mapping[str, float]) -> str:
    """JSON in a command, where a brace is written twice."""
    return json.dumps(dict(resources)).replace("{", "{{").replace("}", "}}")


def plain_values(
    config: Mapping[str, Any], prefix: str = ""
) -> dict[str, str | int | float | bool]:
    """The plain values of a configuration, with their whole names."""
    found: dict[str, str | int | float | bool] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= plain_values(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float):
            found[f"{prefix}{name}"] = value
    return found
