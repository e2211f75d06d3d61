"""Messages and values: nothing is forgotten, nothing is changed on the way, nonsense is refused."""

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from themis.core.model import (
    AppId,
    AppSpec,
    Bid,
    Chunk,
    Constraint,
    GpuId,
    JobId,
    JobSpec,
    Lease,
    LeaseSource,
    Machine,
    MeasuredSlowdown,
    Offer,
    OwnerId,
    Phase,
    RhoClaim,
    Row,
    Slowdown,
    TableRow,
    Topology,
)
from themis.errors import RefusedError
from themis.protocol import agent_messages
from themis.protocol import node_messages as ms
from themis.protocol.node_messages import RunState, SlotState
from themis.rpc.wire import Bounds, from_bytes, from_message, themis_pb2, to_bytes, to_message
from themis.rpc.wire.convert import ONEOF, message_class

_EMPTY = (0, "", None, ())
ROOTS: tuple[type, ...] = (
    ms.NodeReport,
    ms.Orders,
    agent_messages.AgentReport,
    agent_messages.News,
    agent_messages.HostedAppsRequest,
    agent_messages.HostedApps,
    agent_messages.SubmittedAppRequest,
    agent_messages.SubmittedApp,
)

_METRICS = ms.MetricsSource("accuracy", "regex", "events", r"step (?P<it>\d+)")
_PROGRAM = ms.Program(("python", "train.py"), (("SEED", "7"),), "/work", 20.0, _METRICS)
_REACHED = agent_messages.Reached(JobId("j0"), 16.0, 0.5, "it crashed")
_SLOWDOWN = Slowdown((1.0, 1.1, 1.2, 1.3), (MeasuredSlowdown(2, 4, 0.9),))
_JOB = JobSpec(JobId("j0"), 0.5, 4, 2, _SLOWDOWN)
_SPEC = AppSpec(
    AppId("sweep"),
    OwnerId("ann"),
    (_JOB,),
    (Phase(1, 8, (9,), 2),),
    2.0,
    Constraint("v100", 8.0),
    100.0,
    3.0,
    4.0,
    True,
)
_TOPOLOGY = Topology((Machine("m0", "r0", (2, 2), "v100", 32.0),), "lab")
_LEASE = Lease(GpuId(3), AppId("sweep"), 17, 1.0, 9.5, LeaseSource.LEFTOVER)
_RUN_NEWS = agent_messages.RunNews(
    4,
    JobId("j0"),
    (GpuId(1), GpuId(2)),
    "key",
    RunState.EXITED,
    -9,
    12.5,
    "died",
    "last words",
    True,
)
_BID = Bid(
    AppId("sweep"),
    (Row((Chunk(1, 2, 5), Chunk(3, 4)), 60.0),),
    (TableRow(2, 4, 30.0),),
    _SLOWDOWN,
    RhoClaim(1.5, 0.5),
)

