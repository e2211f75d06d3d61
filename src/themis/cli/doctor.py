"""`themis doctor`: what may stand in the way on this machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from themis.cli.common.config_flags import ServiceFile, service_configuration
from themis.cli.common.options import Json
from themis.cli.common.output import FAILED, console, escape_line, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from themis.ops.doctor import Finding

_COLORS = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


def doctor(context: typer.Context, config: ServiceFile = None, json: Json = False) -> None:
    """Check whether the service and its jobs would run well on this machine; changes nothing."""
    from themis.ops.doctor import CheckVerdict, examine_machine  # noqa: PLC0415 - for a quick --help
    from themis.ops.engine_facts import EngineProbe  # noqa: PLC0415 - see above
    from themis.ops.host_facts import LocalMachine  # noqa: PLC0415 - see above

    loaded = service_configuration(context, config)
    findings = examine_machine(LocalMachine(EngineProbe()), loaded.config, now=time.time())
    if json:
        print_json({"findings": [_plain(item) for item in findings]})
    else:
        _show(findings)
    if any(item.verdict is CheckVerdict.FAILED for item in findings):
        raise typer.Exit(FAILED)


def _plain(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "verdict": finding.verdict.value,
        "what": finding.what,
        "advice": finding.advice,
    }


def _show(findings: Sequence[Finding]) -> None:
    out = console()
    for item in findings:
        style = _COLORS[item.verdict.value]
        out.print(f"{item.verdict.value:8}", style=style, end="", markup=False)
        line = escape_line(f"{item.check}: {item.what}")
        out.print(line, markup=False, soft_wrap=True)
        if item.advice:
            out.print(f"        -> {escape_line(item.advice)}", markup=False, soft_wrap=True)
