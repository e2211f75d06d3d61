"""Rounds as they are kept and asked for: in pages, and never too many at once."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.http_service import HttpService, http_service
from themis.config.keys import CallerLimits
from themis.core.arbiter.records import AppInRound, RoundRecord
from themis.core.model import AppId, Bid, Chunk, OwnerId, Row
from themis.core.model.reasons import Reason
from themis.core.policies.base import Notes
from themis.service.persistence.round_history import RoundHistory, size_of

EMPTY = RoundRecord(1, 0.0, 1.0, "beat", 4, (), (), (), (), Notes(), {})


def of_apps(number: int, count: int) -> RoundRecord:
    """A round in which so many apps bid."""
    names = [AppId(f"app-{index}") for index in range(count)]
    lines = tuple(AppInRound(name, 0, 4, 0, Reason.NOT_IN_AUCTION) for name in names)
    rows = (Row((Chunk(0, 1),), 10.0),)
    return replace(EMPTY, round=number, apps=lines, notes=Notes(bids=tuple(
        Bid(name, rows) for name in names)))  # fmt: skip


def filled(http: HttpService, count: int) -> None:
    for number in range(1, count + 1):
        http.service.rounds.add(replace(EMPTY, round=number), {})


def with_rounds(path: Path, count: int, *queries: str) -> list[tuple[list[int], int | None]]:
    async def work() -> list[tuple[list[int], int | None]]:
        async with http_service(path) as http:
            filled(http, count)
            found = []
            for query in queries:
                answer = (await http.call("root", "GET", f"/v1/rounds{query}")).json()
                found.append(([item["round"] for item in answer["rounds"]], answer["before"]))
            return found

    return asyncio.run(work())


def test_rounds_come_in_pages_the_newest_page_first(tmp_path: Path) -> None:
    one, two, three, few = with_rounds(
        tmp_path, 120, "", "?before=71", "?before=21&limit=100", "?limit=1"
    )
    assert one == (list(range(71, 121)), 71)
    assert two == (list(range(21, 71)), 21)
    assert three == (list(range(1, 21)), None)
    assert few == ([120], 120)


def test_page_size_is_limited_whatever_the_request(tmp_path: Path) -> None:
    (page,) = with_rounds(tmp_path, 120, "?limit=100000")
    assert page == (list(range(21, 121)), 21)


@pytest.mark.parametrize("query", ["?limit=x", "?before=-1", "?limit=1e3", "?before=" + "9" * 400])
def test_an_odd_page_is_refused(tmp_path: Path, query: str) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            assert (await http.call("root", "GET", f"/v1/rounds{query}")).status_code == 422

    asyncio.run(work())


def test_without_rounds_a_page_is_empty(tmp_path: Path) -> None:
    assert with_rounds(tmp_path, 0, "", "?before=5") == [([], None)] * 2


def test_page_of_large_rounds_ends_early_with_a_cursor(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            for number in (1, 2, 3):
                http.service.rounds.add(of_apps(number, 9000), {})
            answer = (await http.call("root", "GET", "/v1/rounds")).json()
            shown = [item["round"] for item in answer["rounds"]]
            assert shown == [2, 3]
            assert answer["before"] == 2

    asyncio.run(work())


def test_others_are_answered_while_a_page_is_written(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            filled(http, 50)
            page = asyncio.create_task(http.call("root", "GET", "/v1/rounds"))
            turns = 0
            while not page.done():
                turns += 1
                await asyncio.sleep(0)
            assert turns > 50
            assert len(page.result().json()["rounds"]) == 50

    asyncio.run(work())


def test_a_page_counts_for_more_than_a_call(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path, CallerLimits(requests=0.1)) as http:
            pages = [await http.call("root", "GET", "/v1/rounds") for _ in range(20)]
            assert {page.status_code for page in pages[:18]} == {200}
            assert pages[-1].status_code == 429

    asyncio.run(work())


def test_the_api_describes_what_stands_behind_the_question_mark(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            told = (await http.call("", "GET", "/openapi.json")).json()["paths"]
            query = told["/v1/rounds"]["get"]["parameters"]
            assert [(item["name"], item["in"]) for item in query] == [
                ("before", "query"), ("limit", "query")
            ]  # fmt: skip
            assert query[1]["schema"]["maximum"] == 100

    asyncio.run(work())


def test_large_rounds_are_forgotten_earlier_but_never_the_last_two() -> None:
    large = size_of(of_apps(1, 1000))
    assert large > 100 * size_of(EMPTY)
    book = RoundHistory(most_bytes=3 * large)
    for number in range(1, 8):
        book.add(of_apps(number, 1000), {AppId("app-0"): OwnerId("ann")})
    assert book.numbers() == [5, 6, 7]
    # Small ones have room again.
    for number in range(8, 30):
        book.add(replace(EMPTY, round=number), {})
    assert book.numbers() == list(range(6, 30))
    tiny = RoundHistory(most_bytes=1)
    for number in (1, 2, 3):
        tiny.add(of_apps(number, 10), {})
    assert tiny.numbers() == [2, 3]
    assert tiny.round(3)[1] is not None


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    steps = tuple(of_apps(number, 1000) for number in range(1, 8))
    book = RoundHistory(most_bytes=3 * size_of(steps[0]))
    book.remember(steps)
    assert book.full
    assert book.numbers() == [5, 6, 7]
