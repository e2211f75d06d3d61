"""The dashboard in a real browser: every page with data and without, live, by hand and by key."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browsers import LIMIT, Live, Tab, Tabs
from tests.support.http_service import says_that_it_is_empty
from tests.support.requirements import missing
from tests.support.sample_runs import small_run
from tests.support.small_sims import sim_app, snapshot_after, workload_of
from themis.core.arbiter import Settings
from themis.core.arbiter.events import AppSuspended
from themis.core.model import AppId, Machine, Topology
from themis.core.model.reasons import Reason
from themis.core.policies import policy
from themis.dashboard.local_server import serve
from themis.dashboard.snapshot_pages import open_snapshot
from themis.recording.cluster_snapshots import write_snapshot
from themis.sim.modelled_jobs import NO_COSTS
from themis.sim.snapshot_sim import Fork

pytestmark = pytest.mark.slow

NAMES = ("vision-sweep", "speech", "ranking-of-everything", "small")
HOSTILE = (
    "<script>window.broken = 1</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(2)>',
    "../../v1/board?run=1#/x",
    "\u202egnp.exe\x1b[31m\0\ud7ff",
    "{{constructor.constructor('alert(3)')()}}",
    "x" * 5000,
    "__proto__",
)
LOOKS = [(1280, "light"), (390, "dark")]
if os.environ.get("THEMIS_SCREENSHOTS"):  # Who wants pictures wants all of them.
    LOOKS += [(1280, "dark"), (390, "light")]
PAGES = {
    "overview": "", "apps": "apps", "app": f"apps/{NAMES[2]}", "auctions": "auctions",
    "round": "auctions/3", "nodes": "nodes", "compare": "compare",
}  # fmt: skip


@pytest.fixture(scope="module")
def runs() -> Iterator[str]:
    with serve([small_run("run-a", NAMES), small_run("run-b", NAMES, 900.0)]) as url:
        yield url


@pytest.fixture
def fresh() -> Iterator[str]:
    """A server of one's own: an address lets in any number of browsers."""
    with serve([small_run("run-a", NAMES)]) as url:
        yield url


@pytest.fixture
def snapshot(tmp_path: Path) -> Iterator[str]:
    topology = Topology(tuple(Machine(f"m{number}", "r0", (2, 2)) for number in range(4)))
    apps = workload_of(*(sim_app(name, work=2e5, max_gpus=4) for name in (*NAMES, "waits")))
    fork = Fork(topology, apps, policy("equal-share"), Settings(), seed=1, costs=NO_COSTS)
    fork.advance(1000.0)
    fork.look(1000.0)
    pause = AppSuspended(1000.0, AppId("waits"), Reason.PAUSED_BY_USER)
    path = tmp_path / "monday.json"
    write_snapshot(snapshot_after(fork, apps, pause), path)
    with serve([open_snapshot(path)]) as url:
        yield url


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_page_of_a_run_is_readable_and_fits(
    tabs: Tabs, runs: str, width: int, scheme: str
) -> None:
    tab = tabs.open(width=width, scheme=scheme, loose=True)
    tab.enter(runs)
    for name, place in PAGES.items():
        tab.show(place, f"run-{name}-{width}-{scheme}")
        page = tab.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert len(page.query_selector_all("h1")) == 1
        assert page.inner_text("h1").strip()
        assert "undefined" not in tab.text()
        assert "NaN" not in tab.text()
        assert accessible(page) == [], name


def accessible(page: Any) -> list[str]:
    """What axe finds amiss."""
    try:
        from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 - it may be missing
    except ImportError:
        missing("axe-playwright-python is not installed (pip install 'themis-scheduler[dev]')")
    found = Axe().run(page).response["violations"]
    return [
        f"{item['id']}: {item['help']}: {item['nodes'][0]['html'][:200]}" for item in found
    ]  # fmt: skip


def test_the_timeline_is_drawn_in_the_colours_of_apps(tabs: Tabs, runs: str) -> None:
    tab = tabs.open()
    tab.enter(runs)
    colours = tab.page.evaluate(
        """() => {
            const canvas = document.querySelector('.lanes canvas');
            const {width, height} = canvas;
            const {data} = canvas.getContext('2d').getImageData(0, 0, width, height);
            const seen = new Set();
            for (let i = 0; i < data.length; i += 28) seen.add(data.slice(i, i + 3).join());
            return [...seen];
        }"""
    )
    for rgb in ("86,180,233", "230,159,0", "0,158,115", "204,121,167"):
        assert rgb in colours


