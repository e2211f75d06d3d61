"""Policies by name. Adding one is a file, a line here, a row in the conformance test and a page.

How it looks in figures is a line in sim/figures/plot_style.py.

policy("themis", f=0.7)
policy("my_package.my_module:MyPolicy")   # your own, from anywhere on the path
"""

import importlib
import inspect
from types import ModuleType
from typing import Any

from themis.core.policies.base import Policy
from themis.core.policies.drf import Drf
from themis.core.policies.equal_share import EqualShare
from themis.core.policies.fifo import Fifo
from themis.core.policies.gandiva import Gandiva
from themis.core.policies.min_max_rho import MinMaxRho
from themis.core.policies.optimus import Optimus, OptimusPacked
from themis.core.policies.slaq import Slaq, SlaqPacked
from themis.core.policies.static import Static
from themis.core.policies.themis import Themis
from themis.core.policies.themis_paper import ThemisPaper
from themis.core.policies.tiresias import Tiresias, TiresiasPacked
from themis.core.policies.worst_first import WorstFirst
from themis.errors import ConfigError, unknown_name

POLICIES: dict[str, type[Policy]] = {
    kind.name: kind
    for kind in (
        Themis,
        ThemisPaper,
        EqualShare,
        WorstFirst,
        MinMaxRho,
        Gandiva,
        Tiresias,
        TiresiasPacked,
        Optimus,
        OptimusPacked,
        Slaq,
        SlaqPacked,
        Drf,
        Fifo,
        Static,
    )
}


def policy_class(name: str) -> type[Policy]:
    """The class of a policy, by its name or as `module:Class`.

    Raises:
        ConfigError: There is none.
    """
    if ":" in name:
        return _from_outside(name)
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    return POLICIES[name]


def policy(name: str, **options: Any) -> Policy:
    """A policy with its options.

    Raises:
        ConfigError: No such policy or option, or a value that cannot be.
    """
    kind = policy_class(name)
    known = policy_options(kind)
    for key in options:
        if key not in known:
            raise unknown_name(f"option of policy {name}", key, known)
    for key, default in known.items():
        if default is inspect.Parameter.empty and key not in options:
            raise ConfigError(f"option {key} of policy {name}", None, "a value: it has no default")
    return kind(**options)


def policy_options(kind: type[Policy]) -> dict[str, Any]:
    """The options of a policy with their defaults (`inspect.Parameter.empty` where none)."""
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(kind).parameters.values()
    return {item.name: item.default for item in parameters if item.kind in named}


def _from_outside(name: str) -> type[Policy]:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may fail to load in any way
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError("policy", name, f"an importable module:Class ({reason})") from error
    kind = getattr(module, attribute, None)
    if kind is None:
        raise unknown_name(f"policy in module {module_name}", attribute, _policies_in(module))
    if not (inspect.isclass(kind) and issubclass(kind, Policy)):
        raise ConfigError("policy", name, "a subclass of themis.core.policies.Policy")
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise ConfigError("policy", name, f"a policy that can be used; it lacks {missing}")
    if not isinstance(getattr(kind, "name", None), str):
        raise ConfigError("policy", name, "a class with a `name`")
    return kind


def _policies_in(module: ModuleType) -> list[str]:
    return [
        name
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, Policy) and not inspect.isabstract(kind)
    ]
