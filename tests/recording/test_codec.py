import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirements import examples
from themis.core.arbiter import AppRecord, BidderKind, RoundRecord, Settings
from themis.core.arbiter.alarms import Alarm
from themis.core.arbiter.commands import Ask, Command, RecordApp, Refuse, Solve
from themis.core.arbiter.events import (
    AppArrived,
    AppEnded,
    BidReceived,
    Event,
    GpusReleased,
    GpusVacated,
    MachineCordoned,
    Solved,
    Woken,
)
from themis.core.arbiter.state_parts import KINDS
from themis.core.auction.problem import Bidder, Candidate, OfferedMachine, Problem, Quota
from themis.core.auction.solution import Interval, Solution, Win
from themis.core.fairness.ideal_time import Convention
from themis.core.model import (
    AppId,
    AppSpec,
    Bid,
    Chunk,
    Constraint,
    GpuId,
    JobId,
    JobSpec,
    Machine,
    MeasuredSlowdown,
    Offer,
    OwnerId,
    Phase,
    Slowdown,
    Topology,
)
from themis.errors import InvariantError, RefusedError
from themis.recording import tags
from themis.recording.codec import (
    command_from,
    decode,
    dumps,
    event_from,
    loads,
    loads_own,
    part_from,
)

EVENTS: tuple[type[Any], ...] = get_args(Event)
COMMANDS: tuple[type[Any], ...] = get_args(Command)

# fmt: off
STORED_TAGS = {
    "app-arrived", "app-ended", "phase-started", "targets-revised", "work-added",
    "progress-measured", "app-suspended", "app-resumed", "bid-received", "solved",
    "solve-failed", "gpus-vacated", "gpus-released", "job-started", "job-stopped",
    "machine-joined", "machine-left", "machine-cordoned", "machine-uncordoned",
    "gpu-quarantined", "gpu-restored", "weight-changed", "quota-changed", "settings-changed",
    "service-restarted", "rounds-held", "woken", "ask", "solve", "assign", "end", "wake-me",
    "refuse", "record-round", "record-app", "open-beat", "open-free", "close-answers",
    "close-admission", "tell-to-leave", "take-as-empty", "check-idle",
}
# fmt: on
SLOWDOWN = Slowdown(
    (1.0, 1.05, 1.29, 1.44), (MeasuredSlowdown(1, 4, 0.97), MeasuredSlowdown(2, 2, 1.5))
)
JOBS = (
    JobSpec(JobId("a"), 0.1, 4, 2, SLOWDOWN),
    JobSpec(JobId("b"), 2, max_gpus=1),
)
APP = AppSpec(
    AppId("sweep"),
    OwnerId("ann"),
    JOBS,
    (Phase(2, 9, (7, 9)), Phase(1, 20)),
    weight=3,
    constraint=Constraint("v100", 31.5),
    budget=1e9,
)
PROBLEM = Problem(
    (OfferedMachine(0, 0, (2, 0)), OfferedMachine(3, 1, (4,))),
    (
        Bidder(AppId("a"), 1.0, 8.0, (Candidate((Chunk(1, 4), Chunk(0, 1, 3)), 0.3),)),
        Bidder(AppId("b"), 2.0, 1e-300, (), frozenset({8, 1})),
    ),
    (Quota((AppId("a"), AppId("b")), 3),),
)

CHOSEN: dict[Any, st.SearchStrategy[Any]] = {
    # Classes that check their fields: anything at random would mostly be refused.
    AppSpec: st.just(APP),
    Constraint: st.sampled_from([Constraint(), Constraint("v100", 31.5)]),
    Slowdown: st.just(SLOWDOWN),
    JobSpec: st.sampled_from(JOBS),
    Machine: st.sampled_from([Machine("m0", "r0", (2, 1)), Machine("m-1", "r9", (8,), "v100", 32)]),
    Settings: st.sampled_from(
        [Settings(), Settings(lease=99, bidder=BidderKind.APP, convention=Convention.PAPER)]
    ),
    Problem: st.just(PROBLEM),
    float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**12), 10**12),
    str: st.text(max_size=8),
    bool: st.booleans(),
    int: st.integers(),
    NoneType: st.none(),
}


