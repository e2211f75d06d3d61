"""What Prometheus reads of a service."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.http_service import HttpService, http_service
from tests.support.subscribers import give
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.cluster_state import GONE
from themis.core.arbiter.leasing import CALLED_IN, DRAINING, GIVEN_BACK, LEASE_ENDS, SHARE_OVER
from themis.core.model import AppId, Bid, GpuId, Lease, LeaseSource, Offer
from themis.core.model.reasons import Reason
from themis.core.steward.events import AgentSpoke
from themis.protocol.agent_messages import BidReply
from themis.service.prometheus import cause_of

GRAFANA = Path(__file__).parents[2] / "packaging" / "grafana" / "themis.json"

Page = dict[str, dict[tuple[str, ...], float]]


async def read(http: HttpService, who: str) -> Page:
    """The samples of a page by name and the values of labels, as Prometheus understands them."""
    answer = await http.call(who, "GET", "/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    page: Page = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            page.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return page


def test_the_series_of_an_app_is_there_as_long_as_the_app(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.submit("ann", "sweep", "ann")
            page = await read(http, "root")
            assert page["themis_agent_last_seen_seconds"].keys() == {("sweep",)}
            assert page["themis_unserved_apps"]["PENDING_EVALUATION",] == 1
            await http.call("ann", "POST", "/v1/apps/sweep/cancel")
            page = await read(http, "root")
            assert "themis_agent_last_seen_seconds" not in page
            assert "themis_app_rho" not in page
            assert page["themis_unserved_apps"]["PENDING_EVALUATION",] == 0
            assert set(page["themis_gpus"]) == {
                ("free",), ("leased",), ("fencing",), ("quarantined",), ("absent",),
            }  # fmt: skip

    asyncio.run(work())


def test_gpus_of_a_machine_that_is_gone_are_absent_and_not_quarantined(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            now, feed = http.service.now(), http.service.steward._lifecycle.feed
            feed(ev.GpuQuarantined(now, GpuId(0), "it is broken"))
            feed(ev.MachineLeft(now, "m0"))
            counts = (await http.call("root", "GET", "/v1/apps")).json()["gpus"]
            assert counts == {
                "free": 0, "leased": 0, "fencing": 0, "absent": 3, "quarantined": 1,
            }  # fmt: skip
            page = await read(http, "root")
            assert {state: page["themis_gpus"][state,] for state in counts} == counts
            (node,) = (await http.call("root", "GET", "/v1/nodes")).json()["nodes"]
            assert [gpu["state"] for gpu in node["gpus"]] == ["quarantined", *["absent"] * 3]

    asyncio.run(work())


def test_apps_are_counted_by_the_reasons_that_people_see(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.call("root", "PUT", "/v1/owners/ann/quota", {"gpus": 0})
            await http.submit("ann", "sweep", "ann")
            line = (await http.call("ann", "GET", "/v1/apps/sweep")).json()
            page = await read(http, "root")
            assert page["themis_unserved_apps"][line["reason"],] == 1
            assert line["reason"] == "DEMAND_EXCEEDS_QUOTA"

    asyncio.run(work())


def test_a_viewer_sees_the_worst_rho_without_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.submit("ann", "secret-sweep", "ann")
            text = (await http.call("bob", "GET", "/metrics")).text
            assert "themis_max_rho" in text
            assert "secret" not in text
            assert "ann" not in text
            assert (await http.call("", "GET", "/metrics")).status_code == 401

    asyncio.run(work())


def test_events_are_counted(tmp_path: Path) -> None:
    lease = Lease(GpuId(0), AppId("a"), 7, 0.0, 600.0, LeaseSource.AUCTION)

    async def work() -> None:
        async with http_service(tmp_path) as http:
            metrics = http.service.metrics
            before = http.service.now()
            give(metrics, cmd.Assign(AppId("a"), revoked=(lease,), reason=SHARE_OVER))
            give(metrics, cmd.End(AppId("a"), (lease,), before + 5.0))
            give(metrics, cmd.End(AppId("a"), (lease,), before + 9.0))
            give(metrics, cmd.Assign(AppId("a"), revoked=(lease,), reason=GIVEN_BACK))
            give(metrics, cmd.Ask(AppId("a"), Offer(3, (), ()), before + 9.0))
            asked = metrics._asked[AppId("a")][1]
            bid = BidReply(3, Bid(AppId("a")))
            for _ in range(2):  # A bid that comes twice is one.
                give(metrics, event=AgentSpoke(asked + 0.25, AppId("a"), 1, bid))
            page = await read(http, "root")
            assert page["themis_preemptions_total"] == {("lease_over",): 1.0}
            assert page["themis_checkpoint_seconds_count"][()] == 1.0
            assert page["themis_checkpoint_seconds_sum"][()] == pytest.approx(5.0, abs=1.0)
            assert page["themis_bid_seconds_sum"][()] == pytest.approx(0.25)
            assert page["themis_bid_seconds_count"][()] == 1.0

    asyncio.run(work())


def test_nothing_is_kept_of_ended_leases(tmp_path: Path) -> None:
    a, b = AppId("a"), AppId("b")

    def lease(app: AppId, token: int) -> Lease:
        return Lease(GpuId(0), app, token, 0.0, 600.0, LeaseSource.AUCTION)

    async def work() -> None:
        async with http_service(tmp_path) as http:
            metrics, now = http.service.metrics, http.service.now()
            # Idle, or gone with its machine: the end is told first.
            give(metrics, cmd.End(a, (lease(a, 7),), now))
            give(metrics, cmd.Assign(a, revoked=(lease(a, 7),), reason=GONE))
            # Taken back before it began.
            give(metrics, cmd.Assign(b, revoked=(lease(b, 9),), reason=SHARE_OVER))
            give(metrics, cmd.Assign(a, revoked=(lease(a, 8),), reason=SHARE_OVER))
            give(metrics, cmd.End(a, (lease(a, 8),), now + 5.0))
            give(metrics, cmd.End(a, (lease(a, 10),), now + 9.0))
            assert not metrics._leaving
            page = await read(http, "root")
            assert page["themis_checkpoint_seconds_count"][()] == 1.0

    asyncio.run(work())


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (Reason.IDLE_RECLAIMED, "idle_reclaimed"),
        (GONE, "machine_left"),
        ("", "lease_over"),
        (LEASE_ENDS, "lease_over"),
        (SHARE_OVER, "lease_over"),
        (CALLED_IN, "called_in"),
        (DRAINING, "draining"),
        ("failed: it exited with 3", "app_over"),
        ("node: too hot <b>", "gpu_lost"),
    ],
)
def test_causes_are_few_whatever_people_write(reason: str, cause: str) -> None:
    assert cause_of(reason) == cause


def test_the_dashboard_for_grafana_asks_for_what_there_is(tmp_path: Path) -> None:
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    names = {name for expr in asked for name in re.findall(r"themis_\w+", expr)}

    async def work() -> set[str]:
        async with http_service(tmp_path) as http:
            return set(re.findall(r"themis_\w+", (await http.call("root", "GET", "/metrics")).text))

    assert names <= asyncio.run(work())
    assert len(names) >= 8
