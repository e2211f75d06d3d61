"""The cases of a what-if: an app as it is written, and with one change each.

    cases_of(written, Wishes(gpus=(8,), at=("+8h",)), name=..., owner=..., seed=7, topology=...)
    # as written; gpus 8; at +8h

The words are those of the flags, of the HTTP call and of the client's keyword arguments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from pydantic import Field

from themis.apps.app_file import AppFile, StopRule, parse_app, plain_app
from themis.apps.plan import plan_app
from themis.core.model import AppId, Machine, OwnerId, Topology
from themis.core.model.ids import check_count
from themis.core.policies.registry import POLICIES
from themis.errors import ConfigError, unknown_name
from themis.recording.codec import decode
from themis.recording.forecast_questions import LONGEST_DELAY, MOST_CASES, ForecastCase
from themis.recording.validation import KNOWN_KEYS, SHORT_TEXT, Checked, count, refused
from themis.recording.written_values import seconds

AS_WRITTEN = "as written"
MOST_MACHINES = 1000
MOST_GPUS = 100_000
_STOP_KEYS = ("eta", "max_iterations")


def _number_or(kind: type) -> Callable[[object], Any]:
    def check(value: object) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | kind):
            raise refused(value, "a number, or another form that the reference names")
        return value

    return check


_FEW = Field(max_length=MOST_CASES - 1)
_DELAY = Checked(_number_or(str), {"type": ["string", "number"]})
_MACHINES = Checked(_number_or(list), {"type": ["integer", "array"]})


@dataclass(frozen=True, slots=True)
class CaseChanges:
    """The changes to try, one case for each."""

    __pydantic_config__ = KNOWN_KEYS

    gpus: Annotated[tuple[Annotated[int, count(1, MOST_GPUS)], ...], _FEW] = ()
    """The most GPUs that a job can use."""
    stop: Annotated[tuple[Annotated[str, SHORT_TEXT], ...], _FEW] = ()
    """Another rule that stops trials: `none`, or `halving,eta=3`."""
    at: Annotated[tuple[Annotated[str | float, _DELAY], ...], _FEW] = ()
    """When it is submitted: seconds from now, or as +8h."""
    policy: Annotated[tuple[Annotated[str, SHORT_TEXT], ...], _FEW] = ()
    add_machines: Annotated[
        tuple[Annotated[int | Sequence[Mapping[str, Any]], _MACHINES], ...], _FEW
    ] = ()
    """More machines like the most common one, or these."""

    @property
    def count(self) -> int:
        """How many cases there are beside the app as written."""
        return sum(len(getattr(self, each.name)) for each in fields(CaseChanges))

    @property
    def of_operators(self) -> bool:
        """Whether it needs an operator."""
        return bool(self.policy or self.add_machines)


def cases_of(
    app: AppFile,
    changes: CaseChanges,
    *,
    name: AppId,
    owner: OwnerId,
    seed: int,
    topology: Topology,
) -> tuple[ForecastCase, ...]:
    """The app as written, and one case for each change.

    Raises:
        ConfigError: A change that cannot be, or comes to something that cannot be.
    """
    # Before any plan: each takes a while.
    if changes.count >= MOST_CASES:
        raise ConfigError("what is changed", changes.count, f"at most {MOST_CASES - 1} things")

    def case(label: str, varied: AppFile) -> ForecastCase:
        plan = plan_app(varied, name, owner, seed)
        return ForecastCase(label, plan.spec, plan.tuner)

    written = case(AS_WRITTEN, app)
    cases = [written]
    cases += [case(f"gpus {gpus}", _wider(app, gpus)) for gpus in changes.gpus]
    cases += [case(f"stop {rule}", _stopped(app, rule)) for rule in changes.stop]
    # These change nothing about the app, so its plan serves all of them.
    cases += [replace(written, label=f"at {_when(at)}", delay=delay_of(at)) for at in changes.at]
    cases += [
        replace(written, label=f"policy {rule}", policy=_policy(rule)) for rule in changes.policy
    ]
    for change in changes.add_machines:
        machines = more_machines(change, topology)
        label = f"add-machines {len(machines)} ({sum(each.gpus for each in machines)} GPUs)"
        cases.append(replace(written, label=label, machines=machines))
    return tuple(cases)


def _wider(app: AppFile, gpus: int) -> AppFile:
    check_count("gpus", gpus, low=app.gpus.per_job_min, high=MOST_GPUS)
    return replace(app, gpus=replace(app.gpus, per_job_max=gpus))


def _stopped(app: AppFile, text: str) -> AppFile:
    if not isinstance(text, str):
        raise ConfigError("stop", text, "a rule, such as none or halving,eta=3")
    rule, *options = [part.strip() for part in text.split(",")]
    rules = [str(each) for each in StopRule]
    if rule not in rules:
        raise unknown_name("stop", rule, rules)
    plain = plain_app(app)
    stop = {**plain.get("stop", {}), "method": rule}
    for option in options:
        key, _, value = option.partition("=")
        if key not in _STOP_KEYS or not value.isdecimal() or len(value) > 15:
            allowed = "eta=N or max_iterations=N after the rule, with commas between them"
            raise ConfigError("stop", option, allowed)
        stop[key] = int(value)
    return parse_app({**plain, "stop": stop})


def delay_of(at: str | float) -> float:
    """Seconds from now to a time that is given in seconds, or as +8h.

    Raises:
        ConfigError: It is neither, or too far off.
    """
    given = at.removeprefix("+") if isinstance(at, str) else at
    delay = seconds(given, "at")
    if delay > LONGEST_DELAY:
        raise ConfigError("at", at, f"at most {LONGEST_DELAY / 86400.0:g} days from now")
    return delay


def _when(at: str | float) -> str:
    return at if isinstance(at, str) else f"+{at:g}s"


def _policy(name: str) -> str:
    # By name only: a forecast imports no code of its caller.
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    return name


def more_machines(change: object, topology: Topology) -> tuple[Machine, ...]:
    """Machines to add, with names that no other machine has.

    Raises:
        ConfigError: It is neither a number nor a list of machines, or there is none to copy.
        RefusedError: One of the list is no machine.
    """
    if isinstance(change, int) and not isinstance(change, bool):
        check_count("add_machines", change, high=MOST_MACHINES)
        if not topology.machines:
            raise ConfigError("add_machines", change, "a list of machines: there is none to copy")
        shapes = [(m.slots, m.gpu_model, m.gpu_memory) for m in topology.machines]
        common = max(
            topology.machines, key=lambda m: shapes.count((m.slots, m.gpu_model, m.gpu_memory))
        )
        wanted = [replace(common, name=f"{common.name}-more") for _ in range(change)]
    elif isinstance(change, list | tuple) and 1 <= len(change) <= MOST_MACHINES:
        wanted = [
            decode(Machine, dict(each) if isinstance(each, Mapping) else each) for each in change
        ]
    else:
        allowed = f"a number of machines or a list of them, at most {MOST_MACHINES}"
        raise ConfigError("add_machines", change, allowed)
    taken = set(topology.number_of)
    made = []
    for machine in wanted:
        name, number = machine.name[:50], 1
        while name in taken:
            number += 1
            name = f"{machine.name[:50]}-{number}"
        taken.add(name)
        made.append(replace(machine, name=name))
    return tuple(made)
