"""Classes whose base comes from a package that may not be installed."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, SupportsFloat

_FindBase = Callable[[], type]


_made: dict[tuple[type, _FindBase], type] = {}


def subclass_of(kind: type, find: _FindBase) -> type:
    """A class like `kind` that also has the base that `find` returns; the same one every time."""
    if (kind, find) not in _made:
        base = find()
        about = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
        known = issubclass(kind, base)
        _made[kind, find] = kind if known else type(kind.__name__, (kind, base), about)
    return _made[kind, find]


def first_installed(modules: Iterable[str], name: str, install: str) -> type:
    """A class of the first of these modules that is installed.

    Raises:
        ImportError: None of them is.
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
    """The values that can be reported: numbers, and tensors with one element."""
    left_out = {"it", "t", *without}
    found: dict[str, float] = {}
    for name, value in values:
        if (
            name in left_out
            or isinstance(value, bool | str)
            or not isinstance(value, SupportsFloat)
        ):
            continue
        try:
            found[name] = float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):  # a tensor with many
            continue
    return found
