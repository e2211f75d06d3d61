"""App files at the door of the service: what could never run is refused before it waits."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.http_service import HttpService, http_service
from themis.apps.app_file import LONGEST_GRACE
from themis.config.keys import CallerLimits
from themis.core.arbiter import events as ev
from themis.core.model import GpuId, Machine
from themis.integrations import optuna_search
from themis.integrations.ray_tune.script_app import ScriptSettings, TuneTerms, app_keys
from themis.service import program_checks

FILE: dict[str, Any] = {
    "name": "sweep",
    "command": ["train", "{lr}"],
    "workdir": "/",
    "search": {"n": 2, "params": {"lr": [0.1, 0.2]}},
    "stop": {"max_iterations": 10},
}


def with_service(path: Path, work: Callable[[HttpService], Awaitable[None]]) -> None:
    async def run() -> None:
        async with http_service(path) as http:
            await work(http)

    asyncio.run(run())


async def submit(http: HttpService, key: str = "k", **change: Any) -> tuple[int, dict[str, Any]]:
    body = {"app": FILE | change, "key": key}
    answer = await http.call("ann", "POST", "/v1/apps", body)
    dry = await http.call("ann", "POST", "/v1/apps", body | {"dry_run": True})
    assert dry.status_code == answer.status_code, "a dry run says the same"
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"workdir": "code"}, "an absolute path", id="a folder of no machine"),
        pytest.param({"checkpoint": {"grace": "2h"}}, "from 1s to 1h", id="too long a grace"),
        pytest.param(
            {"env": {f"V{n}": "x" * 30_000 for n in range(5)}}, "131072", id="much environment"
        ),
        pytest.param(
            {"search": {"n": 1, "params": {"lr": ["x" * 1000]}}, "command": ["x", "{lr}" * 140]},
            "131072",
            id="parameters that make it long",
        ),
    ],
)
def test_app_that_no_node_could_run_is_refused_at_once(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    async def work(http: HttpService) -> None:
        code, answer = await submit(http, **change)
        assert code == 422
        assert reason in answer["reason"]

    with_service(tmp_path, work)


def test_a_name_under_which_something_is_still_alive_gets_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(http: HttpService) -> None:
        left = {7: SimpleNamespace(app="sweep")}
        monkeypatch.setattr(type(http.service.steward), "runs", property(lambda _: left))
        assert http.service.submissions.free_name("sweep") == "sweep-2"
        assert http.service.submissions.free_name("other") == "other"
        monkeypatch.undo()

    with_service(tmp_path, work)


def test_a_file_may_ask_for_the_grace_that_nodes_give() -> None:
    assert LONGEST_GRACE == program_checks.LONGEST_GRACE


@pytest.mark.parametrize("able", [True, False], ids=["with optuna", "without"])
def test_optuna_is_refused_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    async def work(http: HttpService) -> None:
        code, answer = await submit(http, search=FILE["search"] | {"method": "optuna"})
        if able:
            assert (code, answer["app"]) == (200, "sweep")
        else:
            assert code == 422
            assert "pip install" in answer["reason"]

    monkeypatch.setattr(optuna_search, "find_spec", lambda name: object() if able else None)
    with_service(tmp_path, work)


@pytest.mark.parametrize(
    "gpus", [{"per_job_min": 5, "per_job_max": 5}, {"model": "a100"}, {"memory": "9000G"}]
)
def test_impossible_app_is_refused_even_in_a_dry_run(tmp_path: Path, gpus: dict[str, Any]) -> None:
    async def work(http: HttpService) -> None:
        code, answer = await submit(http, gpus=gpus)
        assert code == 422
        assert "that match" in answer["reason"]

    with_service(tmp_path, work)


@pytest.mark.parametrize(
    ("quota", "broken", "reason", "why"),
    [
        (1, 0, "DEMAND_EXCEEDS_QUOTA", "the quota of its owner is 1"),
        (None, 3, "DEMAND_EXCEEDS_CLUSTER", "the cluster has 1"),
        (2, 2, None, ""),
    ],
)
def test_an_app_that_cannot_be_served_now_gets_a_warning(
    tmp_path: Path, quota: int | None, broken: int, reason: str | None, why: str
) -> None:
    async def work(http: HttpService) -> None:
        if quota is not None:
            await http.call("root", "PUT", "/v1/owners/ann/quota", {"gpus": quota})
        for gpu in range(broken):
            event = ev.GpuQuarantined(http.service.now(), GpuId(gpu), "it is broken")
            http.service.loop.apply(event)
        body = {"app": FILE | {"gpus": {"per_job_min": 2, "per_job_max": 4}}, "key": "k"}
        for change in ({"dry_run": True}, {}):
            answer = (await http.call("ann", "POST", "/v1/apps", body | change)).json()
            told = [(line["reason"], why in line["why"]) for line in answer["warnings"]]
            assert told == ([(reason, True)] if reason else [])
        line = (await http.call("ann", "GET", "/v1/apps/sweep")).json()
        assert (line["reason"] == reason) == (reason is not None), "the same later"

    with_service(tmp_path, work)


def test_a_dry_run_says_that_jobs_need_several_machines(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        steward = http.service.steward
        steward._lifecycle.feed(ev.MachineJoined(http.service.now(), Machine("m1", "r0", (2,))))
        body = {"app": FILE | {"gpus": {"per_job_min": 6, "per_job_max": 6}}, "key": "k"}
        answer = (await http.call("ann", "POST", "/v1/apps", body | {"dry_run": True})).json()
        (line,) = answer["warnings"]
        assert line["reason"] is None
        assert "at least 6 GPUs and the largest machine has 4" in line["what"]

    with_service(tmp_path, work)


def test_a_dry_run_is_refused_what_would_be_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path, CallerLimits(apps=1)) as http:
            body = {"app": FILE, "key": "a"}
            assert (await http.call("ann", "POST", "/v1/apps", body)).status_code == 200
            more = body | {"key": "b", "dry_run": True}
            answer = await http.call("ann", "POST", "/v1/apps", more)
            assert answer.status_code == 422
            assert "1 apps are not over" in answer.json()["reason"]

    asyncio.run(work())


def test_only_an_ended_app_is_retried(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        assert (await submit(http))[0] == 200
        early = await http.call("ann", "POST", "/v1/apps/sweep/retry")
        assert early.status_code == 422
        assert "has not ended" in early.json()["reason"]
        assert (await http.call("ann", "POST", "/v1/apps/sweep/cancel")).status_code == 200
        again = await http.call("ann", "POST", "/v1/apps/sweep/retry")
        assert again.json() == {"app": "sweep-2"}
        assert (await http.call("bob", "POST", "/v1/apps/sweep/retry")).status_code == 403

    with_service(tmp_path, work)


def test_status_has_the_parameters_of_each_job(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        search = {"method": "grid", "params": {"lr": [0.1, 0.2]}}
        assert (await submit(http, search=search))[0] == 200
        sheet = (await http.call("ann", "GET", "/v1/apps/sweep")).json()
        assert [job["params"] for job in sheet["jobs"]] == [{"lr": 0.1}, {"lr": 0.2}]

    with_service(tmp_path, work)


def test_an_owner_has_a_bounded_number_of_apps_at_a_time(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path, CallerLimits(apps=2)) as http:
            for key in "ab":
                assert (await submit(http, key))[0] == 200
            answer = await http.call("ann", "POST", "/v1/apps", {"app": FILE, "key": "c"})
            assert answer.status_code == 422
            assert "2 apps are not over, allowed: at most 2" in answer.json()["reason"]
            assert (await http.submit("ann", "spec", "ann")).status_code == 422
            assert (await submit(http, "a"))[1]["app"] == "sweep", "sent again it is the same"
            other = await http.call("bob", "POST", "/v1/apps", {"app": FILE, "key": "c"})
            assert other.status_code == 200
            await http.call("ann", "POST", "/v1/apps/sweep/cancel")
            assert (await http.call("ann", "POST", "/v1/apps/sweep/retry")).status_code == 200

    asyncio.run(work())


def test_resuming_an_app_tells_what_still_suspends_it(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        async def answer(who: str, verb: str) -> tuple[bool, list[str]]:
            told = (await http.call(who, "POST", f"/v1/apps/sweep/{verb}")).json()
            return told["changed"], told["suspended"]

        await submit(http)
        assert await answer("ann", "resume") == (False, []), "it was not paused"
        await http.call("root", "POST", "/v1/apps/sweep/hold")
        assert await answer("ann", "resume") == (False, ["HELD_BY_ADMIN"])
        await http.call("ann", "POST", "/v1/apps/sweep/pause")
        assert await answer("ann", "resume") == (True, ["HELD_BY_ADMIN"])
        assert await answer("root", "release") == (True, [])

    with_service(tmp_path, work)


def test_ended_apps_are_listed_for_permitted_callers(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        for key in "ab":
            await submit(http, key)
        await http.call("ann", "POST", "/v1/apps/sweep/cancel")
        for who, ended in (("ann", ["sweep"]), ("root", ["sweep"]), ("bob", [])):
            found = (await http.call(who, "GET", "/v1/apps?ended=true")).json()
            assert [line["app"] for line in found["ended"]] == ended
            assert (len(found["apps"]), found["left_out"]) == (1, 0)
        assert "ended" not in (await http.call("ann", "GET", "/v1/apps")).json()

    with_service(tmp_path, work)


def test_results_name_no_checkpoint_of_trials_that_ray_saves(tmp_path: Path) -> None:
    seat = app_keys(
        ScriptSettings(), TuneTerms(2, 1, {}, 9, "loss", "min", "tuned", {}), "a:1", "a:2", "m-"
    )

    async def work(http: HttpService) -> None:
        for name, change in (("sweep", {}), ("tuned", seat)):
            await submit(http, name, **change)
            found = (await http.call("ann", "GET", f"/v1/apps/{name}/results")).json()
            told = [job["checkpoint"] is not None for job in found["jobs"]]
            assert told == [name == "sweep"] * 2

    with_service(tmp_path, work)