def anything_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, worked out from its hints alone."""
    if hint in CHOSEN:
        return CHOSEN[hint]
    if isinstance(hint, NewType):
        return anything_of(hint.__supertype__)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        parts = {field.name: anything_of(hints[field.name]) for field in fields(hint)}
        return st.builds(hint, **parts)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return st.one_of(*(anything_of(item) for item in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(anything_of(arguments[0]), max_size=3).map(tuple)
    if origin is Sequence:
        return st.lists(anything_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(anything_of(item) for item in arguments))
    if origin is frozenset:
        # No more than one: the same set may print in two orders.
        return st.frozensets(anything_of(arguments[0]), max_size=1)
    if origin is Mapping:
        return st.dictionaries(anything_of(arguments[0]), anything_of(arguments[1]), max_size=3)
    raise NotImplementedError(f"no values of {hint}: say here how to make some")


def same_in_depth(left: object, right: object) -> bool:
    """Equality that also tells 1 from 1.0, a list from a tuple and 0.0 from -0.0."""
    return left == right and repr(left) == repr(right)


# Round trips


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_comes_back_equal(kind: type[Any]) -> None:
    @given(anything_of(kind))
    def check(event: Any) -> None:
        text = dumps(event)
        back = event_from(loads(text))
        assert same_in_depth(back, event)
        assert dumps(back) == text

    check()


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
def test_every_command_comes_back_equal(kind: type[Any]) -> None:
    @given(anything_of(kind))
    def check(command: Any) -> None:
        text = dumps(command)
        back = command_from(loads(text))
        assert same_in_depth(back, command)
        assert dumps(back) == text

    check()


@pytest.mark.parametrize("name", KINDS)
def test_every_part_of_the_state_comes_back_equal(name: str) -> None:
    @examples(20)
    @given(anything_of(KINDS[name]))
    def check(part: Any) -> None:
        text = dumps(part)
        back = part_from(f"{name}/1", loads(text))
        assert same_in_depth(back, part)
        assert dumps(back) == text

    check()


@pytest.mark.parametrize(
    ("key", "data", "says"),
    [
        pytest.param("colour/1", {}, "colour/1: there is no part", id="no such kind"),
        pytest.param("gpu/7", {"busy": 1}, "gpu/7.busy: 1 is not true or false", id="a field"),
        pytest.param(
            "alarm/3",
            {"at": 1.0, "alarm": {"type": "fire"}},
            "alarm/3.alarm: 'fire' is not one of open-beat",
            id="no such alarm",
        ),
        pytest.param(
            "alarm/3",
            {"at": 1.0, "alarm": {"type": "open-beat", "beat": "soon"}},
            "alarm/3.alarm.beat: 'soon' is not a finite number",
            id="a field of an alarm",
        ),
        pytest.param("alarm/3", {"at": 1.0, "alarm": 3}, "alarm/3.alarm: 3 is not", id="no alarm"),
    ],
)
def test_invalid_part_is_refused_with_its_key(key: str, data: object, says: str) -> None:
    with pytest.raises(RefusedError) as refused:
        part_from(key, data)
    assert says in str(refused.value)


@pytest.mark.parametrize("kind", [RoundRecord, AppRecord])
def test_records_come_back_equal(kind: type[Any]) -> None:
    @given(anything_of(kind))
    def check(record: Any) -> None:
        assert same_in_depth(decode(kind, loads(dumps(record))), record)

    check()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Topology((Machine("m0", "r0", (2,)), Machine("m1", "r0", (4, 4)))), id="topo"),
        pytest.param(Settings(lease=300, bidder=BidderKind.APP), id="settings"),
        pytest.param(APP, id="app"),
    ],
)
def test_header_round_trips(value: object) -> None:
    assert same_in_depth(decode(type(value), loads(dumps(value))), value)


@pytest.mark.parametrize("kind", EVENTS + COMMANDS, ids=lambda kind: kind.__name__)
def test_no_field_takes_the_place_of_the_tag(kind: type[Any]) -> None:
    assert tags.TAG not in {field.name for field in fields(kind)}


def test_every_event_command_and_alarm_has_a_tag_of_its_own() -> None:
    assert tags.TAG_OF.keys() == {*EVENTS, *COMMANDS, *get_args(Alarm)}
    assert len(set(tags.TAG_OF.values())) == len(tags.TAG_OF)


def test_stored_tags_do_not_change() -> None:
    # Logs and stores have them: a tag may be added, and none of these removed or renamed.
    assert set(tags.TAG_OF.values()) >= STORED_TAGS


@given(st.dictionaries(st.integers(-(10**18) + 1, 10**18 - 1), st.integers(), max_size=4))
def test_whole_numbers_as_keys_come_back_as_numbers(data: dict[int, int]) -> None:
    hint: Any = Mapping[GpuId, int]
    assert decode(hint, loads(dumps(data))) == data


# The text


def test_an_event_looks_like_this() -> None:
    assert dumps(AppEnded(3.5, AppId("sweep"))) == (
        '{"type":"app-ended","at":3.5,"app":"sweep","outcome":"finished"}'
    )


def test_sets_are_sorted_and_mappings_keep_their_order() -> None:
    text = dumps(PROBLEM)
    assert '"machines":[1,8]' in text
    wins = {AppId(name): Win(0, ()) for name in ("zoe", "ann")}
    solution = Solution(wins, 1.0, 1.0, {}, True, "greedy", 1)
    back = event_from(loads(dumps(Solved(1.0, 1, solution))))
    assert isinstance(back, Solved)
    assert list(back.solution.winners) == ["zoe", "ann"]


def test_text_is_plain_ascii_on_one_line() -> None:
    reason = 'b\u00f6s\n"\U0001f600\u2028\ud800'
    text = dumps(Refuse("x", reason))
    assert text.isascii()
    assert len(text.splitlines()) == 1
    back = command_from(loads(text))
    assert isinstance(back, Refuse)
    assert back.reason == reason


def test_a_read_only_mapping_is_written_like_any_other() -> None:
    assert dumps(MappingProxyType({"a": 1})) == '{"a":1}'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_not_written(number: float) -> None:
    with pytest.raises(InvariantError, match="Solved cannot be written"):
        dumps(Solved(0.0, 1, Solution({}, number, 0.0, {}, True, "greedy", 1)))


def test_non_plain_data_is_not_written() -> None:
    with pytest.raises(InvariantError, match="object is not plain data"):
        dumps({"a": object()})
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvariantError):
        dumps(circle)


# Refusals


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        '{"a":1} {}',
        '{"a":1,"a":1}',
        '{"a":{"b":1,"b":2}}',
        "NaN",
        "[Infinity]",
        "-Infinity",
        "[" * 100_000,
        "9" * 5000,
        "'a'",
        '"a\nb"',
    ],
)
def test_bad_json_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="JSON: "):
        loads(text)


LEASE = '{"gpu":0,"app":"a","token":1,"start":0.0,"end":1.0,"source":"auction"}'


@pytest.mark.parametrize(
    ("text", "who", "reason"),
    [
        pytest.param('{"type":"woken"}', "woken", "at is missing", id="a missing field"),
        pytest.param('{"type":"woken","at":1.0,"to":2}', "woken", "no field 'to'", id="unknown"),
        pytest.param('{"type":"woken","at":true}', "woken.at", "true is not", id="a bool"),
        pytest.param('{"type":"woken","at":"1.0"}', "woken.at", "'1.0' is not", id="a text"),
        pytest.param('{"type":"woken","at":null}', "woken.at", "null is not", id="nothing"),
        pytest.param('{"type":"woken","at":1e400}', "woken.at", "inf is not", id="too large"),
        pytest.param(
            '{"type":"woken","at":1' + "0" * 400 + "}", "woken.at", "an integer", id="a huge one"
        ),
        pytest.param('{"type":"slept","at":1.0}', "event", "of type 'slept'", id="no such type"),
        pytest.param('{"type":["woken"],"at":1}', "event", "of type 'a list", id="an odd type"),
        pytest.param('{"at":1.0}', "event", "of type null", id="no type"),
        pytest.param("[]", "event", "is not an object", id="a list"),
        pytest.param('{"type":"wake-me","at":1.0}', "event", "of type 'wake-me'", id="a command"),
        pytest.param(
            '{"type":"gpus-released","at":1,"app":"a","gpus":[0,1.0]}',
            "gpus-released.gpus[1]",
            "1.0 is not a whole number",
            id="a float for a GPU",
        ),
        pytest.param(
            '{"type":"gpus-released","at":1,"app":"a","gpus":[true]}',
            "gpus-released.gpus[0]",
            "true is not a whole number",
            id="a bool for a GPU",
        ),
        pytest.param(
            '{"type":"gpus-vacated","at":1,"gpus":[[0,1],[1]]}',
            "gpus-vacated.gpus[1]",
            "a list of 2",
            id="a short pair",
        ),
        pytest.param(
            '{"type":"gpus-released","at":1,"app":"a","gpus":{"0":1}}',
            "gpus-released.gpus",
            "is not a list",
            id="a mapping for a list",
        ),
        pytest.param(
            '{"type":"machine-cordoned","at":1,"machine":"m","drain":1}',
            "machine-cordoned.drain",
            "1 is not true or false",
            id="a number for a truth",
        ),
        pytest.param(
            '{"type":"app-suspended","at":1,"app":"a","reason":"BORED"}',
            "app-suspended.reason",
            "'BORED' is not one of INVALID_SPEC",
            id="not a member",
        ),
        pytest.param(
            '{"type":"app-suspended","at":1,"app":"a","reason":{}}',
            "app-suspended.reason",
            "is not one of",
            id="an object for a member",
        ),
        pytest.param(
            '{"type":"machine-joined","at":1,"machine":{"name":"M 0","rack":"r","slots":[1]}}',
            "machine-joined.machine",
            "a-z",
            id="a value its class refuses",
        ),
    ],
)
def test_an_event_that_does_not_fit_is_refused_with_its_place(
    text: str, who: str, reason: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        event_from(loads(text))
    assert caught.value.who == who
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "who"),
    [
        pytest.param('{"type":"woken","at":1.0}', "command", id="an event"),
        pytest.param(
            '{"type":"assign","app":"a","granted":['
            + LEASE
            + ","
            + LEASE.replace("1.0", "[]")
            + "]}",
            "assign.granted[1].end",
            id="deep inside",
        ),
        pytest.param(
            '{"type":"solve","round":1,"work":1,"deadline":1,"problem":{"machines":[],"bidders":[{'
            '"app":"a","weight":1,"rho_nothing":1,"rows":[],"machines":[3,3]}]}}',
            "solve.problem.bidders[0].machines",
            id="a set with something twice",
        ),
    ],
)
def test_a_command_that_does_not_fit_is_refused_with_its_place(text: str, who: str) -> None:
    with pytest.raises(RefusedError) as caught:
        command_from(loads(text))
    assert caught.value.who == who


@pytest.mark.parametrize("key", ["", "-", "01", "+1", "1.0", " 1", "1_0", "\u0661", "-0", "9" * 19])
def test_a_number_as_a_key_has_one_spelling(key: str) -> None:
    hint: Any = Mapping[GpuId, int]
    with pytest.raises(RefusedError):
        decode(hint, {key: 1})


def test_a_field_with_a_default_may_be_missing() -> None:
    event = event_from(loads('{"type":"machine-cordoned","at":1.0,"machine":"m0"}'))
    assert event == MachineCordoned(1.0, "m0", drain=False)


@given(st.data())
def test_nothing_is_taken_for_something_else(data: st.DataObject) -> None:
    # One value anywhere becomes another: refused, or taken exactly as it stands there.
    solution = Solution(
        {AppId("a"): Win(0, (((0, 1, 2),),))},
        1.5,
        2.0,
        {AppId("a"): Interval(0.5, 1.0)},
        True,
        "s",
        9,
    )
    original: Any = data.draw(
        st.sampled_from(
            [
                AppArrived(1.0, APP),
                BidReceived(1.0, AppId("a"), 3, Bid(AppId("a"))),
                Solved(1.0, 3, solution),
                GpusVacated(1.0, ((GpuId(1), 2),)),
                GpusReleased(1.0, AppId("a"), (GpuId(1),)),
            ]
        )
    )
    plain: Any = loads(dumps(original))
    holder, key = data.draw(st.sampled_from(list(places(plain))))
    holder[key] = data.draw(st.sampled_from([None, True, "x", [], {}, {"y": 1}, -1, 0.5, [[]]]))
    with contextlib.suppress(RefusedError):
        assert dumps(event_from(plain)) == dumps(plain)


def places(data: Any) -> Any:
    """Every place in plain data, as what holds it and its key there."""
    keys = data.keys() if isinstance(data, dict) else range(len(data))
    for key in list(keys):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from places(data[key])


def test_unreadable_type_is_an_internal_error() -> None:
    hint: Any = int | str
    with pytest.raises(InvariantError, match="cannot be read back"):
        decode(hint, 1)


def test_equal_values_of_different_types_are_distinguished() -> None:
    whole, broken = Woken(1), Woken(1.0)
    assert dumps(whole) != dumps(broken)
    assert repr(event_from(loads(dumps(whole)))) == repr(whole)


def test_a_whole_ask_and_solve_come_back_equal() -> None:
    offer = Offer(3, tuple(GpuId(i) for i in range(256)), (), (GpuId(4),))
    for command in (Ask(AppId("a"), offer, 2.5), Solve(3, PROBLEM, 10, 4.5)):
        back = command_from(loads(dumps(command)))
        assert back == command
        assert command_from(loads(dumps(replace(command, deadline=9.0)))) != command


def test_closing_an_app_keeps_the_sources_of_its_time() -> None:
    text = (
        '{"type":"record-app","record":{"app":"a","owner":"o","weight":1.0,"arrival":0.0,"end":9.0,'
        '"elapsed":9.0,"mean_contention":1.0,"mean_capacity":4.0,"budget":0.0,"phases":[[{"work":1.0,'
        '"max_gpus":2,"min_gpus":1}]],"attained":{"auction":3.5,"leftover":1.0},"outcome":"finished",'
        '"contradicted":false}}'
    )
    command = command_from(loads(text))
    assert isinstance(command, RecordApp)
    assert {source.name for source in command.record.attained} == {"AUCTION", "LEFTOVER"}
    assert dumps(command) == text


def test_jobs_that_read_the_same_are_one_and_others_are_not() -> None:
    one = {"id": "j0", "serial_iteration_time": 1.0}
    assert decode(JobSpec, dict(one)) is decode(JobSpec, dict(one))
    with pytest.raises(RefusedError, match="max_gpus"):
        decode(JobSpec, {**one, "max_gpus": True})
    assert decode(JobSpec, {**one, "max_gpus": 1}).max_gpus == 1
    with pytest.raises(RefusedError, match="max_gpus"):
        decode(JobSpec, {**one, "max_gpus": True})


def test_own_output_reads_the_same_without_strict_checks() -> None:
    text = dumps({"a": [1, 2.5, "x"], "b": {"c": None}})
    assert loads_own(text) == loads(text)
    for odd in ("{", '{"a":NaN}'):
        with pytest.raises(RefusedError):
            loads_own(odd)


def test_long_job_is_parsed_each_time() -> None:
    # Remembered, thousands of them would fill the memory.
    steps = [{"level": 0, "count": count, "value": 1.5} for count in range(2, 100)]
    long = {"id": "j0", "serial_iteration_time": 1.0, "slowdown": {"measured": steps}}
    assert decode(JobSpec, long) == decode(JobSpec, long)
    assert decode(JobSpec, long) is not decode(JobSpec, long)


def test_a_job_that_is_nested_very_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(RefusedError):
        decode(JobSpec, {"id": "j0", "serial_iteration_time": deep})
