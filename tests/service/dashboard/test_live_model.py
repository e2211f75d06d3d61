"""The live service as its pages show it: who sees what, and what changes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_service import HttpService, http_service, says_that_it_is_empty
from tests.support.scripted_world import simple_app
from tests.support.subscribers import give, rows_in_memory
from themis.config.keys import CallerLimits
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import AppInRound, RoundRecord
from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId, GpuId, Lease, LeaseSource, OwnerId
from themis.core.model.reasons import Reason
from themis.core.policies.base import Notes
from themis.dashboard.assets import POLICY
from themis.dashboard.model import ANONYMOUS
from themis.dashboard.timeline_columns import HeldSegment
from themis.recording.codec import dumps
from themis.security.tokens import Identity, Role
from themis.service.dashboard import live_model
from themis.service.dashboard.change_feed import ChangeFeed
from themis.service.dashboard.live_model import StreamState
from themis.service.dashboard.page_history import MOST_ENDED, PageHistory
from themis.service.dashboard.stored_model import open_stored_service
from themis.service.http.context import MOST_STREAMS
from themis.service.http.routes import dashboard as pages
from themis.service.persistence.round_history import Arrival
from themis.service.retained_rows import EndedApps

SECRET = ("ann-sweep", "ann-second")


def with_service(
    path: Path, work: Callable[[HttpService], Awaitable[None]], limits: CallerLimits | None = None
) -> None:
    async def go() -> None:
        async with http_service(path, limits) as http:
            await work(http)

    asyncio.run(go())


async def busy(http: HttpService) -> None:
    """Two apps of one tenant and one of another, with GPUs, and one that is over."""
    for who, name in (("ann", "ann-sweep"), ("bob", "bob-sweep"), ("ann", "ann-second")):
        assert (await http.submit(who, name, who)).status_code == 200
    assert (await http.call("ann", "POST", "/v1/apps/ann-second/cancel")).status_code == 200
    ledger = http.service.steward.arbiter.ledger
    async with asyncio.timeout(30):
        while not (ledger.holdings(AppId("ann-sweep")) and ledger.holdings(AppId("bob-sweep"))):
            await asyncio.sleep(0.05)
        while not http.service.rounds.numbers():
            await asyncio.sleep(0.05)


async def told(http: HttpService, who: str, path: str) -> Any:
    answer = await http.call(who, "GET", path)
    assert answer.status_code == 200, answer.text
    return answer.json()


class Reader:
    """Reads a stream of the service without a socket."""

    def __init__(self, http: HttpService, who: str, query: str = "") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: asyncio.Queue[bytes] = asyncio.Queue()
        self._gone = asyncio.Event()
        token = http.tokens[who].encode()
        scope = {
            "type": "http", "method": "GET", "path": "/v1/board/stream",
            "query_string": query.encode(), "headers": [(b"authorization", b"Bearer " + token)],
            "client": ("127.0.0.1", 1), "asgi": {"spec_version": "2.4", "version": "3.0"},
            "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 7421),
            "root_path": "", "raw_path": b"/v1/board/stream",
        }  # fmt: skip
        app: Any = http.transport.app
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, object]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {key.decode(): value.decode() for key, value in message["headers"]}
        elif message["body"]:
            self.parts.put_nowait(message["body"])

    async def change(self) -> Any:
        """The next message."""
        while True:
            async with asyncio.timeout(20):
                text = (await self.parts.get()).decode()
            if text.startswith("event: change\ndata: "):
                return json.loads(text.removeprefix("event: change\ndata: "))

    async def end(self) -> None:
        self._gone.set()
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


def test_admins_see_all_of_it_by_name(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        await busy(http)
        board = await told(http, "root", "/v1/board")
        rows = {row["app"]: row for row in board["apps"]}
        assert set(rows) == {"ann-sweep", "bob-sweep", "ann-second"}
        assert rows["ann-second"]["state"] == "cancelled"
        assert rows["ann-sweep"]["held"] > 0
        assert (board["viewer"]["sealed"], board["origin"]["kind"]) == (False, "live")
        (machine,) = board["machines"]
        assert {gpu["app"] for gpu in machine["gpus"]} <= {"ann-sweep", "bob-sweep", None}
        line = await told(http, "root", "/v1/board/timeline")
        assert len(line["open"]["gpu"]) == sum(board["gpus"][key] for key in ("leased", "fencing"))
        assert sum(board["gpus"].values()) == 4
        listed = await told(http, "root", "/v1/board/rounds")
        assert listed["rounds"]
        assert listed["rounds"][-1]["round"] == board["last_round"]

    with_service(tmp_path, work)


@pytest.mark.parametrize("who", ["bob", "eve"])
def test_others_are_nameless_everywhere(tmp_path: Path, who: str) -> None:
    async def work(http: HttpService) -> None:
        await busy(http)
        paths = ("/v1/board", "/v1/board/timeline", "/v1/board/rounds", "/v1/board/runs")
        answers = [await told(http, who, path) for path in paths]
        number = answers[0]["last_round"]
        answers.append(await told(http, who, f"/v1/rounds/{number}"))
        reader = Reader(http, who)
        answers.append(await reader.change())
        await reader.end()
        text = json.dumps(answers)
        for secret in (*SECRET, '"ann"'):
            assert secret not in text
        assert ANONYMOUS in text
        board = answers[0]
        others = [row for row in board["apps"] if row["sealed"]]
        # Of others there are those that go on, with what anybody may count.
        assert len(others) == (1 if who == "bob" else 2)
        for row in others:
            known = {key for key, value in row.items() if value not in (None, [], "")}
            assert known <= {"app", "owner", "held", "demand", "rho", "sealed"}
        for gpu in board["machines"][0]["gpus"]:
            if gpu["app"] == ANONYMOUS:
                assert (gpu["until"], gpu["reason"]) == (None, "")

    with_service(tmp_path, work)


def test_the_page_of_an_app_is_for_its_owner(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        await busy(http)
        for who in ("ann", "root"):
            page = await told(http, who, "/v1/board/apps/ann-sweep")
            assert page["row"]["owner"] == "ann"
            assert [job["job"] for job in page["jobs"]]
            assert {phase["state"] for phase in page["phases"]} <= {"over", "now", "to come"}
            assert all(lease["open"] for lease in page["leases"])
            over = await told(http, who, "/v1/board/apps/ann-second")
            assert over["outcome"] == "cancelled"
            assert over["reasons"][-1][1] == "ENDED"
            # As `themis explain` says it.
            said = await told(http, who, "/v1/apps/ann-sweep/explain")
            assert page["explanation"][0] == said["what"]
        for who in ("bob", "eve"):
            one = await http.call(who, "GET", "/v1/board/apps/ann-sweep")
            two = await http.call(who, "GET", "/v1/board/apps/nothing")
            assert one.status_code == two.status_code == 403
            assert one.json()["reason"] == two.json()["reason"]
        assert (await http.call("root", "GET", "/v1/board/apps/nothing")).status_code == 404

    with_service(tmp_path, work)


def test_the_page_of_an_app_is_there_before_the_list_has_it(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        await http.submit("ann", "first", "ann")
        await told(http, "root", "/v1/board")
        http.api.board._at = http.service.now() + 3600.0  # The list stays as it is.
        await http.submit("ann", "second", "ann")
        page = await told(http, "ann", "/v1/board/apps/second")
        assert (page["row"]["app"], page["row"]["owner"]) == ("second", "ann")
        # The list has the name, and it is somebody else's by now.
        await http.call("ann", "POST", "/v1/apps/first/cancel")
        assert (await told(http, "ann", "/v1/board/apps/first"))["row"]["state"] == "cancelled"
        spec = json.loads(_spec("first", "bob"))
        answer = await http.call("bob", "POST", "/v1/apps", {"key": "again", "spec": spec})
        assert answer.status_code == 200, answer.text
        assert (await told(http, "bob", "/v1/board/apps/first"))["row"]["owner"] == "bob"
        rows = (await told(http, "root", "/v1/board"))["apps"]
        assert [(row["app"], row["owner"]) for row in rows] == [("first", "ann")]

    with_service(tmp_path, work)


def test_pages_are_public_even_with_a_stale_cookie(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        for cookie in ("", "themis=" + "0" * 12 + "-" + "1" * 64):
            for path, kind in (("/", "text/html"), ("/static/main.js", "text/javascript")):
                answer = await http.client.get(path, headers={"cookie": cookie})
                assert answer.status_code == 200
                assert answer.headers["content-type"].startswith(kind)
                assert answer.headers["content-security-policy"] == POLICY
                again = await http.client.get(
                    path, headers={"if-none-match": answer.headers["etag"]}
                )
                assert (again.status_code, again.content) == (304, b"")
        for path in ("/static/nothing.js", "/static/..%2fmodel.py", "/static/"):
            assert (await http.client.get(path)).status_code == 404
        assert (await http.client.get("/v1/board")).status_code == 401
        link = (await http.call("ann", "POST", "/v1/login-links")).json()["path"]
        assert (await http.client.get(link)).headers["location"] == "/"

    with_service(tmp_path, work)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that make nobody wait."""
    monkeypatch.setattr(pages, "PACE", 0.05)
    monkeypatch.setattr(pages, "QUIET", 0.2)