EXAMPLES = (
    ms.NodeReport(
        "m0",
        3,
        4,
        5,
        6,
        (ms.SlotReport(1, 7, SlotState.QUARANTINED, "it smokes"),),
        (
            ms.RunReport(
                1,
                AppId("sweep"),
                JobId("j0"),
                RunState.EXITED,
                -15,
                3.5,
                4.5,
                "gone",
                "log",
                4,
                (ms.Point(3.0, 1.5, (("loss", 0.25), ("accuracy", 0.5))),),
                True,
                70_000,
                "3 lines are no samples",
                True,
            ),
            ms.RunReport(2, AppId("sweep"), JobId("j1"), RunState.RUNNING),
        ),
        _TOPOLOGY.machines[0],
        "cgroup",
        "1.2.3",
        True,
        "/shared",
        "aa.m0.bb",
        "it is not there",
        (ms.LogPart(1, 5, 70_000, "loss: 0.3\n" * 6000, 80_000, True, True, 9),),
    ),
    ms.Orders(
        1,
        2,
        3,
        4,
        (ms.LeaseOrder(1, AppId("sweep"), OwnerId("ann"), 17, 8.25),),
        (
            ms.RunOrder(
                5,
                AppId("sweep"),
                OwnerId("ann"),
                JobId("j0"),
                (0, 1),
                (16, 17),
                _PROGRAM,
                100.0,
                True,
                1,
                2,
                "m1:29500",
                "3f09a1b2",
            ),
        ),
        ms.LeaseTerms(0.5, 5.0, 1.0),
        (8, 9),
        True,
        True,
        ((5, 12),),
        "3f09",
        (ms.LogWanted(5, AppId("sweep"), OwnerId("ann"), JobId("j0"), 70_000, 4096, True, 9),),
    ),
    agent_messages.AgentReport(
        AppId("sweep"),
        "session",
        2,
        3,
        4,
        (
            agent_messages.BidReply(6, _BID),
            agent_messages.RunRequest(JobId("j0"), (GpuId(1),), _PROGRAM, "key", 50.0),
            agent_messages.StopRequest(4, "k1"),
            agent_messages.ReleaseRequest((GpuId(2),), (7,)),
            agent_messages.PhaseStart(1, ((JobId("j0"), 16.0),)),
            agent_messages.TargetChange(((JobId("j0"), 20.0),), True),
            agent_messages.TrialParams(JobId("j0"), '{"lr": 0.1}'),
            _REACHED,
            agent_messages.EndApp("failed", JobId("j0")),
        ),
        5,
    ),
    agent_messages.News(
        1,
        2,
        3.5,
        4,
        (
            agent_messages.AgentStart(
                _SPEC,
                _TOPOLOGY,
                (_LEASE,),
                (_RUN_NEWS,),
                1,
                ((JobId("j0"), 7.0),),
                (agent_messages.TrialParams(JobId("j0"), "{}"),),
                (_REACHED,),
                (agent_messages.Curve(JobId("j0"), ((7.0, 0.25),)),),
                ((JobId("j0"), 9.0),),
                (agent_messages.JobPast(JobId("j0"), 12.5, 2),),
            ),
            agent_messages.OfferNews(Offer(7, (GpuId(0),), (GpuId(1),), (GpuId(2),)), 12.5),
            agent_messages.LeaseNews((_LEASE,), (_LEASE,), (_LEASE,), "round 7"),
            agent_messages.TopologyNews(_TOPOLOGY),
            _RUN_NEWS,
            agent_messages.ProgressNews(((JobId("j0"), 8.0),)),
            agent_messages.PointsNews(4, JobId("j0"), 7, (ms.Point(9.0, 2.5, (("loss", 0.5),)),)),
            agent_messages.RefusalNews("bid", "too late", True, "m0"),
            agent_messages.AppEndNews("finished"),
        ),
        5,
    ),
    agent_messages.HostedAppsRequest(3),
    agent_messages.HostedApps(4, (AppId("sweep"),)),
    agent_messages.SubmittedAppRequest(AppId("sweep")),
    agent_messages.SubmittedApp(AppId("sweep"), OwnerId("ann"), "{}", 7),
)


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)
def test_a_value_is_the_same_after_the_way_there_and_back(value: object) -> None:
    assert from_bytes(type(value), to_bytes(value)) == value


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)
def test_the_examples_leave_no_field_at_its_default(value: object) -> None:
    """Else a field that is lost on the way would come back right by chance."""
    untouched = set(_reached(type(value))) - {type(item) for item in _walk(value)}
    assert not untouched
    for kind in {type(item) for item in _walk(value)}:
        for field in fields(kind):
            held = [getattr(item, field.name) for item in _walk(value) if type(item) is kind]
            assert any(one not in {field.default, *_EMPTY} for one in held), (
                f"{kind.__name__}.{field.name}"
            )


def test_unset_field_takes_its_default() -> None:
    said = from_message(ms.LeaseTerms, themis_pb2.LeaseTerms(grace=4.0))
    assert said == ms.LeaseTerms(grace=4.0)


# Every field against the .proto


