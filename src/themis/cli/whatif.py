"""`themis whatif` and `themis snapshot`: questions about what is not there yet."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from themis.cli.common.options import Json
from themis.cli.common.output import FAILED, OK, counted, note, print_json
from themis.cli.common.service_calls import SERVER, Authority, Server, reach, say
from themis.cli.submit import Name, Seed, Set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from themis.apps import AppFile
    from themis.recording.cluster_snapshots import Snapshot

_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])\Z")
_SEEDS = 8
_LONGEST = 60.0


def whatif(
    file: Annotated[Path, typer.Argument(help="The app file (YAML); - for standard input.")],
    gpus: Annotated[
        list[int] | None,
        typer.Option("--gpus", min=1, help="Also with this many GPUs per job; may be repeated."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", help="Also with this rule: none, or halving,eta=3; repeatable."),
    ] = None,
    at: Annotated[
        list[str] | None, typer.Option("--at", help="Also at 22:00, or +8h from now; repeatable.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="Also under this policy, as an operator.")
    ] = None,
    add_machines: Annotated[
        list[str] | None,
        typer.Option(
            "--add-machines",
            metavar="FILE|N",
            help="Also with N more machines, or those of a cluster file, as an operator.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=32, help="How often what is not known is drawn.")
    ] = _SEEDS,
    seconds: Annotated[
        float, typer.Option(min=1, max=_LONGEST, help="How long the answer may take.")
    ] = _LONGEST,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", help="Ask a file of `themis snapshot`, and no service."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", help="Whose app it would be, as an operator.")
    ] = None,
    name: Name = None,
    set_: Set = None,
    seed: Seed = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Say when an app would start and finish if it were submitted now; nothing is submitted."""
    from themis.cli.common.app_files import read_written  # noqa: PLC0415 - late, so that --help is quick
    from themis.cli.common.forecast_tables import narrowing, tell  # noqa: PLC0415 - see above

    wishes: dict[str, Any] = {
        "gpus": gpus or [],
        "stop": stop or [],
        "at": [_delay(text, datetime.now().astimezone()) for text in at or ()],
        "policy": policy or [],
        "add_machines": [_machines(text) for text in add_machines or ()],
    }
    written = read_written(file, set_ or (), name=name, seed=seed)
    first = 1 + len(wishes["gpus"]) + len(wishes["stop"])
    labels = {first + index: f"at {text}" for index, text in enumerate(at or ())}
    with narrowing(json=json) as show:

        def each(answer: Mapping[str, Any]) -> None:
            show(_labelled(answer, labels))

        if snapshot is not None:
            answer = _offline(written, snapshot, wishes, owner, seed, seeds, seconds, each)
        else:
            from themis.apps import plain_app  # noqa: PLC0415 - see above

            client = reach(server, ca)
            # Leave out the program and its environment: they may hold secrets.
            plain = plain_app(written) | {"env": {}}
            answer = client.whatif(
                plain, **wishes, seeds=seeds, seconds=seconds, seed=seed, owner=owner, each=each
            )
    answer = _labelled(answer, labels)
    if json:
        print_json(answer)
    else:
        tell(written.name, answer)
    known = any(case.get("seeds") for case in answer.get("cases") or ())
    raise typer.Exit(OK if known else FAILED)


def snapshot(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write it; by default themis-TIME.json."),
    ] = None,
    server: Server = SERVER,
    ca: Authority = None,
    json: Json = False,
) -> None:
    """Save the state of the cluster, to ask `themis whatif --snapshot` later; as an operator."""
    from themis.recording.cluster_snapshots import (  # noqa: PLC0415 - late, so that --help is quick
        snapshot_from,
        write_snapshot,
    )

    taken = snapshot_from(dict(reach(server, ca).snapshot()))
    stamp = time.strftime("%Y%m%dT%H%M%S", time.localtime(taken.wall))
    path = out or Path(f"themis-{stamp}.json")
    write_snapshot(taken, path)
    if json:
        print_json({"snapshot": str(path), "apps": len(taken.apps), "at": taken.at})
        return
    say(f"{path}: {counted(len(taken.apps), 'app')}, policy {taken.policy}")
    note("it names apps and owners: hand it to operators only")


