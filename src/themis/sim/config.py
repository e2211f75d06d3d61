"""What to simulate: one flat set of keys, checked where it enters.

config = RunConfig(policy="themis", apps=20, options={"f": 0.7, "lease": "5m"})
prepared = prepare(config)
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from themis.core.arbiter import SETTING_NAMES, Settings
from themis.core.auction.solvers.registry import preload
from themis.core.model import Topology
from themis.core.model.ids import check_count, check_number
from themis.core.policies import Policy, policy, policy_class, policy_options
from themis.errors import ConfigError, UnwantedKeyError, unknown_name
from themis.recording.cluster_files import cluster
from themis.recording.written_settings import duration, settings_for
from themis.recording.written_values import parse_value
from themis.sim.faults import NO_FAULTS, PHILLY_FAILURES_PER_GPU_HOUR, Faults
from themis.sim.iteration_measuring import NO_LEARNING, Learning
from themis.sim.misreporting import with_errors, with_liar, without_priors
from themis.sim.modelled_jobs import JobCosts
from themis.sim.traces.workload_files import for_cluster, is_workload_file, read_workload
from themis.sim.workloads import GENERATORS, Workload, workload

_COSTS = tuple(item.name for item in fields(JobCosts))
_FAULTS = tuple(item.name for item in fields(Faults))
_LEARNING = tuple(item.name for item in fields(Learning))
_BELIEFS = ("error", "prior", "liar", "lie", "lie_factor")
_PRIORS = ("model", "none")
_OWN = ("seed", "apps", "gpus", "load")
_APPS = 85
_QUICK_FLOOR = 500
"""The floor of this many apps is found within a second, so that it need not be asked for."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run. `options` are keys of the policy, the arbiter, the workload or the costs."""

    cluster: str = "testbed64"
    contention: int = 1
    workload: str = "w2"
    apps: int = _APPS
    seed: int = 1
    policy: str = "themis"
    load: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """Everything a simulation is made from."""

    config: RunConfig
    topology: Topology
    workload: Workload
    policy: Policy
    policy_options: dict[str, Any]
    settings: Settings
    costs: JobCosts
    solver: str
    faults: Faults = NO_FAULTS
    learning: Learning = NO_LEARNING
    floor: bool = False
    """Whether to find what no policy could do better than."""


def allowed_keys(policy_name: str, workload_name: str) -> dict[str, str]:
    """Every key that may be set for such a run, and what it belongs to."""
    keys = dict.fromkeys(policy_options(policy_class(policy_name)), "policy")
    keys |= dict.fromkeys(SETTING_NAMES, "arbiter")
    keys |= dict.fromkeys(_workload_options(workload_name), "workload")
    keys |= dict.fromkeys(_COSTS, "costs")
    keys |= dict.fromkeys(_FAULTS, "faults")
    keys |= dict.fromkeys(_LEARNING, "learning")
    keys |= dict.fromkeys(_BELIEFS, "beliefs")
    keys["solver"] = "solver"
    keys["floor"] = "floor"
    return keys


def _workload_options(name: str) -> list[str]:
    if name not in GENERATORS:
        if is_workload_file(name):
            return []
        problem = unknown_name("workload", name, GENERATORS)
        raise ConfigError("workload", name, f"{problem.allowed}, or a workload file")
    parameters = inspect.signature(GENERATORS[name]).parameters
    return [key for key in parameters if key not in _OWN]


def prepare(config: RunConfig) -> PreparedRun:
    """Check a configuration and make what it names.

    Raises:
        ConfigError: A name that does not exist or a number that cannot be.
    """
    topology = cluster(config.cluster, config.contention)
    kind = policy_class(config.policy)
    keys = allowed_keys(config.policy, config.workload)
    for key in config.options:
        if key not in keys:
            raise unknown_name(f"key for policy {config.policy}", key, keys)
    chosen = {
        group: {key: value for key, value in config.options.items() if keys[key] == group}
        for group in ("policy", "arbiter", "workload", "costs", "faults", "learning", "beliefs")
    }
    check_count("seed", config.seed, low=0, high=10**18)
    check_count("apps", config.apps, high=1_000_000)
    name = str(config.options.get("solver", "default"))
    preload(name)
    truth = _workload(config, topology, chosen["workload"])
    learning = learning_from(chosen["learning"])
    return PreparedRun(
        config=config,
        topology=topology,
        workload=_believing(truth, chosen["beliefs"], config.seed, learning),
        policy=policy(config.policy, **chosen["policy"]),
        policy_options=chosen["policy"],
        settings=settings_for(kind, chosen["arbiter"]),
        costs=costs_from(chosen["costs"]),
        solver=name,
        faults=faults_from(chosen["faults"]),
        learning=learning,
        floor=_wants_floor(config.options.get("floor", len(truth.apps) <= _QUICK_FLOOR)),
    )