def _walk(value: object) -> Iterator[Any]:
    if is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in fields(value):
            yield from _walk(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _walk(item)


def _kinds(hint: Any) -> Iterator[type]:
    """All dataclasses in a type."""
    if is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for inner in get_args(hint):
        yield from _kinds(inner)


def _reached(*roots: type) -> list[type]:
    found: dict[type, None] = dict.fromkeys(roots)
    for kind in (order := list(roots)):
        for hint in get_type_hints(kind).values():
            for inner in _kinds(hint):
                if inner not in found:
                    found[inner] = None
                    order.append(inner)
    return list(found)


def _plain(hint: Any) -> Any:
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    return str if isinstance(hint, type) and issubclass(hint, Enum) else hint


_SCALARS = {"TYPE_STRING": str, "TYPE_INT64": int, "TYPE_DOUBLE": float, "TYPE_BOOL": bool}


def _check(hint: Any, field: Any, where: str) -> None:
    """The type of a field of a message is that of the dataclass's."""
    origin, arguments = get_origin(hint), get_args(hint)
    repeated = origin in {tuple, Sequence}
    if origin in {Union, UnionType} and NoneType in arguments:
        assert field.has_presence, f"{where} may be None, but cannot be missing"
        (hint,) = (item for item in arguments if item is not NoneType)
    elif repeated:
        hint = arguments[0]
    assert (repeated and not field.has_presence) or not repeated, f"{where}: is it a list?"
    if get_origin(hint) is tuple:
        inner = sorted(field.message_type.fields, key=lambda item: item.number)
        for part, item in zip(get_args(hint), inner, strict=True):
            _check(part, item, f"{where}.{item.name}")
    elif get_origin(hint) in {Union, UnionType}:
        members = field.message_type.oneofs_by_name[ONEOF].fields
        assert {item.message_type.name for item in members} == {
            kind.__name__ for kind in get_args(hint)
        }, where
        assert len(field.message_type.fields) == len(members), where
    elif is_dataclass(hint):
        assert isinstance(hint, type)
        assert field.message_type.name == hint.__name__, where
    else:
        numbers = {getattr(field, name): kind for name, kind in _SCALARS.items()}
        assert numbers[field.type] is _plain(hint), where


@pytest.mark.parametrize("kind", _reached(*ROOTS), ids=lambda kind: kind.__name__)
def test_a_message_has_the_fields_of_its_dataclass_and_no_others(kind: type) -> None:
    known = message_class(kind).DESCRIPTOR.fields_by_name
    assert sorted(known) == sorted(field.name for field in fields(kind))
    hints = get_type_hints(kind)
    for field in fields(kind):
        _check(hints[field.name], known[field.name], f"{kind.__name__}.{field.name}")
        is_list = get_origin(hints[field.name]) in {tuple, Sequence}  # one that is missing is empty
        if not is_list and field.default is not MISSING and field.default not in _EMPTY:
            assert known[field.name].has_presence, f"{field.name} could not take its default"


def test_no_message_is_there_for_nothing() -> None:
    used = {kind.__name__ for kind in _reached(*ROOTS)}
    helpers = {
        "AgentRequest",
        "NewsItem",
        "Variable",
        "JobIterations",
        "Value",
        "RunHeard",
        "CurvePoint",
    }
    assert set(themis_pb2.DESCRIPTOR.message_types_by_name) == used | helpers


def test_the_generated_code_is_that_of_the_proto() -> None:
    """Else `scripts/protos` was forgotten."""
    text = (Path(themis_pb2.__file__).parent / "themis.proto").read_text()
    written: dict[str, dict[str, int]] = {}
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        written[name] = {
            field: int(number) for field, number in re.findall(r"(\w+) = (\d+);", body)
        }
    made = {
        name: {field.name: field.number for field in message.fields}
        for name, message in themis_pb2.DESCRIPTOR.message_types_by_name.items()
    }
    assert written == made


# What is refused


def _report(**changes: Any) -> ms.NodeReport:
    return replace(EXAMPLES[0], **changes)


@pytest.mark.parametrize(
    ("message", "kind", "place", "reason"),
    [
        pytest.param(
            themis_pb2.TableRow(seconds=math.nan),
            TableRow,
            "TableRow.seconds",
            "nan, allowed: a finite number",
            id="a number that is none",
        ),
        pytest.param(
            themis_pb2.TableRow(seconds=-math.inf),
            TableRow,
            "TableRow.seconds",
            "-inf, allowed: a finite number",
            id="an infinite one",
        ),
        pytest.param(
            themis_pb2.AgentReport(
                app="a",
                requests=[themis_pb2.AgentRequest(release=themis_pb2.ReleaseRequest(gpus=[0, -1]))],
            ),
            agent_messages.AgentReport,
            "AgentReport.requests[0].release.gpus[1]",
            "-1, allowed: a whole number from 0 to 2^62",
            id="a negative id",
        ),
        pytest.param(
            themis_pb2.ReleaseRequest(gpus=range(4097)),
            agent_messages.ReleaseRequest,
            "ReleaseRequest.gpus",
            "4097, allowed: at most 4096 entries",
            id="too many rows",
        ),
        pytest.param(
            themis_pb2.RunRequest(job="j" * 256, program=themis_pb2.Program()),
            agent_messages.RunRequest,
            "RunRequest.job",
            "'256 characters', allowed: at most 255",
            id="a name that is too long",
        ),
        pytest.param(
            themis_pb2.SlotReport(state="glowing"),
            ms.SlotReport,
            "SlotReport.state",
            "'glowing', allowed: one of empty, running, stopping, quarantined",
            id="an unknown word",
        ),
        pytest.param(
            themis_pb2.AgentReport(requests=[themis_pb2.AgentRequest()]),
            agent_messages.AgentReport,
            "AgentReport.requests[0]",
            "nothing, allowed: one of bid, end, phase, reached, release, run, stop, targets, trial",
            id="nothing said",
        ),
        pytest.param(
            themis_pb2.BidReply(round=1),
            agent_messages.BidReply,
            "BidReply",
            "bid is missing",
            id="a part that is missing",
        ),
        pytest.param(
            themis_pb2.Slowdown(levels=[1.0]),
            Slowdown,
            "Slowdown.levels",
            "1, allowed: 4 entries",
            id="a list of the wrong length",
        ),
    ],
)
def test_nonsense_is_refused_with_its_place(
    message: Message, kind: type, place: str, reason: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        from_message(kind, message)
    assert (caught.value.who, caught.value.reason) == (place, reason)


def test_value_error_is_refused_with_its_place() -> None:
    message = themis_pb2.NodeReport(node="m0", machine=themis_pb2.Machine(name="M 0", slots=[1]))
    with pytest.raises(RefusedError) as caught:
        from_message(ms.NodeReport, message)
    assert caught.value.who == "NodeReport.machine"
    assert "1 to 63 of a-z" in caught.value.reason


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(_report(number=2**63), id="a number beyond 64 bits"),
        pytest.param(_report(number=10**5000), id="a number too long to print"),
        pytest.param(_report(number=True), id="a truth as a number"),
        pytest.param(_report(version="\ud800"), id="half a character"),
        pytest.param(replace(_LEASE, end=math.inf), id="for ever"),
    ],
)
def test_unencodable_message_is_refused_before_sending(value: object) -> None:
    with pytest.raises(RefusedError):
        to_message(value)


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    raw = to_bytes(EXAMPLES[0])
    with pytest.raises(RefusedError, match=f"{len(raw)} bytes, allowed: at most 10"):
        from_bytes(ms.NodeReport, raw, Bounds(size=10))