@pytest.mark.usefixtures("quick")
def test_a_stream_tells_what_is_new_and_no_more(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        reader = Reader(http, "root")
        first = await reader.change()
        assert reader.headers["content-type"].startswith("text/event-stream")
        assert (first["rows"], len(first["machines"])) == ([], 1)
        await http.submit("ann", "sweep", "ann")
        while not (change := await reader.change())["rows"]:
            pass
        assert [row["app"] for row in change["rows"]] == ["sweep"]
        while change["timeline"] is None:
            change = await reader.change()
        assert change["timeline"]["names"] == ["sweep"]
        before = change["timeline"]["cursor"]
        await http.call("ann", "POST", "/v1/apps/sweep/cancel")
        says_that_it_is_empty(http)
        # Before the lease ends, the timeline may change because another one began.
        while (change := await reader.change())["timeline"] is None or (
            change["timeline"]["cursor"] == before
        ):
            pass
        assert change["timeline"]["cursor"] > before
        assert change["timeline"]["closed"]["gpu"]
        assert change["timeline"]["open"]["gpu"] == []
        await reader.end()

    with_service(tmp_path, work)


@pytest.mark.usefixtures("quick")
def test_streams_are_counted_and_end_with_their_token_and_with_the_service(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        ends = http.tokens["ann"][len("themis_") :][:12]
        one, two = Reader(http, "ann"), Reader(http, "bob")
        await one.change()
        await two.change()
        extra = Reader(http, "ann")
        async with asyncio.timeout(20):
            await extra.task
        assert extra.status == 429
        assert (await http.call("root", "DELETE", f"/v1/tokens/{ends}")).status_code == 200
        async with asyncio.timeout(20):
            await one.task
        http.service.stop()
        async with asyncio.timeout(20):
            await two.task

    with_service(tmp_path, work, CallerLimits(streams=1))


@pytest.mark.usefixtures("quick")
def test_viewer_without_known_state_gets_future_changes(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        past = http.service.past
        for number in range(50):
            held = HeldSegment(0, "old", 10.0 * number, 10.0 * number + 5.0, "auction")
            past.add(held, None)
        await http.submit("ann", "sweep", "ann")
        so_far = {}
        for query in ("", "since=48", "since=0"):
            reader = Reader(http, "root", query)
            while (change := await reader.change())["timeline"] is None:
                pass
            await reader.end()
            so_far[query] = len(change["timeline"]["closed"]["gpu"])
        assert so_far == {"": 0, "since=48": 2, "since=0": 50}

    with_service(tmp_path, work)


@pytest.mark.usefixtures("quick")
def test_one_caller_has_few_streams_whatever_else_is_allowed(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        readers = [Reader(http, "ann") for _ in range(MOST_STREAMS)]
        for reader in readers:
            await reader.change()
        extra = Reader(http, "ann")
        async with asyncio.timeout(20):
            await extra.task
        assert extra.status == 429
        other = Reader(http, "bob")
        await other.change()
        for reader in (*readers, other):
            await reader.end()

    with_service(tmp_path, work)


def test_identical_views_are_rendered_once(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        await busy(http)
        board = http.api.board
        one, two = (Identity(Role.TENANT, "ann", each) for each in ("token-1", "token-2"))
        seen, again, other = StreamState(0), StreamState(0), StreamState(0)
        board._at = float("-inf")
        first = board.change(one, seen)
        board._at = http.service.now() + 3600.0
        assert [row.app for row in first.rows] == ["ann-sweep", "ann-second"]
        board.change(two, again)
        board.change(Identity(Role.TENANT, "bob", "token-3"), other)
        assert again.visible is seen.visible
        assert "ann-sweep" not in other.visible.named
        assert board.change(Identity(Role.ADMIN, "root", "token-4"), StreamState(0)).others is None
        quiet = board.change(one, seen)
        assert (quiet.rows, quiet.gone, quiet.others, quiet.machines) == ((), (), None, None)

    with_service(tmp_path, work)


def test_rows_are_good_for_longer_when_they_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(live_model, "perf_counter", lambda: 0.2 * next(clock))

    async def work(http: HttpService) -> None:
        board = http.api.board
        await told(http, "root", "/v1/board")
        assert board._fresh == pytest.approx(4.0)
        await http.submit("ann", "sweep", "ann")
        for ago, shown in ((1.9, 0), (2.1, 1)):
            board._at = http.service.now() - ago
            assert len((await told(http, "root", "/v1/board"))["apps"]) == shown

    with_service(tmp_path, work)


def test_only_permitted_viewers_get_a_stream(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        node = Reader(http, "m0")
        async with asyncio.timeout(20):
            await node.task
        assert node.status == 403
        assert (await http.client.get("/v1/board/stream")).status_code == 401

    with_service(tmp_path, work)


# What was


def lease(app: str, gpu: int, token: int, start: float) -> Lease:
    return Lease(GpuId(gpu), AppId(app), token, start, start + 600.0, LeaseSource.AUCTION)


def over(app: str, at: float, *leases: Lease) -> cmd.End:
    return cmd.End(AppId(app), leases, at)


def record(number: int, *apps: str) -> RoundRecord:
    lines = tuple(AppInRound(AppId(app), 1, 2, 1, Reason.SERVED, float(number)) for app in apps)
    return RoundRecord(
        number, 10.0 * number, 10.0 * number, "beat", 4, (), (), (), lines, Notes(), {}
    )


def owner(app: AppId) -> OwnerId | None:
    return OwnerId(app.partition("-")[0])


def departed() -> EndedApps:
    return EndedApps(rows_in_memory(), Convention.FAIR_SHARE)


def test_segments_are_bounded_and_resume_from_a_cursor() -> None:
    past = PageHistory(departed(), owner, most=3)
    for number in range(5):
        start = 10.0 * number
        give(past, over("a-1", start + 5.0, lease("a-1", 0, number, start)))
    assert (past.closed, [item.held.start for item in past.segments()]) == (5, [20.0, 30.0, 40.0])
    assert [item.held.start for item in past.segments(4)] == [40.0]
    assert len(list(past.segments(0))) == 3
    assert list(past.segments(5)) == []
    # Told by an earlier service: everything is new.
    assert len(list(past.segments(99))) == 3
    # A lease that never began was never held.
    give(past, over("a-1", 5.0, lease("a-1", 0, 9, 7.0)))
    assert past.closed == 5


def test_history_before_a_restart_belongs_to_the_former_name_holder() -> None:
    past = PageHistory(departed(), owner)
    give(past, cmd.RecordRound(record(3, "late")))
    steps = (
        over("old", 5.0, lease("old", 0, 1, 1.0)),
        over("twice", 6.0, lease("twice", 1, 2, 1.0)),
        record(1, "twice"),
        Arrival(AppId("twice"), OwnerId("bob")),
        over("twice", 9.0, lease("twice", 1, 3, 7.0)),
        record(2, "twice", "late"),
    )
    owners = {AppId("old"): OwnerId("ann"), AppId("twice"): OwnerId("bob")}
    past.remember(steps, owners)
    found = [(item.held.app, item.owner) for item in past.segments()]
    # Nobody knows whose the name was before it arrived anew.
    assert found == [("old", "ann"), ("twice", None), ("twice", "bob")]
    assert past.histories.of("twice").rho == ((20.0, 2.0),)
    assert past.histories.of("late").rho == ((20.0, 2.0), (30.0, 3.0))
    assert past.closed == 0
    assert MOST_ENDED > 0


def test_reused_name_starts_without_history(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        await http.submit("ann", "sweep", "ann")
        await http.call("ann", "POST", "/v1/apps/sweep/cancel")
        past = http.service.past
        assert [app for app, _ in past.ended()] == ["sweep"]
        spec = http.service.steward.arbiter.world.apps.get(AppId("sweep"))
        assert spec is None
        answer = await http.call("bob", "POST", "/v1/apps", {
            "key": "again", "spec": json.loads(_spec("sweep", "bob"))})  # fmt: skip
        assert answer.status_code == 200, answer.text
        assert list(past.ended()) == []
        seen = json.dumps(await told(http, "ann", "/v1/board"))
        assert "sweep" not in seen

    with_service(tmp_path, work)


def test_submission_under_a_taken_name_keeps_its_history(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        await busy(http)
        histories = http.service.past.histories
        before = histories.of("ann-sweep")
        assert before.rho
        answer = await http.call("bob", "POST", "/v1/apps", {
            "key": "theirs", "spec": json.loads(_spec("ann-sweep", "bob"))})  # fmt: skip
        assert answer.status_code == 422, answer.text
        # A name that is free, for what never fits.
        spec = {**json.loads(_spec("ann-second", "bob"))}
        spec["jobs"] = [{**job, "max_gpus": 64, "min_gpus": 64} for job in spec["jobs"]]
        answer = await http.call("bob", "POST", "/v1/apps", {"key": "large", "spec": spec})
        assert answer.status_code == 422, answer.text
        assert histories.of("ann-sweep").rho[: len(before.rho)] == before.rho
        assert [app for app, _ in http.service.past.ended()] == ["ann-second"]

    with_service(tmp_path, work)
    recording = open_stored_service(f"sqlite:///{tmp_path / 'store.sqlite'}")
    rows = {row.app: row for row in recording.board().apps}
    assert (rows["ann-sweep"].owner, rows["ann-second"].owner) == ("ann", "ann")


def test_name_reused_after_a_restart_starts_without_history() -> None:
    past = PageHistory(departed(), owner)
    arrived = ev.AppArrived(25.0, simple_app("twice", owner="bob"))
    give(past, events=(arrived,))
    give(past, cmd.RecordRound(record(3, "twice")))
    steps = (record(1, "twice"), over("twice", 9.0, lease("twice", 1, 3, 7.0)))
    past.remember(steps, {AppId("twice"): OwnerId("bob")})
    assert past.histories.of("twice").rho == ((30.0, 3.0),)
    assert [item.owner for item in past.segments()] == [None]


def _spec(name: str, owner_: str) -> str:
    return dumps(simple_app(name, gpus=1, jobs=2, owner=owner_))


def test_turns_come_at_once_then_for_changes_and_end() -> None:
    async def work() -> None:
        watchers = ChangeFeed()
        turns = watchers.turns(pace=0.0, quiet=0.01)
        assert await anext(turns)
        assert not await anext(turns)  # nothing happened for so long
        watchers.tell()
        watchers.tell()
        assert await anext(turns)
        watchers.close()
        assert [turn async for turn in turns] == []

    asyncio.run(work())


def test_events_of_no_interest_change_nothing_but_the_count() -> None:
    past = PageHistory(departed(), owner)
    give(past, cmd.WakeMe(2.0), events=(ev.Woken(1.0),))
    assert (past.changed, past.closed) == (1, 0)


def test_a_store_tells_of_its_service_when_that_is_gone(tmp_path: Path) -> None:
    with_service(tmp_path, busy)
    recording = open_stored_service(f"sqlite:///{tmp_path / 'store.sqlite'}")
    rows = {row.app: row for row in recording.board().apps}
    assert {name: row.owner for name, row in rows.items()} == {
        "ann-sweep": "ann", "ann-second": "ann", "bob-sweep": "bob",
    }  # fmt: skip
    assert rows["ann-second"].state == "cancelled"
    page = recording.app("ann-sweep")
    assert page.jobs
    assert page.leases
    assert recording.rounds(None, 50).rounds
    assert sum(len(machine.gpus) for machine in recording.board().machines) == 4


def test_machines_that_are_gone_for_good_are_not_on_the_pages(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        http.service.steward._lifecycle.feed(ev.MachineLeft(http.service.now(), "m0"))
        board = await told(http, "root", "/v1/board")
        assert [machine["state"] for machine in board["machines"]] == ["present"]
        assert {gpu["state"] for gpu in board["machines"][0]["gpus"]} == {"absent"}
        assert (await http.call("root", "POST", "/v1/nodes/m0/remove")).status_code == 200
        http.api.board._at = float("-inf")  # Rows are good for a second.
        board = await told(http, "root", "/v1/board")
        assert (board["machines"], sum(board["gpus"].values())) == ([], 0)

    with_service(tmp_path, work)
