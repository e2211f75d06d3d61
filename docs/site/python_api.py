"""What people call from Python, from signatures and docstrings."""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import themis
from themis.agent_host.own_tuner import OwnTuner, tune
from themis.client import Client
from themis.core.tuners import Stepwise, Trial

_SECTION = re.compile(r"^(Args|Raises|Returns|Yields|Every method may raise):$", re.MULTILINE)
_ITEM = re.compile(r"^ {4}(\*{0,2}[\w.]+): ", re.MULTILINE)


def client_api() -> str:
    """The client."""
    return _class("themis.client.Client", Client, _methods(Client))


def job_api() -> str:
    """What training programs call."""
    names = [name for name in themis.__all__ if name not in {"OwnTuner", "Trial", "tune"}]
    called = [name for name in names if callable(getattr(themis, name))]
    parts = [_function(f"themis.{name}", getattr(themis, name)) for name in called]
    parts.append(
        f"### `themis.GRACEFUL_EXIT = {themis.GRACEFUL_EXIT}`\n\n"
        "What a program exits with that wants to be started again from its checkpoint.\n"
    )
    return "\n".join(parts)


def tuner_api() -> str:
    """What tuners of one's own are made of."""
    told = inspect.getdoc(OwnTuner) or ""
    # The other methods of that class are for who drives it.
    inherited = [item for item in _methods(Stepwise) if f"`{item.__name__}" in told]
    return "\n".join(
        (
            _class("themis.OwnTuner", OwnTuner, [*_methods(OwnTuner), *inherited]),
            _trial(),
            _function("themis.tune", tune),
        )
    )


def _trial() -> str:
    """What tuners are shown: values to read, so their names and not how one is made."""
    names = [item.name for item in fields(Trial)]
    lines = ["### `themis.Trial`\n", _text(inspect.getdoc(Trial)), "It has:\n"]
    lines.append(f"- {', '.join(f'`{name}`' for name in names)}")
    for name, item in vars(Trial).items():
        if isinstance(item, property) and not name.startswith("_"):
            lines.append(f"- `{name}`: {(inspect.getdoc(item) or '').partition(chr(10))[0]}")
    return "\n".join([*lines, ""])


def _methods(kind: type) -> list[Any]:
    """Public ones that the class itself has, in the order of the source."""
    return [
        item
        for name, item in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(item)
    ]


def _class(name: str, kind: type, methods: Iterable[Callable[..., Any]]) -> str:
    parts = [f"### `{name}{_signature(_init(kind) or kind)}`\n"]
    parts.append(_text(inspect.getdoc(kind)))
    made = _init(kind)
    parts.append(_text(_after_summary(inspect.getdoc(made))) if made is not None else "")
    short = name.rpartition(".")[2]
    parts += [_function(f"{short}.{item.__name__}", item, 4) for item in methods]
    return "\n".join(part for part in parts if part)


def _init(kind: type) -> Callable[..., Any] | None:
    """How one is made, if the class itself says it."""
    found = vars(kind).get("__init__")
    return found if inspect.isfunction(found) else None


def _after_summary(text: str | None) -> str:
    """Without its first line: that something is made needs no saying."""
    return (text or "").partition("\n\n")[2]


def _function(name: str, function: Callable[..., Any], level: int = 3) -> str:
    told = _text(inspect.getdoc(function))
    return f"{'#' * level} `{name}{_signature(function)}`\n\n{told}"


def _signature(function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    kept = [
        item.replace(annotation=inspect.Parameter.empty)
        for item in found.parameters.values()
        if item.name != "self" and not inspect.isbuiltin(item.default)  # those are for tests
    ]
    return str(found.replace(parameters=kept, return_annotation=inspect.Signature.empty))


def _text(doc: str | None) -> str:
    """A docstring as Markdown: its lists of arguments and errors become lists."""
    pieces = _SECTION.split(doc or "")
    parts = [pieces[0].strip()]
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        parts += [f"{title}:", "\n".join(_items(body))]
    told = "\n\n".join(part for part in parts if part)
    return f"{told}\n" if told else ""


def _items(body: str) -> list[str]:
    pieces = _ITEM.split(body)
    if len(pieces) == 1:
        return [" ".join(body.split())]
    pairs = zip(pieces[1::2], pieces[2::2], strict=True)
    return [f"- `{name}`: {' '.join(text.split())}" for name, text in pairs]
