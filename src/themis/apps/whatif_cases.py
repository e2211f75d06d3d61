"""The cases of a what-if: an app as it is written, and with one thing changed at a time.

    cases_of(written, Wishes(gpus=(8,), at=("+8h",)), name=..., owner=..., seed=7, topology=...)
    # as written; gpus 8; at +8h

The words are those of the flags, of the HTTP call and of the client's keyword arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from themis.apps.app_file import AppFile, StopRule, parse_app, plain_app
from themis.apps.plan import plan_app
from themis.core.model import AppId, Machine, OwnerId, Topology
from themis.core.model.ids import check_count
from themis.core.policies.registry import POLICIES
from themis.errors import ConfigError, unknown_name
from themis.recording.codec import decode
from themis.recording.forecast_questions import LONGEST_DELAY, MOST_CASES, ForecastCase
from themis.recording.written_values import seconds

AS_WRITTEN = "as written"
MOST_MACHINES = 1000
_STOP_KEYS = ("eta", "max_iterations")


@dataclass(frozen=True, slots=True)
class CaseChanges:
    """What is to be changed, each value for itself."""

    gpus: tuple[int, ...] = ()
    """GPUs that a job can use at most."""
    stop: tuple[str, ...] = ()
    """Another rule by which trials are stopped: `none`, or `halving,eta=3`."""
    at: tuple[str | float, ...] = ()
    """When it is submitted: seconds from now, or as +8h."""
    policy: tuple[str, ...] = ()
    add_machines: tuple[int | Sequence[Mapping[str, Any]], ...] = ()
    """More machines like the most common one, or these."""

    @property
    def count(self) -> int:
        """How many things are changed, each for itself."""
        return sum(len(getattr(self, each.name)) for each in fields(self))

    @property
    def of_operators(self) -> bool:
        """Whether something is changed that is the operators' to change."""
        return bool(self.policy or self.add_machines)


def wishes_from(data: Mapping[str, Any]) -> CaseChanges:
    """Wishes in plain data; keys that are none are left out.

    Raises:
        ConfigError: Something in it is not what it should be.
    """
    given = {each.name: data[each.name] for each in fields(CaseChanges) if data.get(each.name)}
    for key, values in given.items():
        if not isinstance(values, list | tuple):
            raise ConfigError(key, values, "a list")
    return CaseChanges(**{key: tuple(values) for key, values in given.items()})


def cases_of(
    app: AppFile, wishes: CaseChanges, *, name: AppId, owner: OwnerId, seed: int, topology: Topology
) -> tuple[ForecastCase, ...]:
    """The app as written, and one case for each wish.

    Raises:
        ConfigError: A wish that cannot be, or comes to something that cannot be.
    """
    # First of all: what comes of a wish may take a while to plan.
    if wishes.count >= MOST_CASES:
        raise ConfigError("what is changed", wishes.count, f"at most {MOST_CASES - 1} things")

    def case(label: str, varied: AppFile) -> ForecastCase:
        plan = plan_app(varied, name, owner, seed)
        return ForecastCase(label, plan.spec, plan.tuner)

    written = case(AS_WRITTEN, app)
    cases = [written]
    cases += [case(f"gpus {count}", _wider(app, count)) for count in wishes.gpus]
    cases += [case(f"stop {rule}", _stopped(app, rule)) for rule in wishes.stop]
    # The app is the same in these, and planned once.
    cases += [replace(written, label=f"at {_when(at)}", delay=delay_of(at)) for at in wishes.at]
    cases += [
        replace(written, label=f"policy {rule}", policy=_policy(rule)) for rule in wishes.policy
    ]
    for wish in wishes.add_machines:
        machines = more_machines(wish, topology)
        label = f"add-machines {len(machines)} ({sum(each.gpus for each in machines)} GPUs)"
        cases.append(replace(written, label=label, machines=machines))
    return tuple(cases)


def _wider(app: AppFile, count: int) -> AppFile:
    check_count("gpus", count, low=app.gpus.per_job_min, high=100_000)
    return replace(app, gpus=replace(app.gpus, per_job_max=count))


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
    """Seconds from now to a time that is given so, or as +8h.

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
    # By name only: a question imports no code.
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    return name


def more_machines(wish: object, topology: Topology) -> tuple[Machine, ...]:
    """Machines to add, with names that no other machine has.

    Raises:
        ConfigError: It is neither a number nor a list of machines, or there is none to copy.
        RefusedError: One of the list is no machine.
    """
    if isinstance(wish, int) and not isinstance(wish, bool):
        check_count("add_machines", wish, high=MOST_MACHINES)
        if not topology.machines:
            raise ConfigError("add_machines", wish, "a list of machines: there is none to copy")
        shapes = [(m.slots, m.gpu_model, m.gpu_memory) for m in topology.machines]
        common = max(
            topology.machines, key=lambda m: shapes.count((m.slots, m.gpu_model, m.gpu_memory))
        )
        wanted = [replace(common, name=f"{common.name}-more") for _ in range(wish)]
    elif isinstance(wish, list | tuple) and 1 <= len(wish) <= MOST_MACHINES:
        wanted = [
            decode(Machine, dict(each) if isinstance(each, Mapping) else each) for each in wish
        ]
    else:
        allowed = f"a number of machines or a list of them, at most {MOST_MACHINES}"
        raise ConfigError("add_machines", wish, allowed)
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
