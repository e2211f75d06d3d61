"""`themis nodes`: machines, and whether they are used."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from themis.cli.common.options import Json
from themis.cli.common.output import print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say, show, since

app = typer.Typer(
    help="List machines (`ls`), cordon, drain and remove them.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
Node = Annotated[str, typer.Argument(help="The machine's name.")]


@app.callback()
def _group(
    context: typer.Context, server: Server = SERVER, ca: Authority = None, json: Json = False
) -> None:
    """List machines (`ls`), cordon, drain and remove them."""
    if context.invoked_subcommand is None:
        _list(server, ca, json=json)


@app.command("ls")
def ls_command(server: Server = SERVER, ca: Authority = None, json: Json = False) -> None:
    """List machines and the states of their GPUs."""
    _list(server, ca, json=json)


@app.command("cordon")
def cordon_command(
    node: Node, server: Server = SERVER, ca: Authority = None, json: Json = False
) -> None:
    """Cordon a machine: no new leases; running jobs may stay."""
    answer = reach(server, ca).cordon(node)
    _tell(answer, f"{node} gets no new leases; `themis nodes uncordon` undoes it", json=json)


@app.command("drain")
def drain_command(
    node: Node, server: Server = SERVER, ca: Authority = None, json: Json = False
) -> None:
    """Drain a machine: neither new leases nor renewals, so it empties as leases end."""
    answer = reach(server, ca).drain(node)
    _tell(answer, f"{node} is empty when its leases have ended; see `themis nodes`", json=json)


@app.command("uncordon")
def uncordon_command(
    node: Node, server: Server = SERVER, ca: Authority = None, json: Json = False
) -> None:
    """Uncordon a machine: use it again."""
    _tell(reach(server, ca).uncordon(node), f"{node} is used again", json=json)


@app.command("remove")
def remove_command(
    node: Node, server: Server = SERVER, ca: Authority = None, json: Json = False
) -> None:
    """Remove a machine that will not come back."""
    answer = reach(server, ca).remove_node(node)
    told = f"{node} is gone for good; `themis token ls` finds its token, `token revoke` ends it"
    _tell(answer, told, json=json)


@app.command("restore")
def restore_command(
    node: Node,
    gpu: Annotated[int, typer.Argument(min=0, help="Its number on that machine, from 0.")],
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Take a repaired GPU out of quarantine."""
    answer = reach(server, ca).restore_gpu(node, gpu)
    was = answer.get("changed", True)
    told = "is used again" if was else "was not in quarantine"
    _tell(answer, f"GPU {gpu} of {node} {told}", json=json)


def _list(server: str, ca: Any, *, json: bool) -> None:
    answer = reach(server, ca).nodes()
    if json:
        print_json(answer)
        return
    now = answer.get("now")
    rows = [
        (
            line["node"],
            line["rack"],
            _state(line),
            since(line["heard"], now),
            line.get("control") or "",
            line.get("version") or "",
            _gpus(line),
        )
        for line in answer["nodes"]
    ]
    show("", ("node", "rack", "state", "-heard", "held by", "version", "GPUs"), rows)
    if answer.get("trouble"):
        say(f"engine: {answer['trouble']}")
    for line in answer["nodes"]:
        for note in _notes(line):
            say(f"{line['node']}: {note}")
        for gpu in line["gpus"]:
            if gpu["state"] == "quarantined":
                say(f"{line['node']} GPU {gpu['index']}: quarantined: {gpu['reason']}")


def _notes(line: dict[str, Any]) -> list[str]:
    """Warnings about a machine, for operators."""
    notes = [line["trouble"]] if line.get("trouble") else []
    if line.get("trust_tenants"):
        notes.append("jobs of all owners run as one user (trust_tenants)")
    storage = line.get("storage") or {}
    if storage.get("sharing") == "trouble":
        notes.append(f"shared_dir cannot be used: {storage.get('trouble') or 'see its log'}")
    if storage.get("sharing") == "apart":
        notes.append(
            "shared_dir is not the folder that the others see: jobs do not move from or to it"
        )
    return notes


def _state(line: dict[str, Any]) -> str:
    if line.get("trouble"):
        return "other shape"
    if not line["present"]:
        return "silent"
    if line.get("draining"):
        held = any(gpu["state"] in {"leased", "fencing"} for gpu in line["gpus"])
        return "draining" if held else "drained"
    return "cordoned" if line["cordoned"] else "used"


def _gpus(line: dict[str, Any]) -> str:
    counts = Counter(str(gpu["state"]) for gpu in line["gpus"])
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "none"


def _tell(answer: dict[str, Any], line: str, *, json: bool) -> None:
    if json:
        print_json(answer)
    else:
        say(line)