def _workload(config: RunConfig, topology: Topology, options: dict[str, Any]) -> Workload:
    gpus = topology.gpus
    if config.contention != 1:
        # Contention means the same apps on fewer machines, so the horizon stays.
        gpus = cluster(config.cluster).gpus
    if config.workload in GENERATORS:
        result = workload(
            config.workload,
            seed=config.seed,
            apps=config.apps,
            gpus=gpus,
            load=config.load,
            **options,
        )
    else:
        result = _workload_in_file(config, gpus)
    for app in result.apps:
        gang = max(job.min_gpus for job in app.spec.jobs)
        if gang > topology.gpus:
            raise ConfigError(
                f"min_gpus of {app.spec.id}", gang, f"at most the cluster's {topology.gpus} GPUs"
            )
    return result


def refuse_apps_of_file(config: RunConfig) -> None:
    """Refuse a number of apps if the workload is a file; for when somebody gave one.

    Raises:
        UnwantedKeyError: It is.
    """
    # Of a file that is not there, that is what will be told.
    if config.workload not in GENERATORS and Path(config.workload).exists():
        reason = "a workload file has its own apps (for fewer: themis trace import --limit-apps)"
        raise UnwantedKeyError("apps", config.apps, reason)


def _workload_in_file(config: RunConfig, gpus: int) -> Workload:
    found = read_workload(Path(config.workload))
    if config.apps != _APPS:
        refuse_apps_of_file(config)
    return for_cluster(found, gpus, config.load)


def _believing(
    truth: Workload, options: Mapping[str, Any], seed: int, learning: Learning
) -> Workload:
    """The workload with the priors, the errors and the lie that were asked for."""
    prior = str(options.get("prior", "model"))
    if prior not in _PRIORS:
        raise unknown_name("prior", prior, _PRIORS)
    known = without_priors(truth) if prior == "none" else truth
    error = check_number("error", options.get("error", 0.0), high=0.99)
    result = with_errors(known, error, seed, learning=learning.learn)
    if "liar" in options:
        lies = _lies(str(options.get("lie", "spread")), options.get("lie_factor", 1.0))
        return with_liar(result, str(options["liar"]), lies)
    for key in ("lie", "lie_factor"):
        if key in options:
            reason = "without `liar`, the app that lies, it says nothing"
            raise UnwantedKeyError(key, options[key], reason)
    return result


def _lies(kinds: str, factors: object) -> list[tuple[str, float]]:
    """Kinds and factors, one of each or as many, with commas between them."""
    names = [name.strip() for name in kinds.split(",")]
    texts: list[object] = [factors]
    if isinstance(factors, str):
        texts = [parse_value(text) for text in factors.split(",")]
    if len(texts) != len(names):
        raise ConfigError("lie_factor", factors, f"as many as there are lies ({len(names)})")
    return [
        (name, check_number("lie_factor", factor, above=True, high=1e6))
        for name, factor in zip(names, texts, strict=True)
    ]


def _wants_floor(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("floor", value, "true or false")
    return value


def costs_from(options: Mapping[str, Any]) -> JobCosts:
    """Costs of starting and checkpointing.

    Raises:
        ConfigError: A value that cannot be.
    """
    return JobCosts(**{key: duration(value, key) for key, value in options.items()})


def faults_from(options: Mapping[str, Any]) -> Faults:
    """What breaks and how often; `philly` stands for the rate of job failures seen there.

    Raises:
        ConfigError: A value that cannot be.
    """
    values = dict(options)
    rate = values.pop("job_failures_per_gpu_hour", 0.0)
    if rate == "philly":
        rate = PHILLY_FAILURES_PER_GPU_HOUR
    rate = check_number("job_failures_per_gpu_hour", rate, high=1e6)
    return Faults(rate, **{key: duration(value, key) for key, value in values.items()})


def learning_from(options: Mapping[str, Any]) -> Learning:
    """Whether agents learn, and from how noisy measurements.

    Raises:
        ConfigError: A value that cannot be, or noise where nobody listens.
    """
    learning = Learning(**options)
    if "iteration_noise" in options and not learning.learn:
        reason = "without `learn` nobody looks at it"
        raise UnwantedKeyError("iteration_noise", options["iteration_noise"], reason)
    return learning
