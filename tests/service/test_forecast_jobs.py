"""Forecasts beside the service: bounded, ended in time, and sealed."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_service import HttpService, http_service
from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.errors import LimitError, MissingError, RefusedError, UnavailableError
from themis.recording.cluster_snapshots import Snapshot, snapshot_from
from themis.recording.forecast_questions import ForecastCase, ForecastQuestion
from themis.security.permissions import Verb
from themis.security.tokens import Identity, Role
from themis.service import forecast_jobs
from themis.service.forecast_jobs import Forecasts, Prepare
from themis.service.http.routes import forecasts as routes
from themis.service.viewer import viewer_of

FILE: dict[str, Any] = {
    "name": "sweep",
    "command": ["train"],
    "workdir": "/",
    "stop": {"max_iterations": 10},
    "iteration_seconds": 1.0,
}
SPEC = AppSpec(AppId("a"), OwnerId("ann"), (JobSpec(JobId("0"), 1.0, 1),), (Phase(1, 10),))
QUESTION = ForecastQuestion((ForecastCase("as written", SPEC),), 1, 5.0)
NOTHING = Snapshot(0.0, "fifo", 0, {}, ())


def ready(question: ForecastQuestion) -> Prepare:
    async def prepare() -> tuple[Snapshot, ForecastQuestion]:
        return NOTHING, question

    return prepare


def worker(program: str) -> tuple[str, ...]:
    """A worker that reads its question, and then does as told."""
    return (sys.executable, "-c", f"import json, sys, time\nsys.stdin.readline()\n{program}")


def saying(*answers: dict[str, Any]) -> str:
    lines = [json.dumps(answer) for answer in answers]
    return f"print({chr(10).join(lines)!r}, flush=True)\n"


SILENT = worker("sys.stdin.read()")
ROUGH = {"answer": {"cases": [], "final": False}}
DONE = {"answer": {"cases": [], "final": True}}


async def until_done(forecasts: Forecasts, name: str, who: str = "ann") -> dict[str, Any]:
    seen = 0
    answer: dict[str, Any] = {}
    while not answer.get("final"):
        seen, answer = await forecasts.answer(who, name, seen=seen, wait=30.0)
    return answer


def test_answers_come_one_after_the_other_and_the_last_is_final() -> None:
    async def work() -> None:
        forecasts = Forecasts(worker(saying(ROUGH, ROUGH, DONE)))
        name = await forecasts.ask("ann", ready(QUESTION))
        assert (await until_done(forecasts, name))["final"]
        assert (await forecasts.answer("ann", name))[1]["final"]  # It is kept for a while.
        await forecasts.close()
        assert forecasts.running == 0

    asyncio.run(work())


def test_few_questions_run_at_a_time_and_one_per_caller() -> None:
    async def work() -> None:
        forecasts = Forecasts(SILENT, most=2, every=0.0)
        first = await forecasts.ask("ann", ready(QUESTION))
        second = await forecasts.ask("ann", ready(QUESTION))
        with pytest.raises(MissingError):
            await forecasts.answer("ann", first)
        await forecasts.ask("bob", ready(QUESTION))
        assert forecasts.running == 2
        with pytest.raises(LimitError, match="2 at a time"):
            await forecasts.ask("cat", ready(QUESTION))
        await forecasts.drop("ann", second)
        await forecasts.ask("cat", ready(QUESTION))
        await forecasts.close()
        assert forecasts.running == 0

    asyncio.run(work())


def test_a_caller_with_several_questions_has_one_place() -> None:
    async def work() -> None:
        forecasts = Forecasts(SILENT, most=2, every=0.0)
        await forecasts.ask("ann", ready(QUESTION))
        asked = [forecasts.ask("ann", ready(QUESTION)) for _ in range(3)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in told] == [str, LimitError, LimitError]
        assert forecasts.running == 1
        await forecasts.ask("bob", ready(QUESTION))
        await forecasts.close()

    asyncio.run(work())


def test_nothing_is_prepared_without_a_place_and_a_failure_gives_it_back() -> None:
    prepared: list[str] = []

    async def failing() -> tuple[Snapshot, ForecastQuestion]:
        prepared.append("once")
        raise RefusedError("a", "never")

    async def work() -> None:
        forecasts = Forecasts(SILENT, most=1, every=0.0)
        with pytest.raises(RefusedError):
            await forecasts.ask("ann", failing)
        assert forecasts.running == 0
        name = await forecasts.ask("bob", ready(QUESTION))
        with pytest.raises(LimitError):
            await forecasts.ask("ann", failing)
        with pytest.raises(RefusedError):
            await forecasts.ask("bob", failing)
        assert prepared == ["once", "once"]
        assert await forecasts.answer("bob", name) == (0, {})  # It is still being answered.
        await forecasts.close()

    asyncio.run(work())


def test_one_place_is_left_for_admins() -> None:
    async def work() -> None:
        forecasts = Forecasts(SILENT, most=1, every=0.0)
        await forecasts.ask("tenant ann", ready(QUESTION))
        with pytest.raises(LimitError):
            await forecasts.ask("tenant bob", ready(QUESTION))
        await forecasts.ask("admin root", ready(QUESTION), admin=True)
        with pytest.raises(LimitError, match="2 at a time"):
            await forecasts.ask("admin other", ready(QUESTION), admin=True)
        await forecasts.close()

    asyncio.run(work())


def test_an_answer_stays_until_the_next_question_is_taken() -> None:
    async def work() -> None:
        forecasts = Forecasts(worker(saying(DONE)), most=1, every=0.0)
        name = await forecasts.ask("ann", ready(QUESTION))
        await until_done(forecasts, name)
        async with asyncio.timeout(30):
            while forecasts.running:  # Its worker is seen off first.
                await asyncio.sleep(0.01)
        forecasts._command = SILENT
        await forecasts.ask("bob", ready(QUESTION))
        with pytest.raises(LimitError):
            await forecasts.ask("ann", ready(QUESTION))
        assert (await forecasts.answer("ann", name))[1]["final"]
        await forecasts.close()

    asyncio.run(work())


def test_the_next_question_of_an_asker_comes_a_while_later() -> None:
    async def work() -> None:
        forecasts = Forecasts(SILENT, every=1000.0)
        name = await forecasts.ask("ann", ready(QUESTION))
        with pytest.raises(LimitError, match="one question in 1000 s") as caught:
            await forecasts.ask("ann", ready(QUESTION))
        assert caught.value.retry_after is not None
        assert 900.0 < caught.value.retry_after <= 1000.0
        assert await forecasts.answer("ann", name) == (0, {})
        await forecasts.ask("bob", ready(QUESTION))
        await forecasts.close()

    asyncio.run(work())


def test_a_caller_does_not_see_questions_of_others() -> None:
    async def work() -> None:
        forecasts = Forecasts(worker(saying(DONE)))
        name = await forecasts.ask("ann", ready(QUESTION))
        for call in (forecasts.answer("bob", name), forecasts.drop("bob", name)):
            with pytest.raises(MissingError):
                await call
        await forecasts.close()

    asyncio.run(work())


def test_worker_past_its_time_is_killed_and_its_answers_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forecast_jobs, "_SLACK", 0.0)
    quick = ForecastQuestion(QUESTION.cases, 1, 1.5)

    async def work() -> None:
        forecasts = Forecasts(worker(saying(ROUGH) + "sys.stdin.read()"))
        name = await forecasts.ask("ann", ready(quick))
        assert (await until_done(forecasts, name))["final"]
        await forecasts.close()
        forecasts = Forecasts(SILENT)
        name = await forecasts.ask("ann", ready(quick))
        with pytest.raises(UnavailableError, match="no answer in time"):
            await until_done(forecasts, name)
        await forecasts.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        pytest.param("sys.exit(3)", UnavailableError, id="it ends"),
        pytest.param("print('no json', flush=True)", UnavailableError, id="it says nonsense"),
        pytest.param(
            saying({"refused": {"who": "zebra", "reason": "is bob's"}}),
            UnavailableError,
            id="it refuses for reasons that are not theirs to know",
        ),
        pytest.param(
            saying({"refused": {"who": "a", "reason": "never"}}), RefusedError, id="it refuses"
        ),
    ],
)
def test_worker_failure_is_reported(program: str, kind: type[Exception]) -> None:
    async def work() -> None:
        forecasts = Forecasts(worker(program))
        name = await forecasts.ask("ann", ready(QUESTION))
        with pytest.raises(kind) as caught:
            await until_done(forecasts, name)
        assert "zebra" not in str(caught.value)
        await forecasts.close()

    asyncio.run(work())


# Sealed


def other(app: str, owner: str, mid: float) -> dict[str, Any]:
    return {"app": app, "owner": owner, "later": {"low": mid, "mid": mid, "high": mid}}


ANSWER = {
    "final": True,
    "cases": [
        {
            "label": "as written",
            "others": [
                other("zebra", "bob", 900.0),
                other("gnu", "cat", -900.0),
                other("mine", "ann", 400.0),
                other("yak", "bob", 3.0),
            ],
        }
    ],
}


def test_a_tenant_learns_how_many_others_are_affected_and_nothing_else() -> None:
    ann = Identity(Role.TENANT, "ann", "0" * 12)
    told = viewer_of(ann, Verb.WHATIF).forecast(ANSWER)
    (case,) = told["cases"]
    assert case["others"] == {"later": 2, "sooner": 1, "same": 1}
    assert [each["app"] for each in case["named"]] == ["mine"]
    for secret in ("zebra", "gnu", "yak", "bob", "cat", "900"):
        assert secret not in json.dumps(told)


def test_an_admin_sees_names() -> None:
    root = Identity(Role.ADMIN, "root", "0" * 12)
    (case,) = viewer_of(root, Verb.WHATIF).forecast(ANSWER)["cases"]
    assert [each["app"] for each in case["named"]] == ["zebra", "gnu", "mine", "yak"]


# Over HTTP


def with_service(path: Path, work: Callable[[HttpService], Awaitable[None]]) -> None:
    async def run() -> None:
        async with http_service(path) as http:
            await work(http)

    asyncio.run(run())


async def ask(http: HttpService, who: str, **more: Any) -> tuple[int, dict[str, Any]]:
    answer = await http.call(who, "POST", "/v1/whatif", {"app": FILE, **more})
    return answer.status_code, answer.json()


def test_a_real_worker_answers_over_http_and_nothing_is_submitted(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        await http.submit("bob", "theirs", "bob")
        code, told = await ask(http, "ann", gpus=[2], at=["+1h"], seeds=1, seconds=50.0)
        assert code == 200, told
        path, seen = f"/v1/whatif/{told['question']}", 0
        answer: dict[str, Any] = {}
        while not answer.get("final"):
            got = await http.call("ann", "GET", f"{path}?seen={seen}&wait=20")
            assert got.status_code == 200, got.text
            seen, answer = got.json()["seen"], got.json()["answer"]
            assert "theirs" not in got.text
        written, wider, later = answer["cases"]
        assert written["seeds"] == 1
        assert written["finish"]["mid"] > written["start"]["mid"] >= 0.0
        assert wider["label"] == "gpus 2"
        assert later["start"]["mid"] >= 3600.0
        assert sum(written["others"].values()) == 1
        assert (await http.call("bob", "GET", path)).status_code == 404
        assert (await http.call("ann", "DELETE", path)).status_code == 200
        assert (await http.call("ann", "GET", path)).status_code == 404
        assert set(http.service.steward.arbiter.world.apps) == {"theirs"}

    with_service(tmp_path, work)


def test_operator_requests_are_denied_to_tenants(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        http.service.forecasts = Forecasts(SILENT, every=0.0)
        for more in ({"policy": ["fifo"]}, {"add_machines": [1]}, {"owner": "bob"}):
            assert (await ask(http, "ann", **more))[0] == 403, more
            assert (await ask(http, "root", **more))[0] == 200, more
        assert (await ask(http, "eve"))[0] == 403
        assert (await ask(http, "m0"))[0] == 403

    with_service(tmp_path, work)


def test_a_question_without_a_place_makes_no_plan_and_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for name in ("cases_of", "snapshot_of"):
        real = getattr(routes, name)
        monkeypatch.setattr(routes, name, noted(name, real, made))

    async def work(http: HttpService) -> None:
        http.service.forecasts = Forecasts(SILENT, most=1)
        assert (await ask(http, "ann"))[0] == 200
        assert sorted(made) == ["cases_of", "snapshot_of"]
        for who in ("bob", "ann"):
            assert (await ask(http, who))[0] == 429
        assert len(made) == 2
        assert (await ask(http, "root"))[0] == 200

    with_service(tmp_path, work)


def noted(name: str, real: Callable[..., Any], made: list[str]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        made.append(name)
        return real(*given, **named)

    return call


@pytest.mark.parametrize(
    "more",
    [
        {"app": {"name": "x"}},
        {"app": {**FILE, "gpus": {"per_job_max": 64, "per_job_min": 64}}},
        {"gpus": ["4"]},
        {"gpus": [0]},
        {"gpus": [1] * 8},
        {"stop": ["sometimes"]},
        {"at": ["-1h"]},
        {"at": [True]},
        {"seeds": 0},
        {"seeds": 1000},
        {"seconds": -1},
        {"surprise": 1},
    ],
    ids=json.dumps,
)
def test_a_question_that_makes_no_sense_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    async def work(http: HttpService) -> None:
        http.service.forecasts = Forecasts(SILENT)
        code, told = await ask(http, "ann", **more)
        assert code == 422, told
        assert told["reason"]
        assert http.service.forecasts.running == 0

    with_service(tmp_path, work)


def test_a_snapshot_is_for_operators(tmp_path: Path) -> None:
    async def work(http: HttpService) -> None:
        await http.submit("ann", "sweep", "ann")
        for who in ("ann", "eve", "m0"):
            assert (await http.call(who, "GET", "/v1/snapshot")).status_code == 403
        taken = snapshot_from((await http.call("root", "GET", "/v1/snapshot")).json())
        assert [picture.app for picture in taken.apps] == ["sweep"]
        assert taken.policy == "equal-share"
        assert taken.wall == http.wall

    with_service(tmp_path, work)
