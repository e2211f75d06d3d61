"""The app of a script: its app file, the command of its trial nodes, and their environment."""

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
from themis.apps.app_file import TRIAL_NODE_MODULE
from themis.integrations.ray_tune.script_agent import ParamsOf, ScriptAgent
from themis.integrations.ray_tune.trial_node import OPTIONS_VARIABLE, SECRET_VARIABLE
from themis.integrations.ray_tune.trial_node_server import TrialNodeServer
from themis.security.token_files import token_places

MARK = "themis-"
"""The prefix of all resources that stand for trial nodes."""
_NOT_FOR_NODES = frozenset({"RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_JOB_ID"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
_MOST_PARAMETERS = 50


@dataclass(frozen=True, slots=True)
class ScriptSettings:
    """The arguments of a `ThemisScheduler`."""

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
    """What Tune knows of the script."""

    trials: int
    gpus: int
    """GPUs of each trial."""
    resources: Mapping[str, float]
    """What else each trial asks for."""
    iterations: int
    """The most iterations of a trial; 0 if unknown."""
    metric: str | None
    mode: str
    experiment: str
    config: Mapping[str, Any]
    """The configuration of the first trial."""


@dataclass(frozen=True, slots=True)
class OpenedScript:
    """The parts of a script whose app is submitted."""

    node_server: TrialNodeServer
    agent: ScriptAgent
    jobs: Sequence[str]
    mark: str
    """The prefix of the resource that only the node of one trial has; its job follows."""


def has_service(server: str | None) -> bool:
    """Whether this user has configured a service."""
    environ = os.environ
    if server or environ.get("THEMIS_SERVER"):
        return True
    return any(path.is_file() for path in token_places(environ, root=os.geteuid() == 0))


def open_script(
    service: ServiceAddress,
    settings: ScriptSettings,
    terms: TuneTerms,
    address: str,
    params: ParamsOf,
) -> OpenedScript:
    """Submit the app of a script.

    Args:
        service: The service.
        settings: The user's settings.
        terms: What Tune knows.
        address: The address of the script's Ray.
        params: Gives the parameters of a job.

    Raises:
        ThemisError: The app was refused.
    """
    node_server = TrialNodeServer(urlsplit(f"//{address}").hostname or "127.0.0.1")
    try:
        mark = f"{MARK}{secrets.token_hex(4)}-"
        app = app_keys(settings, terms, address, node_server.address, mark)
        app["env"] = {**node_environment(), SECRET_VARIABLE: node_server.secret, **app["env"]}
        agent = ScriptAgent(service, app, f"tune {secrets.token_hex(8)}", params)
    except BaseException:
        node_server.close()
        raise
    width = len(str(terms.trials - 1))
    return OpenedScript(
        node_server, agent, [f"{index:0{width}d}" for index in range(terms.trials)], mark
    )


def app_keys(
    settings: ScriptSettings, terms: TuneTerms, address: str, node_server: str, mark: str
) -> dict[str, Any]:
    """The app file of a script, without the environment of its trial nodes."""
    own = dict(settings.app)
    command = [
        *(sys.executable, "-m", TRIAL_NODE_MODULE),
        *("--driver", node_server, "--ray", address, "--trial", "{trial}"),
        *("--mark", mark, "--node", _braced(terms.resources)),
    ]
    parameters = {"trial": ["-"], **parameters_of(terms.config)}
    app: dict[str, Any] = {
        "name": settings.name or app_name(terms.experiment),
        "command": command,
        "workdir": os.getcwd(),
        "tuner": "own",
        "search": {"method": "random", "n": terms.trials, "params": parameters},
        "gpus": {"per_job_min": terms.gpus, "per_job_max": terms.gpus},
        "checkpoint": {"grace": settings.grace},
        "weight": settings.weight,
    }
    if terms.iterations:
        app["stop"] = {"method": "none", "max_iterations": terms.iterations}
    if terms.metric:
        goal = "maximize" if terms.mode == "max" else "minimize"
        app["metric"] = {"name": terms.metric, "goal": goal}
    if settings.iteration_seconds:
        app["iteration_seconds"] = settings.iteration_seconds
    for key, value in own.items():
        nested = isinstance(value, Mapping) and isinstance(app.get(key), Mapping)
        app[key] = {**app[key], **value} if nested else value
    app["env"] = dict(own.get("env", {}))
    return app


def node_environment() -> dict[str, str]:
    """What trial nodes need of the script's environment: Ray's settings, and paths of modules."""
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") and name not in _NOT_FOR_NODES
    }
    # A token file is on this machine only, and a token that this Ray does not use stays here.
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
    """The token that the script's Ray requires of nodes; empty if it requires none."""
    # Ray sets this variable itself if it found a token when it was started.
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
    """A valid app name, made from the name of an experiment."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-") or "tune"


def parameters_of(config: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The parameters that the app shows: the plain values of a trial's configuration."""
    names = [name for name in plain_values(config) if _NAME.match(name) and name != "trial"]
    return {name: ["-"] for name in names[:_MOST_PARAMETERS]}


def _braced(resources: Mapping[str, float]) -> str:
    """JSON for a command, in which braces are doubled."""
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