def _delay(text: str, now: datetime) -> str | float:
    """A time of day as seconds from now; everything else as it is."""
    found = _TIME.match(text.strip())
    if found is None:
        return text
    then = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
    if then <= now:
        then += timedelta(days=1)
    return (then - now).total_seconds()


def _machines(text: str) -> Any:
    if text.isdecimal() and len(text) < 10:
        return int(text)
    from themis.recording.cluster_files import read_cluster  # noqa: PLC0415 - late, for a quick --help

    return [
        {
            "name": machine.name,
            "rack": machine.rack,
            "slots": list(machine.slots),
            "gpu_model": machine.gpu_model,
            "gpu_memory": machine.gpu_memory,
        }
        for machine in read_cluster(text).machines
    ]


def _labelled(answer: Mapping[str, Any], labels: Mapping[int, str]) -> dict[str, Any]:
    """The answer with times of day as they were given."""
    cases = [
        {**case, "label": labels.get(index, case.get("label"))}
        for index, case in enumerate(answer.get("cases") or ())
    ]
    return {**answer, "cases": cases}


def _myself() -> str:
    """The owner by default; not every user name is a valid owner name."""
    from themis.core.model.ids import check_name  # noqa: PLC0415 - see above
    from themis.errors import ConfigError  # noqa: PLC0415 - only for this

    try:
        return check_name("USER", os.environ.get("USER"))
    except ConfigError:
        return "me"


def _offline(
    written: AppFile,
    path: Path,
    wishes: Mapping[str, Sequence[Any]],
    owner: str | None,
    seed: int | None,
    seeds: int,
    seconds: float,
    each: Callable[[Mapping[str, Any]], None],
) -> dict[str, Any]:
    """The same question to a file."""
    from themis.apps.whatif_cases import CaseChanges, cases_of  # noqa: PLC0415 - only for this
    from themis.core.arbiter.saved_state import arbiter_from  # noqa: PLC0415 - see above
    from themis.core.model import AppId, OwnerId  # noqa: PLC0415 - see above
    from themis.core.policies import policy  # noqa: PLC0415 - see above
    from themis.errors import ConfigError  # noqa: PLC0415 - see above
    from themis.forecast import foresee  # noqa: PLC0415 - see above
    from themis.recording.cluster_snapshots import read_snapshot  # noqa: PLC0415 - see above
    from themis.recording.codec import dumps, loads  # noqa: PLC0415 - see above
    from themis.recording.forecast_questions import ForecastQuestion  # noqa: PLC0415 - see above
    from themis.service.viewer import Viewer  # noqa: PLC0415 - see above
    from themis.sim.gc_tuning import spare_memory_checks  # noqa: PLC0415 - see above

    taken = read_snapshot(path)
    _check_policy(taken, path)
    rule = policy(taken.policy, **dict(taken.options))
    topology = arbiter_from(taken.state, rule, seed=taken.seed).world.topology
    cases = cases_of(
        written,
        CaseChanges(**{key: tuple(values) for key, values in wishes.items()}),
        name=AppId(_free(written.name, taken)),
        owner=OwnerId(owner or _myself()),
        seed=seed or 0,
        topology=topology,
    )
    told: dict[str, Any] = {}
    spare_memory_checks()
    try:
        for answer in foresee(taken, ForecastQuestion(cases, seeds, seconds), time.monotonic):
            plain: Any = loads(dumps(answer))
            told = Viewer(sealed=False).forecast(plain)
            each(told)
    except (ArithmeticError, LookupError, ValueError) as error:
        # No service writes such a state, but a file may come from anywhere.
        problem = f"a state that contradicts itself ({type(error).__name__})"
        raise ConfigError("snapshot", problem, "a file of `themis snapshot`", str(path)) from error
    return told


def _check_policy(taken: Snapshot, path: Path) -> None:
    from themis.errors import ConfigError  # noqa: PLC0415 - only for this

    if ":" in taken.policy:
        # A file is data, and reading it imports no code.
        allowed = "a policy of Themis's own: a snapshot imports no other code"
        raise ConfigError("policy", taken.policy, allowed, str(path))


def _free(wanted: str, taken: Snapshot) -> str:
    number, name, known = 1, wanted, {str(app) for app in taken.specs}
    while name in known:
        number += 1
        name = f"{wanted[:56]}-{number}"
    return name
