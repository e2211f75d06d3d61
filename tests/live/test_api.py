"""The HTTP API against the real service, in one loop, without a socket."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.errors import UnavailableError
from themis.fleet.events import ReportCame
from themis.fleet.messages import Report, SlotReport, SlotState
from themis.live.access import TABLE, Access, Verb
from themis.live.api import ENDPOINTS
from themis.live.config import Limits
from themis.live.credentials import Role
from themis.live.routes.endpoints import Kind
from themis.model import Machine
from themis.records.codec import dumps
from themis.testing.http_desk import HOST, desk_of
from themis.testing.tools import examples
from themis.testing.world import simple_app


def test_people_submit_see_and_end_their_apps(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:
            assert (await desk.submit("ann", "sweep", "ann")).json() == {"app": "sweep"}
            assert (await desk.submit("ann", "sweep", "ann")).status_code == 200  # again
            assert (await desk.submit("ann", "theirs", "bob")).status_code == 403
            sheet = (await desk.call("ann", "GET", "/v1/apps/sweep")).json()
            assert sheet["owner"] == "ann"
            # Others see that there is something, and not what.
            seen = (await desk.call("bob", "GET", "/v1/apps")).json()["apps"]
            assert len(seen) == 1
            assert "sweep" not in json.dumps(seen)
            assert "ann" not in json.dumps(seen)
            assert (await desk.call("bob", "GET", "/v1/apps/sweep")).status_code == 403
            # Not theirs and not there look the same.
            one = await desk.call("bob", "GET", "/v1/apps/sweep")
            two = await desk.call("bob", "GET", "/v1/apps/nothing")
            assert (one.status_code, one.json()["reason"]) == (
                two.status_code,
                two.json()["reason"],
            )
            paused = await desk.call("ann", "POST", "/v1/apps/sweep/pause")
            assert paused.json() == {"done": True}
            sheet = (await desk.call("ann", "GET", "/v1/apps/sweep")).json()
            assert sheet["reason"] == "PAUSED_BY_USER"
            assert (await desk.call("ann", "POST", "/v1/apps/sweep/hold")).status_code == 403
            assert (await desk.call("ann", "POST", "/v1/apps/sweep/cancel")).status_code == 200
            assert (await desk.call("ann", "POST", "/v1/apps/sweep/cancel")).status_code == 404
        # How it ended is theirs to see, also after a restart, and nobody else's.
        async with desk_of(tmp_path, known=True) as desk:
            for who in ("ann", "root"):
                sheet = (await desk.call(who, "GET", "/v1/apps/sweep")).json()
                assert (sheet["app"], sheet["owner"], sheet["outcome"]) == (
                    "sweep", "ann", "cancelled",
                )  # fmt: skip
            one = await desk.call("bob", "GET", "/v1/apps/sweep")
            two = await desk.call("bob", "GET", "/v1/apps/nothing")
            assert one.status_code == two.status_code == 403
            assert one.json()["reason"] == two.json()["reason"]

    asyncio.run(work())


def test_a_key_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:
            spec = json.loads(dumps(simple_app("sweep", owner="ann")))
            for key in ("", "\ud800", "a\0b", "two\nlines"):
                body = {"spec": spec, "key": key}
                answer = await desk.call("ann", "POST", "/v1/apps", body)
                assert (answer.status_code, answer.json()["who"]) == (422, "key")
            body = {"spec": spec, "key": "sweep of today, ü"}
            assert (await desk.call("ann", "POST", "/v1/apps", body)).status_code == 200

    asyncio.run(work())


def test_operators_change_owners_machines_and_tokens_and_it_is_audited(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:
            for method, path, body in (
                ("PUT", "/v1/owners/ann/quota", {"gpus": 3}),
                ("PUT", "/v1/owners/ann/weight", {"weight": 2.5}),
                ("POST", "/v1/nodes/m0/drain", None),
                ("POST", "/v1/nodes/m0/uncordon", None),
            ):
                assert (await desk.call("ann", method, path, body)).status_code == 403
                answer = await desk.call("root", method, path, body)
                assert answer.json() == {"done": True}, answer.text
            owners = (await desk.call("root", "GET", "/v1/owners")).json()["owners"]
            assert owners == [{"owner": "ann", "quota": 3, "weight": 2.5}]
            made = await desk.call(
                "root", "POST", "/v1/tokens", {"role": "tenant", "subject": "cat", "days": 1}
            )
            desk.tokens["cat"] = made.json()["token"]
            assert (await desk.call("cat", "GET", "/v1/whoami")).json()["subject"] == "cat"
            ended = await desk.call("root", "DELETE", f"/v1/tokens/{made.json()['id']}")
            assert ended.status_code == 200
            assert (await desk.call("cat", "GET", "/v1/whoami")).status_code == 401
            rows = (await desk.call("root", "GET", "/v1/audit")).json()["rows"]
            assert {row["verb"] for row in rows} >= {
                "quota set", "weight set", "nodes drain", "token create", "token revoke"
            }  # fmt: skip
            assert "denied" in {row["outcome"] for row in rows}
            assert desk.tokens["cat"] not in json.dumps(rows)

    asyncio.run(work())


def test_what_the_service_could_not_do_is_audited_as_failed(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:

            def fail(*_: object) -> None:
                raise OSError("the disk is gone")

            carry_out, desk.service.carry_out = desk.service.carry_out, fail  # type: ignore[assignment, method-assign]  # a fault
            answer = await desk.call("root", "PUT", "/v1/owners/ann/quota", {"gpus": 3})
            assert answer.status_code == 503
            desk.service.carry_out = carry_out  # type: ignore[method-assign]  # mended
            assert (await desk.call("root", "PUT", "/v1/owners/a/quota", {})).status_code == 422
            rows = (await desk.call("root", "GET", "/v1/audit")).json()["rows"]
            assert sorted(row["outcome"] for row in rows) == ["failed", "refused"]

    asyncio.run(work())


def test_what_is_done_and_cannot_be_stored_is_told_like_any_other_error(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:

            async def fail() -> None:
                raise UnavailableError("the disk is gone")

            settled, desk.service.settled = desk.service.settled, fail  # type: ignore[method-assign]  # a fault
            answer = await desk.call("root", "POST", "/v1/login-links")
            desk.service.settled = settled  # type: ignore[method-assign]  # mended
            assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
            assert "path" not in answer.json()

    asyncio.run(work())


def test_a_machine_says_how_it_is(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:
            (line,) = (await desk.call("root", "GET", "/v1/nodes")).json()["nodes"]
            assert (line["control"], line["trouble"], line["trust_tenants"]) == (None, "", None)
            slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(8))
            report = Report("m0", 1, 1, 0, 0, slots, (), Machine("m0", "r0", (8,)), "tree", "9.9",
                            True, "/shared", "", "Stale file handle")  # fmt: skip
            desk.service.apply(ReportCame(desk.service.now(), report))
            (line,) = (await desk.call("root", "GET", "/v1/nodes")).json()["nodes"]
            assert (line["control"], line["version"], line["trust_tenants"]) == (
                "tree",
                "9.9",
                True,
            )
            assert "back as 8 x" in line["trouble"]
            assert "was 4 x" in line["trouble"]
            assert line["storage"] == {
                "sharing": "trouble", "dir": "/shared", "trouble": "Stale file handle"
            }  # fmt: skip
            seen = (await desk.call("eve", "GET", "/v1/nodes")).json()["nodes"]
            assert all(line["storage"] == {"sharing": "trouble"} for line in seen)

    asyncio.run(work())


def test_every_route_is_decided_by_the_table(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:
            roles = {"": None, "root": Role.ADMIN, "ann": Role.TENANT, "eve": Role.VIEWER,
                     "m0": Role.NODE}  # fmt: skip
            # Streams do not end by themselves: tests/live/test_board.py opens them.
            for item in (each for each in ENDPOINTS if each.kind is not Kind.STREAM):
                path = item.path.replace("{app}", "none").replace("{node}", "m9")
                path = path.replace("{owner}", "zed").replace("{index}", "0")
                path = path.replace("{round}", "1").replace("{token}", "0" * 12)
                path = path.replace("{code}", "0" * 12 + "-" + "0" * 64)
                for who, role in roles.items():
                    answer = await desk.call(who, item.method, path)
                    own, other = (TABLE[item.verb, role, own] for own in (True, False))
                    denied = answer.status_code in {401, 403}
                    assert answer.status_code < 500, (item.path, who, answer.text)
                    if own is Access.DENY and other is Access.DENY:
                        assert denied, (item.path, who)
                    if role is None and other is Access.DENY:
                        assert answer.status_code == 401
                    if Access.DENY not in {own, other} and item.handler != "login":
                        assert not denied, (item.path, who, answer.text)

    asyncio.run(work())


def test_every_verb_of_a_route_is_in_the_table_and_its_description() -> None:
    assert {item.verb for item in ENDPOINTS} <= set(Verb)
    assert len({(item.method, item.path) for item in ENDPOINTS}) == len(ENDPOINTS)


def test_a_browser_logs_in_once_by_a_link_and_writes_only_from_our_pages(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:
            path = (await desk.call("ann", "POST", "/v1/login-links")).json()["path"]
            entered = await desk.client.get(path)
            assert entered.status_code == 303
            assert "HttpOnly" in entered.headers["set-cookie"]
            assert "SameSite=Strict" in entered.headers["set-cookie"]
            again = httpx.AsyncClient(transport=desk.client._transport, base_url=f"http://{HOST}")
            assert (await again.get(path)).status_code == 401
            me = (await desk.client.get("/v1/whoami")).json()
            assert me["subject"] == "ann"
            bare = await desk.client.post("/v1/logout")
            assert bare.status_code == 403
            foreign = {"x-themis-csrf": me["csrf"], "origin": "http://evil.example"}
            assert (await desk.client.post("/v1/logout", headers=foreign)).status_code == 403
            bent = {"x-themis-csrf": me["csrf"], "host": "evil.example"}
            assert (await desk.client.post("/v1/logout", headers=bent)).status_code == 403
            fine = {"x-themis-csrf": me["csrf"], "origin": f"http://{HOST}"}
            assert (await desk.client.post("/v1/logout", headers=fine)).status_code == 200
            assert (await desk.client.get("/v1/whoami")).status_code == 401

    asyncio.run(work())


def test_wrong_credentials_are_counted_by_where_they_come_from(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path, Limits(requests=0.01, burst=4.0)) as desk:
            assert (await desk.call("root", "GET", "/v1/whoami")).status_code == 200
            right = desk.tokens["bob"]
            wrong = right[:-43] + "".join(reversed(right[-43:]))
            for shown in ({"authorization": f"Bearer {wrong}"}, {"cookie": "themis=x"}) * 2:
                answer = await desk.client.get("/v1/whoami", headers=shown)
                assert answer.status_code == 401
            for shown in ({"authorization": f"Bearer {wrong}"}, {"cookie": "themis=x"}):
                answer = await desk.client.get("/v1/whoami", headers=shown)
                assert answer.status_code == 429
                assert 1 < int(answer.headers["retry-after"]) <= 100  # One comes back in 100 s.
            # Nobody is locked out by it: bob was never there before, and has the same address.
            assert (await desk.call("bob", "GET", "/v1/whoami")).status_code == 200
            assert (await desk.call("root", "GET", "/v1/whoami")).status_code == 200

    asyncio.run(work())


def test_a_flood_of_refused_writes_leaves_few_rows_and_their_number(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:
            for _ in range(20):
                await desk.call("ann", "POST", "/v1/nodes/m0/drain")
                await desk.call("bob", "PUT", "/v1/owners/bob/quota", {"gpus": 9})
            rows = (await desk.call("root", "GET", "/v1/audit")).json()["rows"]
            assert [(row["who"].split("/")[1], row["verb"]) for row in rows] == [
                ("ann", "nodes drain"), ("bob", "quota set")
            ]  # fmt: skip
            desk.wall += 61.0
            rows = (await desk.call("root", "GET", "/v1/audit")).json()["rows"]
            assert [row["detail"] for row in rows[2:]] == ["19 more of the kind within 60 s"] * 2
            await desk.call("ann", "POST", "/v1/nodes/m0/drain")
            rows = (await desk.call("root", "GET", "/v1/audit")).json()["rows"]
            assert (len(rows), rows[-1]["at"]) == (5, desk.wall)

    asyncio.run(work())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@examples(15)
@given(data=st.data())
def test_no_request_makes_the_service_stumble(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def work(path: Path) -> None:
        async with desk_of(path) as desk:
            for _ in range(20):
                item = data.draw(
                    st.sampled_from([e for e in ENDPOINTS if e.kind is not Kind.STREAM])
                )
                parts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
                path_text = item.path
                for name in ("app", "node", "owner", "index", "round", "token", "code"):
                    if f"{{{name}}}" in path_text:
                        path_text = path_text.replace(f"{{{name}}}", data.draw(parts))
                body = data.draw(st.none() | JSON | st.binary(max_size=40))
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                if item.body is not None and data.draw(st.booleans()):
                    names = list(item.body["properties"])
                    raw = json.dumps({name: data.draw(JSON) for name in names}).encode()
                headers = {"authorization": f"Bearer {desk.tokens['root']}"}
                try:
                    answer = await desk.client.request(
                        item.method, path_text, headers=headers, content=raw
                    )
                except (httpx.InvalidURL, UnicodeEncodeError):
                    continue
                assert answer.status_code < 500, (item, raw, answer.text)

    asyncio.run(work(tmp_path_factory.mktemp("api")))


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        pytest.param({"source": "regex", "pattern": "(?P<it>"}, "metric.pattern", id="no pattern"),
        pytest.param({"source": "tensorboard", "path": "../x"}, "metric.path", id="elsewhere"),
    ],
)
def test_a_metric_that_no_node_can_read_is_refused_when_the_app_is_submitted(
    tmp_path: Path, metric: dict[str, str], told: str
) -> None:
    async def work() -> None:
        async with desk_of(tmp_path) as desk:
            app = {
                "name": "sweep",
                "command": ["train"],
                "workdir": "/",
                "stop": {"method": "none", "max_iterations": 5},
                "metric": metric,
            }
            answer = await desk.call("ann", "POST", "/v1/apps", {"app": app, "key": "k"})
            assert (answer.status_code, answer.json()["who"]) == (422, told)

    asyncio.run(work())
