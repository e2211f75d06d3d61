"""What the service's log says of an event."""

import json
from dataclasses import replace

import pytest

from themis.core.arbiter.commands import Ask, Command, End, Solve
from themis.core.arbiter.events import AppEnded
from themis.core.model import AppId, GpuId, Lease, LeaseSource, Offer
from themis.errors import RefusedError
from themis.recording.codec import dumps
from themis.service.persistence.log_entries import body_of, commands_in, events_in
from themis.testing.solvers import random_problem

OFFER = Offer(3, tuple(map(GpuId, range(64))), (), ())
ASKS = [Ask(AppId(f"app-{number}"), OFFER, 9.0) for number in range(20)]
HOLDER = replace(OFFER, kept=(GpuId(70),), expiring=(GpuId(1), GpuId(2)))
END = End(AppId("b"), (Lease(GpuId(1), AppId("b"), 1, 0.0, 5.0, LeaseSource.AUCTION),), 5.0)

SOLVE = Solve(3, random_problem(1), 1000, 12.5)


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([], id="nothing"),
        pytest.param(ASKS[:1], id="one question"),
        pytest.param(ASKS, id="the same to all"),
        pytest.param([*ASKS[:3], replace(ASKS[3], offer=HOLDER), *ASKS[4:]], id="one holds some"),
        pytest.param([*ASKS[:3], END, *ASKS[3:]], id="something between"),
        pytest.param([*ASKS[:3], SOLVE, *ASKS[3:]], id="an auction"),
        pytest.param([*ASKS[:3], replace(ASKS[3], deadline=8.0)], id="another deadline"),
        pytest.param([*ASKS[:3], replace(ASKS[3], offer=Offer(3, (), ()))], id="another offer"),
    ],
)
def test_an_entry_reads_as_it_was_written(commands: list[Command]) -> None:
    event = AppEnded(3.0, AppId("a"))
    body = json.loads(body_of([event], commands))
    assert events_in(body) == [event]
    assert commands_in(body) == tuple(commands)


def test_an_offer_to_many_is_written_once() -> None:
    one, many = (len(body_of([], ASKS[:count])) for count in (2, 20))
    assert many - one < 18 * 30


def test_an_auction_in_the_log_of_an_older_service_is_read_too() -> None:
    body = json.loads(dumps({"events": [], "commands": [SOLVE]}))
    assert commands_in(body) == (SOLVE,)


def test_rows_without_a_shape_are_refused() -> None:
    body = json.loads(body_of([], [SOLVE]))
    body["commands"][0]["of"]["problem"]["shapes"].pop()
    with pytest.raises(RefusedError, match="its rows have no shape or no rho"):
        commands_in(body)


def test_questions_that_make_no_sense_are_refused() -> None:
    body = json.loads(body_of([], ASKS))
    body["commands"][0]["apps"][0][1] = ["one"]
    with pytest.raises(RefusedError, match=r"apps\[0\]\[1\]"):
        commands_in(body)