def test_numbers_have_units_and_times_are_words(tabs: Tabs, runs: str) -> None:
    tab = tabs.open()
    tab.enter(runs)
    assert "GPU h" in tab.text()
    tab.show("auctions/3")
    text = tab.text()
    assert "after 20 min" in text
    assert "1.5 s" in text
    assert "perhaps not the best" in text
    assert "bid refused: it asks for <i>too much</i>" in text
    tab.page.click("details summary")
    assert "2 \u00d7 4 GPUs on one machine" in tab.text()
    tab.show(f"apps/{NAMES[0]}")
    assert "out of memory <b>" in tab.text()


def test_two_runs_are_compared_and_switched(tabs: Tabs, runs: str) -> None:
    tab = tabs.open()
    tab.enter(runs)
    tab.show("compare")
    assert "best" in tab.text()
    tab.page.select_option("#run", "1")
    tab.page.wait_for_function("() => location.hash.includes('run=1')")
    tab.page.wait_for_function("() => document.title.includes('run-b')")
    tab.page.click("nav a[data-page=apps]")
    tab.page.wait_for_function("() => document.title.startsWith('Apps')")
    assert "run=1" in tab.page.url


def test_hostile_names_are_only_text(tabs: Tabs) -> None:
    with serve([small_run(HOSTILE[0], HOSTILE), small_run(HOSTILE[1], HOSTILE)]) as url:
        tab = tabs.open()
        tab.enter(url)
        for name, place in {**PAGES, "app": "apps"}.items():
            tab.show(place, f"hostile-{name}")
            page = tab.page
            assert page.evaluate("window.broken") is None
            assert page.query_selector_all("main img, main script, main iframe, svg[onload]") == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280
            assert not any(sign in tab.text() for sign in "\u202e\x1b\0")
        assert HOSTILE[1] in tab.text()
        # Each has a page of its own under its own name.
        tab.show("apps")
        links = tab.page.eval_on_selector_all("tbody th a", "all => all.map(a => a.hash)")
        assert len(set(links)) == len(HOSTILE)
        for link in sorted(links)[:6]:
            tab.show(link.removeprefix("#/"))
            assert "Not found" not in tab.page.inner_text("h1")


def test_all_of_it_can_be_done_by_key(tabs: Tabs, fresh: str) -> None:
    tab = tabs.open()
    tab.enter(fresh)
    page = tab.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus(".lanes canvas")
    heard = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "+", "End", "0"):
        page.keyboard.press(key)
        heard.append(page.inner_text("#announce"))
    assert all("GPU" in text for text in heard)
    assert len(set(heard)) >= 4
    with tab.moving():
        page.keyboard.press("Enter")
    assert page.evaluate("location.hash").startswith("#/apps/")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    tab.show("apps")
    first = "tbody th a[tabindex='0']"
    page.focus(first)
    before = page.inner_text(first)
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.innerText") != before
    assert len(page.query_selector_all(first)) == 1
    page.keyboard.press("End")
    with tab.moving():
        page.keyboard.press("Enter")
    assert page.evaluate("location.hash").startswith("#/apps/")
    tab.show("nodes")
    page.focus("ul.gpus [tabindex='0']")
    page.keyboard.press("ArrowRight")
    assert "GPU 1" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    tab.show("apps")
    page.focus("thead button")
    page.keyboard.press("Enter")
    assert page.get_attribute("thead th", "aria-sort") == "ascending"
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_without_data_say_what_to_do(tabs: Tabs, empty_service: Live, width: int) -> None:
    tab = tabs.open(width=width, loose=True)
    tab.enter(empty_service.login("root"))
    hints = {
        "": "themis node", "apps": "themis submit", "auctions": "themis submit",
        "nodes": "themis node", "compare": "themis dashboard",
    }  # fmt: skip
    for place, hint in hints.items():
        tab.show(place, f"empty-{place or 'overview'}-{width}")
        assert hint in tab.text(), place
        assert accessible(tab.page) == [], place
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, place


