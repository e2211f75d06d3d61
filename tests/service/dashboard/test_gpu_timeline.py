"""The whole timeline: written beside the event loop, once for all who see the same."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_service import HttpService, http_service
from themis.config.keys import CallerLimits
from themis.core.model import OwnerId
from themis.dashboard.model import ANONYMOUS
from themis.dashboard.timeline_columns import HeldSegment
from themis.recording.codec import dumps
from themis.service.dashboard import gpu_timeline
from themis.service.dashboard.gpu_timeline import MOST_KEPT, GpuTimeline
from themis.service.dashboard.page_history import OwnedSegment
from themis.service.http.routes import dashboard as pages
from themis.service.viewer import Viewer

ALL = Viewer(sealed=False, owner=None)
PATH = "/v1/board/timeline"


def with_service(
    path: Path, work: Callable[[HttpService], Awaitable[None]], limits: CallerLimits | None = None
) -> None:
    async def go() -> None:
        async with http_service(path, limits) as http:
            await work(http)

    asyncio.run(go())


def fill(http: HttpService, count: int, owner: str = "ann") -> None:
    for number in range(count):
        start = 10.0 * number
        past = http.service.past
        past.add(
            HeldSegment(number % 4, f"{owner}-old", start, start + 5.0, "auction"), OwnerId(owner)
        )


class Watched:
    """Notes what is written, and by which thread; waits as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.viewers: list[Viewer] = []
        self.threads: set[int] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        real = gpu_timeline._columns

        def columns(
            viewer: Viewer, segments: Sequence[OwnedSegment]
        ) -> tuple[tuple[str, ...], bytes]:
            self.viewers.append(viewer)
            self.threads.add(threading.get_ident())
            assert self.go_on.wait(20)
            return real(viewer, segments)

        monkeypatch.setattr(gpu_timeline, "_columns", columns)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


async def told(http: HttpService, who: str) -> Any:
    answer = await http.call(who, "GET", PATH)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_assembled_spans_form_a_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_timeline, "_SLICE", 3)

    async def work(http: HttpService) -> None:
        await http.submit("bob", "sweep", "bob")
        for count, viewer in ((0, ALL), (7, ALL), (3, Viewer(sealed=True, owner=OwnerId("bob")))):
            fill(http, count)
            timeline = GpuTimeline(http.service)
            assert json.loads(await timeline.as_json(viewer)) == json.loads(
                dumps(timeline.since(viewer, 0))
            )

    with_service(tmp_path, work)


def test_the_past_is_written_beside_the_loop_and_once(tmp_path: Path, watched: Watched) -> None:
    async def work(http: HttpService) -> None:
        fill(http, 5)
        watched.go_on.clear()
        asked = [asyncio.create_task(told(http, "ann")) for _ in range(4)]
        asked.append(asyncio.create_task(told(http, "bob")))
        # The loop goes on meanwhile, and who goes away takes nothing from the others.
        assert (await http.call("root", "GET", "/v1/board")).status_code == 200
        asked.pop(0).cancel()
        watched.go_on.set()
        answers = await asyncio.gather(*asked)
        assert [answer["names"] for answer in answers] == [["ann-old"]] * 3 + [[ANONYMOUS]]
        assert threading.get_ident() not in watched.threads
        await told(http, "ann")
        assert sorted(str(viewer.owner) for viewer in watched.viewers) == ["ann", "bob"]
        fill(http, 1)
        assert (await told(http, "ann"))["cursor"] == 6
        assert len(watched.viewers) == 3

    with_service(tmp_path, work)


def test_spans_loaded_later_are_included(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        fill(http, 2)
        before = await told(http, "root")
        past = http.service.past
        past._segments.appendleft(next(past.segments()))
        past._segments[0] = OwnedSegment(past._segments[0].held, None)
        after = await told(http, "root")
        assert [len(each["closed"]["gpu"]) for each in (before, after)] == [2, 3]
        assert before["cursor"] == after["cursor"]

    with_service(tmp_path, work)


def test_few_written_pasts_are_kept(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        fill(http, 1)
        timeline = GpuTimeline(http.service)
        for number in range(MOST_KEPT + 3):
            await timeline.as_json(Viewer(sealed=True, owner=OwnerId(f"owner-{number}")))
        assert len(timeline._kept) == MOST_KEPT

    with_service(tmp_path, work)


def test_a_long_timeline_counts_as_many_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_SEGMENTS_AS_A_REQUEST", 1.0)

    async def work(http: HttpService) -> None:
        http.service.now = lambda: 5.0  # type: ignore[method-assign]  # no call comes back
        fill(http, 15)
        codes = [(await http.call("ann", "GET", PATH)).status_code for _ in range(2)]
        assert codes == [200, 429]
        assert (await http.call("ann", "GET", "/v1/board")).status_code == 200

    with_service(tmp_path, work, CallerLimits(burst=20.0, requests=0.1))