def test_a_field_of_a_later_version_is_ignored() -> None:
    later = to_bytes(agent_messages.StopRequest(4)) + b"\xa0\x06\x01"  # field 100, a varint
    assert from_bytes(agent_messages.StopRequest, later) == agent_messages.StopRequest(4)


# Fuzzing


@pytest.mark.parametrize("kind", ROOTS, ids=lambda kind: kind.__name__)
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_refusal(kind: type, raw: bytes) -> None:
    with contextlib.suppress(RefusedError):
        from_bytes(kind, raw)


@given(data=st.data(), value=st.sampled_from(EXAMPLES))
def test_a_damaged_message_is_a_value_or_a_refusal(data: st.DataObject, value: object) -> None:
    raw = bytearray(to_bytes(value))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        again = from_bytes(type(value), bytes(raw))
    except RefusedError:
        return
    assert from_bytes(type(value), to_bytes(again)) == again


@pytest.mark.parametrize(
    ("points", "why"),
    [
        pytest.param([(f"v{n}", 1.0) for n in range(9)], "at most 8", id="nine values"),
        pytest.param([("loss", 1.0), ("loss", 2.0)], "each name once", id="a name twice"),
        pytest.param([("x" * 65, 1.0)], "64 characters", id="a long name"),
        pytest.param([("", 1.0)], "64 characters", id="no name"),
        pytest.param([("loss", float("nan"))], "finite", id="no number"),
    ],
)
def test_a_point_that_is_too_much_is_refused(points: list[tuple[str, float]], why: str) -> None:
    values = [themis_pb2.Value(name=name, value=value) for name, value in points]
    message = themis_pb2.Point(iteration=1.0, values=values)
    with pytest.raises(RefusedError, match=why):
        from_message(ms.Point, message)


def test_a_report_has_so_many_points_of_a_run_and_no_more() -> None:
    points = [themis_pb2.Point(iteration=n) for n in range(ms.MOST_POINTS + 1)]
    said = themis_pb2.RunReport(run=1, app="a", job="j", state="running", points=points[1:])
    assert len(from_message(ms.RunReport, said).points) == ms.MOST_POINTS
    said.points.append(points[0])
    with pytest.raises(RefusedError, match="at most 256"):
        from_message(ms.RunReport, said)


def test_offers_that_are_made_once_for_many_apps_are_not_mixed_up() -> None:
    offers = [Offer(number, (GpuId(number),), ()) for number in range(100)]
    for offer in (*offers, *offers):
        news = agent_messages.News(1, 1, 1.0, 1, (agent_messages.OfferNews(offer, 9.0),), 1)
        assert from_bytes(agent_messages.News, to_bytes(news)) == news