def test_missing_pages_and_missing_logins_are_explained(tabs: Tabs, service: Live) -> None:
    tab = tabs.open()
    tab.forgiven = ("401", "404", "403")
    tab.base = service.base
    tab.page.goto(service.base + "/")
    tab.ready()
    tab.shoot("logged-out")
    assert "themis login" in tab.text()
    tab.enter(service.login("root"))
    for place in ("nothing", "apps/nobody", "auctions/99", "auctions/x", "apps/%E0%A4%A"):
        tab.show(place)
        assert tab.page.inner_text("h1") in {"Not found", "Something went wrong"}, place
        assert "TypeError" not in tab.text()


def until(tab: Tab, text: str) -> None:
    tab.page.wait_for_function(
        "text => document.body.innerText.includes(text)", arg=text, timeout=1000 * LIMIT
    )


def test_changes_arrive_by_themselves(tabs: Tabs, service: Live) -> None:
    tab = tabs.open()
    tab.enter(service.login("root"))
    until(tab, "live")
    service.submit("ann", "first-sweep")
    until(tab, "first-sweep")
    until(tab, "2 of 16")
    tab.shoot("live-overview")
    tab.show("apps")
    service.submit("bob", "second-sweep")
    until(tab, "second-sweep")
    tab.shoot("live-apps")
    tab.show("nodes", "live-nodes")
    assert tab.page.query_selector_all("a.gpu[aria-label*='first-sweep']")
    tab.show("auctions", "live-auctions")
    until(tab, "Round 1")
    tab.show("apps/first-sweep", "live-app")

    async def cancel() -> None:
        await service.http.call("ann", "POST", "/v1/apps/first-sweep/cancel")
        says_that_it_is_empty(service.http)

    service.do(cancel())
    until(tab, "cancelled")


# A source of its own in a page, with a service that answers when and what the test says. A timeline
# of n segments is those that began at 1 to n.
_PRETENDED = """async () => {
    const {Source} = await import('/static/data.js');
    const part = (first, cursor) => {
        const start = [];
        for (let at = first + 1; at <= cursor; at += 1) start.push(at);
        const zeros = start.map(() => 0);
        const closed = {gpu: zeros, app: zeros, start, end: start, source: zeros};
        const none = {gpu: [], app: [], start: [], end: [], source: []};
        return {names: ['a'], sources: ['auction'], closed, open: none, cursor};
    };
    const asked = [];
    window.fetch = (path) => path.startsWith('/v1/board/timeline')
        ? new Promise(answer => asked.push(
            cursor => answer({ok: true, json: async () => part(0, cursor)})))
        : Promise.resolve({ok: true, json: async () => ({origin: {kind: 'live'}, apps: []})});
    const opened = [];
    window.EventSource = class extends EventTarget {
        constructor(url) { super(); this.url = url; opened.push(this); }
        close() {}
    };
    const source = new Source();
    await source.load();
    const tell = (first, cursor) => opened.at(-1).dispatchEvent(new MessageEvent('change', {data:
        JSON.stringify({now: 1, wall: 1, gpus: {}, rows: [], gone: [], others: null,
                        machines: null, last_round: null, timeline: part(first, cursor)})}));
    const wanted = async (count) => {
        for (let turn = 0; asked.length < count; turn += 1) {
            if (turn > 2000) throw new Error('nobody asked');
            await new Promise(done => setTimeout(done, 10));
        }
        return asked[count - 1];
    };
    const starts = () => source.timeline.closed.start.join();
    const settled = () => new Promise(done => setTimeout(done, 50));
    window.pretended = {source, opened, tell, wanted, starts, settled};
}"""


def test_change_during_a_timeline_request_appears_once(tabs: Tabs, fresh: str) -> None:
    tab = tabs.open()
    tab.enter(fresh)
    tab.page.evaluate(_PRETENDED)
    told = tab.page.evaluate(
        """async () => {
            const {source, opened, tell, wanted, starts} = window.pretended;
            const told = [];
            source.follow();
            told.push(opened[0].url);
            const lanes = [source.lanes(), source.lanes()];
            tell(1, 2);    // older than what is answered
            tell(2, 5);    // in part
            tell(5, 6);    // newer
            (await wanted(1))(3);
            await Promise.all(lanes);
            told.push(starts());
            tell(6, 6);
            tell(4, 8);
            told.push(starts());
            return told;
        }"""
    )
    assert told == ["/v1/board/stream", "1,2,3,4,5,6", "1,2,3,4,5,6,7,8"]


