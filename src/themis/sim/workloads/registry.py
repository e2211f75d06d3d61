"""Workloads by name. Adding one is a file with its generator and a line here."""

import inspect
from collections.abc import Callable, Mapping

from themis.errors import ConfigError, unknown_name
from themis.sim.workloads.base import Workload
from themis.sim.workloads.identical_apps import generate_truth
from themis.sim.workloads.rivals import generate_rivals
from themis.sim.workloads.trace_study import generate_trace_study
from themis.sim.workloads.w1 import generate_w1
from themis.sim.workloads.w2 import generate_w2

GENERATORS: Mapping[str, Callable[..., Workload]] = {
    "w1": generate_w1,
    "w2": generate_w2,
    "trace-study": generate_trace_study,
    "truth": generate_truth,
    "rivals": generate_rivals,
}


def workload(name: str, **options: object) -> Workload:
    """Generate the workload of this name; options are the generator's keyword arguments.

    Raises:
        ConfigError: Unknown name or option, a missing one, or a value out of range.
    """
    generator = GENERATORS.get(name)
    if generator is None:
        raise unknown_name("workload", name, GENERATORS)
    parameters = inspect.signature(generator).parameters
    for key in options:
        if key not in parameters:
            raise unknown_name(f"option of workload {name}", key, parameters)
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in options:
            raise ConfigError(f"{key} of workload {name}", None, "a value: it has no default")
    return generator(**options)
