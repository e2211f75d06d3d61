"""The HTTP API against the real service, in one loop, without a socket."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.http_service import HOST, HttpService, http_service, says_that_it_is_empty
from tests.support.requirements import examples
from tests.support.scripted_world import simple_app
from themis.config.keys import CallerLimits
from themis.core.arbiter import events as ev
from themis.core.model import GpuId, Machine
from themis.core.steward.events import ReportCame
from themis.errors import UnavailableError
from themis.protocol.node_messages import NodeReport, SlotReport, SlotState
from themis.recording.codec import dumps
from themis.security.permissions import TABLE, Access, Verb
from themis.security.tokens import Role
from themis.service.http.routes.table import ROUTES
from themis.service.http.routing import AnswerKind, Route


def test_people_submit_see_and_end_their_apps(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            assert (await http.submit("ann", "sweep", "ann")).json() == {"app": "sweep"}
            assert (await http.submit("ann", "sweep", "ann")).status_code == 200  # again
            assert (await http.submit("ann", "theirs", "bob")).status_code == 403
            sheet = (await http.call("ann", "GET", "/v1/apps/sweep")).json()
            assert sheet["owner"] == "ann"
            # Others see that there is something, and not what.
            seen = (await http.call("bob", "GET", "/v1/apps")).json()["apps"]
            assert len(seen) == 1
            assert "sweep" not in json.dumps(seen)
            assert "ann" not in json.dumps(seen)
            assert (await http.call("bob", "GET", "/v1/apps/sweep")).status_code == 403
            # Not theirs and not there look the same.
            one = await http.call("bob", "GET", "/v1/apps/sweep")
            two = await http.call("bob", "GET", "/v1/apps/nothing")
            assert (one.status_code, one.json()["reason"]) == (
                two.status_code,
                two.json()["reason"],
            )
            paused = await http.call("ann", "POST", "/v1/apps/sweep/pause")
            assert paused.json() == {"done": True}
            sheet = (await http.call("ann", "GET", "/v1/apps/sweep")).json()
            assert sheet["reason"] == "PAUSED_BY_USER"
            assert (await http.call("ann", "POST", "/v1/apps/sweep/hold")).status_code == 403
            assert (await http.call("ann", "POST", "/v1/apps/sweep/cancel")).status_code == 200
            assert (await http.call("ann", "POST", "/v1/apps/sweep/cancel")).status_code == 404
        # How it ended is theirs to see, also after a restart, and nobody else's.
        async with http_service(tmp_path, known=True) as http:
            for who in ("ann", "root"):
                sheet = (await http.call(who, "GET", "/v1/apps/sweep")).json()
                assert (sheet["app"], sheet["owner"], sheet["outcome"]) == (
                    "sweep", "ann", "cancelled",
                )  # fmt: skip
            one = await http.call("bob", "GET", "/v1/apps/sweep")
            two = await http.call("bob", "GET", "/v1/apps/nothing")
            assert one.status_code == two.status_code == 403
            assert one.json()["reason"] == two.json()["reason"]

    asyncio.run(work())


def test_a_key_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            spec = json.loads(dumps(simple_app("sweep", owner="ann")))
            for key in ("", "\ud800", "a\0b", "two\nlines"):
                body = {"spec": spec, "key": key}
                answer = await http.call("ann", "POST", "/v1/apps", body)
                assert (answer.status_code, answer.json()["who"]) == (422, "key")
            body = {"spec": spec, "key": "sweep of today, ü"}
            assert (await http.call("ann", "POST", "/v1/apps", body)).status_code == 200

    asyncio.run(work())


def test_machine_gone_for_good_is_hidden_until_it_returns(tmp_path: Path) -> None:
    async def look(http: HttpService) -> tuple[list[str], int, bool]:
        nodes = (await http.call("root", "GET", "/v1/nodes")).json()["nodes"]
        counts = (await http.call("root", "GET", "/v1/apps")).json()["gpus"]
        page = (await http.call("root", "GET", "/metrics")).text
        return [n["node"] for n in nodes], counts["absent"], 'themis_gpus{state="absent"} 4' in page

    def leaves(http: HttpService) -> None:
        http.service.steward._lifecycle.feed(ev.MachineLeft(http.service.now(), "m0"))

    async def work() -> None:
        async with http_service(tmp_path) as http:
            remove = ("POST", "/v1/nodes/m0/remove")
            assert (await http.call("ann", *remove)).status_code == 403
            answer = await http.call("root", *remove)
            assert (answer.status_code, "it is heard" in answer.json()["reason"]) == (422, True)
            leaves(http)
            assert await look(http) == (["m0"], 4, True)
            assert (await http.call("root", *remove)).json() == {"done": True}
            assert await look(http) == ([], 0, False)
        async with http_service(tmp_path, known=True) as http:
            assert await look(http) == ([], 0, False)
            says_that_it_is_empty(http)
            assert await look(http) == (["m0"], 0, False)
            leaves(http)
            assert await look(http) == (["m0"], 4, True)
            rows = (await http.call("root", "GET", "/v1/audit")).json()["rows"]
            assert [(row["who"].partition("/")[0], row["outcome"]) for row in rows] == [
                ("tenant", "denied"), ("admin", "refused"), ("admin", "done")
            ]  # fmt: skip

    asyncio.run(work())


def test_gpu_is_restored_only_if_it_was_out_of_use(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            restore = ("POST", "/v1/nodes/m0/gpus/0/restore")
            says_that_it_is_empty(http)
            answer = (await http.call("root", *restore)).json()
            assert answer == {"done": True, "changed": False}
            broken = ev.GpuQuarantined(http.service.now(), GpuId(0), "ECC")
            http.service.loop.apply(broken)
            assert (await http.call("root", *restore)).json()["changed"] is True

    asyncio.run(work())


def test_refused_request_is_not_audited_as_done(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            spec = json.loads(dumps(simple_app("wide", gpus=9, min_gpus=9, owner="ann")))
            answer = await http.call("ann", "POST", "/v1/apps", {"spec": spec, "key": "wide"})
            assert answer.status_code == 422, answer.text
            rows = (await http.call("root", "GET", "/v1/audit")).json()["rows"]
            assert [(row["verb"], row["outcome"]) for row in rows] == [("submit", "refused")]

    asyncio.run(work())


@pytest.mark.parametrize("weight", [1e-320, 1e9])
def test_weights_that_cannot_be_are_refused(tmp_path: Path, weight: float) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            answer = await http.call("root", "PUT", "/v1/owners/ann/weight", {"weight": weight})
            assert answer.status_code == 422
            told = f"got {weight}, allowed: a number from 1e-06 to 1e+06"
            assert answer.json()["reason"] == told

    asyncio.run(work())


def test_operators_change_owners_machines_and_tokens_and_it_is_audited(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            for method, path, body in (
                ("PUT", "/v1/owners/ann/quota", {"gpus": 3}),
                ("PUT", "/v1/owners/ann/weight", {"weight": 2.5}),
                ("POST", "/v1/nodes/m0/cordon", None),
                ("POST", "/v1/nodes/m0/drain", None),
                ("POST", "/v1/nodes/m0/uncordon", None),
            ):
                assert (await http.call("ann", method, path, body)).status_code == 403
                answer = await http.call("root", method, path, body)
                assert answer.json() == {"done": True}, answer.text
                (node,) = (await http.call("root", "GET", "/v1/nodes")).json()["nodes"]
                assert node["cordoned"] == path.endswith(("/cordon", "/drain"))
                assert node["draining"] == path.endswith("/drain")
            owners = (await http.call("root", "GET", "/v1/owners")).json()["owners"]
            assert owners == [{"owner": "ann", "quota": 3, "weight": 2.5}]
            made = await http.call(
                "root", "POST", "/v1/tokens", {"role": "tenant", "subject": "cat", "days": 1}
            )
            http.tokens["cat"] = made.json()["token"]
            assert (await http.call("cat", "GET", "/v1/whoami")).json()["subject"] == "cat"
            ended = await http.call("root", "DELETE", f"/v1/tokens/{made.json()['id']}")
            assert ended.status_code == 200
            assert (await http.call("cat", "GET", "/v1/whoami")).status_code == 401
            rows = (await http.call("root", "GET", "/v1/audit")).json()["rows"]
            assert {row["verb"] for row in rows} >= {
                "quota set", "weight set", "nodes drain", "token create", "token revoke"
            }  # fmt: skip
            denied = {(row["verb"], row["target"]) for row in rows if row["outcome"] == "denied"}
            assert denied >= {("quota set", "ann"), ("nodes drain", "m0")}, "of what"
            assert http.tokens["cat"] not in json.dumps(rows)

    asyncio.run(work())


def test_denied_app_access_is_audited_with_the_caller(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.submit("ann", "sweep", "ann")
            assert (await http.call("bob", "POST", "/v1/apps/sweep/cancel")).status_code == 403
            assert (await http.call("root", "POST", "/v1/apps/none/cancel")).status_code == 404
            rows = (await http.call("root", "GET", "/v1/audit")).json()["rows"]
            told = {(row["target"], row["outcome"]) for row in rows if row["verb"] == "cancel"}
            assert told == {("sweep", "denied"), ("none", "refused")}

    asyncio.run(work())


def test_failed_service_operation_is_audited_as_failed(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:

            def fail(*_: object) -> None:
                raise OSError("the disk is gone")

            carry_out, http.service.loop.carry_out = http.service.loop.carry_out, fail  # type: ignore[assignment, method-assign]  # a fault
            answer = await http.call("root", "PUT", "/v1/owners/ann/quota", {"gpus": 3})
            assert answer.status_code == 503
            http.service.loop.carry_out = carry_out  # type: ignore[method-assign]  # mended
            assert (await http.call("root", "PUT", "/v1/owners/a/quota", {})).status_code == 422
            rows = (await http.call("root", "GET", "/v1/audit")).json()["rows"]
            assert sorted(row["outcome"] for row in rows) == ["failed", "refused"]

    asyncio.run(work())


def test_result_that_cannot_be_stored_is_reported_as_an_error(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:

            async def fail() -> None:
                raise UnavailableError("the disk is gone")

            settled, http.service.queue.settled = http.service.queue.settled, fail  # type: ignore[method-assign]  # a fault
            answer = await http.call("root", "POST", "/v1/login-links")
            http.service.queue.settled = settled  # type: ignore[method-assign]  # mended
            assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
            assert "path" not in answer.json()

    asyncio.run(work())


def test_a_machine_says_how_it_is(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            (line,) = (await http.call("root", "GET", "/v1/nodes")).json()["nodes"]
            assert (line["control"], line["trouble"], line["trust_tenants"]) == (None, "", None)
            slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(8))
            report = NodeReport("m0", 1, 1, 0, 0, slots, (), Machine("m0", "r0", (8,)), "tree",
                            "9.9", True, "/shared", "", "Stale file handle")  # fmt: skip
            http.service.loop.apply(ReportCame(http.service.now(), report))
            (line,) = (await http.call("root", "GET", "/v1/nodes")).json()["nodes"]
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
            seen = (await http.call("eve", "GET", "/v1/nodes")).json()["nodes"]
            assert all(line["storage"] == {"sharing": "trouble"} for line in seen)

    asyncio.run(work())


def test_engine_trouble_is_explained_in_full_to_operators_only(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path, machines=()) as http:
            answer = (await http.call("root", "GET", "/v1/nodes")).json()
            assert (answer["nodes"], answer["trouble"]) == ([], "")
            http.api.change(replace(http.api.settings, trouble=lambda: "no Ray at head:1"))
            told = {
                who: (await http.call(who, "GET", "/v1/nodes")).json()["trouble"]
                for who in ("root", "eve", "ann", "m0")
            }
            assert told.pop("root") == "no Ray at head:1"
            assert set(told.values()) == {"the engine has trouble; operators see which"}

    asyncio.run(work())


NOTHING = {
    "app": "none",
    "job": "j0",
    "node": "m9",
    "owner": "zed",
    "index": "0",
    "round": "1",
    "token": "0" * 12,
    "question": "0" * 16,
    "name": "nothing.js",
    "code": "0" * 12 + "-" + "0" * 64,
}
"""What may stand in paths and is not there."""


def filled(path: str, value: Callable[[str], str]) -> str:
    """A path with a value in the place of every name in braces."""
    return re.sub(r"\{(\w+)\}", lambda match: value(match[1]), path)


def test_every_route_is_decided_by_the_table(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            roles = {"": None, "root": Role.ADMIN, "ann": Role.TENANT, "eve": Role.VIEWER,
                     "m0": Role.NODE}  # fmt: skip
            # Streams do not end by themselves: test_live_model.py opens them.
            for item in (each for each in ROUTES if each.kind is not AnswerKind.STREAM):
                path = filled(item.path, NOTHING.__getitem__)
                for who, role in roles.items():
                    answer = await http.call(who, item.method, path)
                    own, other = (TABLE[item.verb, role, own] for own in (True, False))
                    denied = answer.status_code in {401, 403}
                    assert answer.status_code < 500, (item.path, who, answer.text)
                    if own is Access.DENY and other is Access.DENY:
                        assert denied, (item.path, who)
                    if role is None and other is Access.DENY:
                        assert answer.status_code == 401
                    if Access.DENY not in {own, other} and item.path != "/login/{code}":
                        assert not denied, (item.path, who, answer.text)

    asyncio.run(work())


def test_every_verb_of_a_route_is_in_the_table_and_its_description() -> None:
    assert {item.verb for item in ROUTES} <= set(Verb)
    assert len({(item.method, item.path) for item in ROUTES}) == len(ROUTES)


def test_browser_logs_in_once_by_link_and_writes_from_own_pages_only(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            path = (await http.call("ann", "POST", "/v1/login-links")).json()["path"]
            entered = await http.client.get(path)
            assert entered.status_code == 303
            assert "HttpOnly" in entered.headers["set-cookie"]
            assert "SameSite=Strict" in entered.headers["set-cookie"]
            again = httpx.AsyncClient(transport=http.transport, base_url=f"http://{HOST}")
            assert (await again.get(path)).status_code == 401
            me = (await http.client.get("/v1/whoami")).json()
            assert me["subject"] == "ann"
            bare = await http.client.post("/v1/logout")
            assert bare.status_code == 403
            foreign = {"x-themis-csrf": me["csrf"], "origin": "http://evil.example"}
            assert (await http.client.post("/v1/logout", headers=foreign)).status_code == 403
            bent = {"x-themis-csrf": me["csrf"], "host": "evil.example"}
            assert (await http.client.post("/v1/logout", headers=bent)).status_code == 403
            fine = {"x-themis-csrf": me["csrf"], "origin": f"http://{HOST}"}
            assert (await http.client.post("/v1/logout", headers=fine)).status_code == 200
            assert (await http.client.get("/v1/whoami")).status_code == 401

    asyncio.run(work())


def test_wrong_credentials_are_counted_by_where_they_come_from(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path, CallerLimits(requests=0.01, burst=4.0)) as http:
            assert (await http.call("root", "GET", "/v1/whoami")).status_code == 200
            right = http.tokens["bob"]
            wrong = right[:-43] + "".join(reversed(right[-43:]))
            for shown in ({"authorization": f"Bearer {wrong}"}, {"cookie": "themis=x"}) * 2:
                answer = await http.client.get("/v1/whoami", headers=shown)
                assert answer.status_code == 401
            for shown in ({"authorization": f"Bearer {wrong}"}, {"cookie": "themis=x"}):
                answer = await http.client.get("/v1/whoami", headers=shown)
                assert answer.status_code == 429
                assert 1 < int(answer.headers["retry-after"]) <= 100  # One comes back in 100 s.
            # Nobody is locked out by it: bob was never there before, and has the same address.
            assert (await http.call("bob", "GET", "/v1/whoami")).status_code == 200
            assert (await http.call("root", "GET", "/v1/whoami")).status_code == 200

    asyncio.run(work())


def test_a_flood_of_refused_writes_leaves_few_rows_and_their_number(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            for _ in range(20):
                await http.call("ann", "POST", "/v1/nodes/m0/drain")
                await http.call("bob", "PUT", "/v1/owners/bob/quota", {"gpus": 9})
            rows = (await http.call("root", "GET", "/v1/audit")).json()["rows"]
            assert [(row["who"].split("/")[1], row["verb"]) for row in rows] == [
                ("ann", "nodes drain"), ("bob", "quota set")
            ]  # fmt: skip
            http.wall += 61.0
            rows = (await http.call("root", "GET", "/v1/audit")).json()["rows"]
            assert [row["detail"] for row in rows[2:]] == ["19 more of the kind within 60 s"] * 2
            await http.call("ann", "POST", "/v1/nodes/m0/drain")
            rows = (await http.call("root", "GET", "/v1/audit")).json()["rows"]
            assert (len(rows), rows[-1]["at"]) == (5, http.wall)

    asyncio.run(work())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


THERE = {
    "app": ["sweep", "other"],
    "job": ["j0", "j1"],
    "node": ["m0"],
    "owner": ["ann"],
    "index": ["0", "3"],
    "round": ["1", "2"],
    "name": ["main.js", "style.css"],
}
"""What may stand in paths and is there."""
PART = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
# None that is long to wait for.
QUERY = st.sampled_from(["", "0", "-1", "1e-3", "64", "nan", "inf", "9" * 30, "x", "\u0664", "%00"])


def request_of(data: st.DataObject) -> tuple[Route, str]:
    """A route, and a path to it: real things or nonsense, in the path and behind it."""
    item = data.draw(
        st.sampled_from([each for each in ROUTES if each.kind is not AnswerKind.STREAM])
    )
    real = data.draw(st.booleans())

    def value(name: str) -> str:
        return data.draw(st.sampled_from(THERE[name]) if real and name in THERE else PART)

    known = [parameter.name for parameter in item.query]
    names = data.draw(st.lists(st.sampled_from([*known, "x"]), max_size=3))
    query = "&".join(f"{name}={data.draw(QUERY)}" for name in names)
    return item, filled(item.path, value) + (f"?{query}" if query else "")


@examples(15)
@given(data=st.data())
def test_no_request_makes_the_service_stumble(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def work(path: Path) -> None:
        async with http_service(path) as http:
            for number in range(20):
                for app in sorted(set(THERE["app"]) - set(http.service.steward.arbiter.world.apps)):
                    spec = json.loads(dumps(simple_app(app, gpus=1, jobs=2, owner="ann")))
                    key = f"{number}"  # A request has ended it.
                    await http.call("ann", "POST", "/v1/apps", {"spec": spec, "key": key})
                item, path_text = request_of(data)
                body = data.draw(st.none() | JSON | st.binary(max_size=40))
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                if item.body is not None and data.draw(st.booleans()):
                    names = [each.name for each in fields(item.body.kind)]
                    raw = json.dumps({name: data.draw(JSON) for name in names}).encode()
                headers = {"authorization": f"Bearer {http.tokens['root']}"}
                try:
                    answer = await http.client.request(
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
def test_metric_that_no_node_can_read_is_refused_at_submission(
    tmp_path: Path, metric: dict[str, str], told: str
) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            app = {
                "name": "sweep",
                "command": ["train"],
                "workdir": "/",
                "stop": {"method": "none", "max_iterations": 5},
                "metric": metric,
            }
            answer = await http.call("ann", "POST", "/v1/apps", {"app": app, "key": "k"})
            assert (answer.status_code, answer.json()["who"]) == (422, told)

    asyncio.run(work())