def test_incomplete_timeline_is_requested_again(tabs: Tabs, fresh: str) -> None:
    tab = tabs.open()
    tab.enter(fresh)
    tab.page.evaluate(_PRETENDED)
    told = tab.page.evaluate(
        """async () => {
            const {source, opened, tell, wanted, starts, settled} = window.pretended;
            const told = [];
            const lanes = source.lanes();
            (await wanted(1))(3);
            await lanes;
            source.follow();
            told.push(opened[0].url);
            tell(5, 6);    // the fourth and fifth are missing
            (await wanted(2))(6);
            await settled();
            told.push(starts());
            source.pause();
            source.follow();
            told.push(opened[1].url);
            tell(0, 2);    // a service that began anew
            (await wanted(3))(2);
            await settled();
            told.push(starts());
            tell(2, 3);
            told.push(starts());
            return told;
        }"""
    )
    assert told == [
        "/v1/board/stream?since=3", "1,2,3,4,5,6", "/v1/board/stream?since=6", "1,2", "1,2,3",
    ]  # fmt: skip


def test_tenant_sees_no_names_of_other_tenants(tabs: Tabs, service: Live) -> None:
    service.submit("ann", "secret-sweep")
    service.submit("bob", "own-sweep")
    tab = tabs.open()
    tab.enter(service.login("bob"))
    until(tab, "own-sweep")
    until(tab, "4 of 16")
    for name, place in (
        ("overview", ""), ("apps", "apps"), ("auctions", "auctions"), ("round", "auctions/1"),
        ("nodes", "nodes"), ("app", "apps/own-sweep"),
    ):  # fmt: skip
        tab.show(place, f"tenant-{name}")
        everything = tab.page.content() + json.dumps(
            tab.page.evaluate("[themis.source.board, themis.source.timeline]")
        )
        assert "secret" not in everything
        assert "ann" not in everything.replace("announce", "").replace("annot", "")
    tab.forgiven = ("403",)
    tab.show("apps/secret-sweep")
    assert tab.page.inner_text("h1") == "This is not yours to see"


def test_a_stream_ends_with_its_tab(tabs: Tabs, service: Live) -> None:
    tab = tabs.open()
    tab.enter(service.login("root"))
    until(tab, "live")
    streams = service.http.api.streams

    async def counted(wanted: int) -> None:
        async with asyncio.timeout(LIMIT):
            while sum(streams._open.values()) != wanted:
                await asyncio.sleep(0.05)

    service.do(counted(1))
    tab.page.close()
    service.do(counted(0))


def test_browser_logs_out_and_reports_a_lost_service(tabs: Tabs, service: Live) -> None:
    one, two = tabs.open(), tabs.open()
    one.forgiven = two.forgiven = ("401", "ERR_", "503")
    one.enter(service.login("root"))
    two.enter(service.login("ann"))
    until(two, "live")
    one.page.click("text=Log out")
    until(one, "You are not logged in")
    token = service.http.tokens["ann"][len("themis_") :][:12]
    service.do(service.http.call("root", "DELETE", f"/v1/tokens/{token}"))
    until(two, "logged out")


def test_snapshot_is_shown_as_one_moment(tabs: Tabs, snapshot: str) -> None:
    tab = tabs.open(loose=True)
    tab.enter(snapshot)
    assert "snapshot" in tab.page.inner_text("header")
    hints = {
        "": "of 16", "apps": "paused", f"apps/{NAMES[0]}": "held, ends", "auctions": "no rounds",
        "nodes": "Each square is a GPU in the colour of its app", "compare": "themis dashboard",
    }  # fmt: skip
    for place, hint in hints.items():
        tab.show(place, f"snapshot-{place.partition('/')[0] or 'overview'}")
        assert hint in tab.text(), place
        assert "NaN" not in tab.text()
        assert "undefined" not in tab.text()
        assert "has held none" not in tab.text()
        assert accessible(tab.page) == [], place
