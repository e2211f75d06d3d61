"""Policies by name. Adding one is a file, a line here, a row in the conformance test and a page.

policy("themis", f=0.7)
policy("my_package.my_module:MyPolicy")   # your own, from anywhere on the path
"""

import importlib
import inspect
from typing import Any

from themis.errors import ConfigError, unknown_name
from themis.policies.base import Policy
from themis.policies.equal_share import EqualShare
from themis.policies.fifo import Fifo
from themis.policies.themis import Themis, ThemisPaper
from themis.policies.tiresias import Tiresias, TiresiasPacked
from themis.policies.worst_first import WorstFirst

POLICIES: dict[str, type[Policy]] = {
    kind.name: kind
    for kind in (Themis, ThemisPaper, EqualShare, WorstFirst, Tiresias, TiresiasPacked, Fifo)
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
    return kind(**options)


def policy_options(kind: type[Policy]) -> dict[str, Any]:
    """The options of a policy with their defaults."""
    parameters = inspect.signature(kind).parameters.values()
    return {item.name: item.default for item in parameters}


def _from_outside(name: str) -> type[Policy]:
    module_name, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError("policy", name, f"an importable module:Class ({error})") from error
    if not (inspect.isclass(kind) and issubclass(kind, Policy)):
        raise ConfigError("policy", name, "a subclass of themis.policies.base.Policy")
    return kind
