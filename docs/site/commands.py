"""The commands: every verb with its arguments and options, as its help has them."""

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from themis.cli.app import tree
from themis.cli.common.config_flags import ServiceCommand

_COMMON = {"help", "install_completion", "show_completion"}
_ROOM = re.compile(r"\s+")


def command_pages() -> str:
    """A section for every command, groups with theirs below them."""
    root: Any = get_command(tree())
    sections = ["Before the verb:\n", _table(root, "themis")]
    for name in sorted(root.commands):
        sections += _sections(root.commands[name], f"themis {name}", 2)
    return "\n".join(sections)


def _sections(command: Any, name: str, level: int) -> Iterator[str]:
    if command.hidden:
        return
    yield _section(command, name, level)
    for below in getattr(command, "commands", {}):
        yield from _sections(command.commands[below], f"{name} {below}", level + 1)


def _section(command: Any, name: str, level: int) -> str:
    lines = [f"{'#' * level} {name}", ""]
    if not hasattr(command, "commands"):
        usage = command.collect_usage_pieces(_context(command, name))
        lines += ["```", f"{name} {' '.join(usage)}", "```", ""]
    lines += [_paragraphs(command.help or ""), ""]
    table = _table(command, name)
    if table:
        lines.append(table)
    if isinstance(command, ServiceCommand):
        keys = "`--state-dir` and `--store`" if command.only else "Every key"
        lines += [f"{keys} of the [configuration](service.md): as flags.", ""]
    return "\n".join(lines)


def _context(command: Any, name: str) -> Any:
    """As when it is asked for help; wide, so that nothing is broken or cut."""
    return command.context_class(command, info_name=name, terminal_width=10_000)


def _table(command: Any, name: str) -> str:
    context = _context(command, name)
    rows = []
    for item in _shown(command, context):
        record = item.get_help_record(context)
        if record is not None:
            what, told = (_ROOM.sub(" ", text).strip() for text in record)
            rows.append(f"| `{_cell(what)}` | {_cell(told)} |")
    return "\n".join(["| | |", "|---|---|", *rows, ""]) if rows else ""


def _shown(command: Any, context: Any) -> list[Any]:
    """Its parameters; flags that come with the whole configuration are in its reference."""
    own = command.params if isinstance(command, ServiceCommand) else command.get_params(context)
    return [item for item in own if item.name not in _COMMON]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _paragraphs(text: str) -> str:
    """Help as Markdown; a backspace is click's for lines to be kept."""
    told = text.replace("\b\n", "").replace("\f", "\n\n")
    return re.sub(r"\n{3,}", "\n\n", told).strip()
