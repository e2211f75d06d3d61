"""The tenants of the demo: three teams with sweeps of different kinds.

for tenant in tenants(place):
    client_of(tenant).submit(tenant.app, seed=tenant.seed)     # `tenant.after` seconds on
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from themis.core.model.zoo import slowdown_of
from themis.demo.training_program import MODULE, ProgramLocation

SENSITIVE = "alexnet"
"""The model that the network stands for: two machines make it much slower than one."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One team and its sweep."""

    owner: str
    about: str
    """The sweep in a few words."""
    after: float
    """Seconds from the beginning to its submission."""
    app: Mapping[str, Any]
    seed: int = 1

    @property
    def name(self) -> str:
        """The name of its app."""
        return str(self.app["name"])


def tenants(place: ProgramLocation, *, quick: bool = False) -> tuple[Tenant, ...]:
    """The three tenants; with `quick` their sweeps are shorter."""
    part = 0.2 if quick else 1.0
    soon = 0.3 if quick else 1.0
    return (
        Tenant(
            "ann",
            "logistic regression, 8 trials, stopped by their curves",
            0.0,
            _app(place, "logistic", 0.5, {"lr": {"log": [1e-3, 1.0]}, "batch": [8, 32]}, n=8)
            | {
                "stop": {"method": "curve", "max_iterations": round(120 * part)},
                "gpus": {"per_job_max": 1},
            },
        ),
        Tenant(
            "ben",
            "ridge regression, 12 trials, halving",
            8.0 * soon,
            _app(place, "ridge", 1.0, {"lr": {"log": [1e-3, 0.3]}}, n=12)
            | {
                "stop": {"method": "halving", "eta": 3, "max_iterations": round(160 * part)},
                "gpus": {"per_job_max": 4},
            },
        ),
        Tenant(
            "cleo",
            "neural network, 4 trials of 2 to 4 GPUs close together, halving",
            16.0 * soon,
            _app(
                place, "network", 1.6, {"lr": {"log": [0.01, 0.5]}}, n=4, levels=_levels(SENSITIVE)
            )
            | {
                "stop": {"method": "halving", "eta": 2, "max_iterations": round(105 * part)},
                "gpus": {"per_job_max": 4, "per_job_min": 2},
                "model": SENSITIVE,
            },
        ),
    )


def _app(
    place: ProgramLocation,
    task: str,
    pace: float,
    params: Mapping[str, Any],
    *,
    n: int,
    levels: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
) -> dict[str, Any]:
    """The keys that all app files share."""
    slowdown = ",".join(f"{value:g}" for value in levels)
    words = [place.python, "-S", "-m", MODULE, "--task", task]
    holes = [word for name in params for word in (f"--{name}", f"{{{name}}}")]
    return {
        "name": task,
        # Braces in a path stand for themselves.
        "command": [
            *(word.replace("{", "{{").replace("}", "}}") for word in words),
            *holes,
            *("--pace", f"{pace:g}", "--slowdown", slowdown),
        ],
        "workdir": str(place.folder),
        "search": {"method": "random", "n": n, "params": dict(params)},
        "metric": {"name": "loss", "goal": "minimize"},
        "iteration_seconds": pace,
        # The program starts quickly, so moving to better GPUs pays soon.
        "checkpoint": {"every": 5, "grace": 2, "save": 0.5, "restart": 2},
    }


def _levels(model: str) -> tuple[float, float, float, float]:
    return slowdown_of(model).levels
