"""Classes whose base comes from a package that may not be installed."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, SupportsFloat

_FindBase = Callable[[], type]


_made: dict[tuple[type, _FindBase], type] = {}


def subclass_of(kind: type, find: _FindBase) -> type:
    """A class like `kind` that is also what `find` finds; the same one every time."""
    if (kind, find) not in _made:
        base = find()
        about = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
        known = issubclass(kind, base)
        _made[kind, find] = kind if known else type(kind.__name__, (kind, base), about)
    return _made[kind, find]


def first_installed(modules: Iterable[str], name: str, install: str) -> type:
    """A class of the first of these modules that is there.

    Raises:
        ImportError: None of them is; says what to install.
    """
    for module in modules:
        try:
            kind: type = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise  # it is there, and lacks something itself
        else:
            return kind
    raise ImportError(f"ThemisCallback needs {install}: pip install {install}", name=install)


def numbers(values: Iterable[tuple[str, Any]], without: Iterable[str] = ()) -> dict[str, float]:
    """What can be reported of values by name: numbers, and tensors with one element."""
    left_out = {"it", "t", *without}
    told: dict[str, float] = {}
    for name, value in values:
        if (
            name in left_out
            or isinstance(value, bool | str)
            or not isinstance(value, SupportsFloat)
        ):
            continue
        try:
            told[name] = float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):  # a tensor with many
            continue
    return told
