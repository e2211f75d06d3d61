"""The process of somebody's own tuner: what it submits, whom it speaks for, when it gives up."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import themis
from tests.support.grpc_service import World, open_world, until
from themis.agent_host.own_tuner import (
    OwnTuner,
    ServiceAddress,
    Trial,
    _FunctionTuner,
    _own_app,
    _results,
    _submit,
    run_agent,
)
from themis.agent_host.session.session import AgentSession
from themis.apps import AppFile, SweepPlan, TunedBy, parse_app, plan_app
from themis.client import Client
from themis.config.secret import Secret
from themis.core.arbiter import events as ev
from themis.core.model import AppId, Machine, OwnerId
from themis.errors import (
    ConfigError,
    DeniedError,
    StaleAnswerError,
    UnavailableError,
    UnknownAppError,
)
from themis.protocol.node_messages import NodeReport, SlotReport, SlotState
from themis.security.tokens import Role

APP: dict[str, Any] = {
    "name": "mine",
    "command": ["train", "{q}"],
    "search": {"method": "grid", "params": {"q": [1, 2, 3]}},
    "stop": {"max_iterations": 9},
}


class Desk:
    """Answers as the service would: by keys, with names that get a number where they are taken."""

    def __init__(self) -> None:
        self.apps: dict[str, str] = {}
        self.over: dict[str, str] = {}
        self.forgotten: set[str] = set()
        self.sent: list[Mapping[str, Any]] = []
        self.away = 0

    def whoami(self) -> dict[str, Any]:
        return {"role": "admin", "subject": "root"}

    def submit(self, app: Mapping[str, Any], key: str, *, seed: int | None) -> dict[str, Any]:
        self.sent.append(app)
        name = self.apps.setdefault(key, f"{app['name']}-{len(self.apps) + 1}")
        return {"app": name}

    def status(self, app: str) -> dict[str, Any]:
        if app in self.forgotten or (app not in self.apps.values() and app not in self.over):
            raise UnknownAppError(app, "there is no such app")
        return {"outcome": self.over[app]} if app in self.over else {"app": app}

    def results(self, app: str) -> dict[str, Any]:
        self.away -= 1
        if self.away >= 0:
            raise UnavailableError("not now")
        return {"app": app}


def client_of(desk: Desk) -> Client:
    return cast("Client", desk)


def test_restarted_tuner_continues_the_running_app() -> None:
    desk = Desk()
    written = _own_app(APP)
    first = _submit(client_of(desk), written, None, None)
    assert _submit(client_of(desk), written, None, None) == first
    desk.over[first] = "finished"
    second = _submit(client_of(desk), written, None, None)
    assert second != first, "that one is over"
    assert _submit(client_of(desk), written, None, None) == second


def test_app_forgotten_by_the_service_has_ended() -> None:
    desk = Desk()
    desk.forgotten.add(_submit(client_of(desk), _own_app(APP), "own tuner, mine 1", None))
    second = _submit(client_of(desk), _own_app(APP), None, None)
    assert second not in desk.forgotten
    assert _submit(client_of(desk), _own_app(APP), None, None) == second


def test_key_submits_one_app_even_after_its_end() -> None:
    desk = Desk()
    first = _submit(client_of(desk), _own_app(APP), "night-7", None)
    desk.over[first] = "finished"
    assert _submit(client_of(desk), _own_app(APP), "night-7", None) == first


def test_submission_names_its_tuner_and_place(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("name: x\ncommand: [a]\nworkdir: sub\n")
    written = _own_app(tmp_path / "app.yaml")
    assert (written.tuner, written.workdir) == (TunedBy.OWN, str(tmp_path / "sub"))
    assert _own_app({"name": "x", "command": ["a"]}).workdir == str(Path.cwd())


@pytest.mark.parametrize("work", ["run", "attach"])
def test_token_of_another_role_is_refused_before_submission(
    monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    desk = Desk()
    desk.apps["before"] = "mine"
    place = ServiceAddress(client_of(desk), Secret("hush"), None, None)
    monkeypatch.setattr(ServiceAddress, "of", lambda *_: place)
    with pytest.raises(ConfigError, match="got 'admin root', allowed: a tenant's") as refused:
        OwnTuner().attach("mine") if work == "attach" else OwnTuner().run(APP)
    assert "`themis token create --role tenant --subject OWNER --out FILE`" in str(refused.value)
    assert desk.sent == []


def test_results_are_waited_for_while_the_service_is_away() -> None:
    desk = Desk()
    desk.away = 1
    assert asyncio.run(_results(client_of(desk), "mine")) == {"app": "mine"}


def test_the_names_are_where_newcomers_look() -> None:
    assert themis.OwnTuner is OwnTuner
    assert themis.Trial is Trial
    assert callable(themis.tune)


def test_functions_are_asked_where_there_are_some() -> None:
    given: dict[str, Callable[..., Any] | None] = {
        "should_stop": lambda trial, others: len(others) == 2 and trial.name == "1",
        "choose": None,
        "suggest": lambda trial: {"q": trial.params["q"] * 10},
    }
    tuner = _FunctionTuner(given)
    spec = plan_app(parse_app(APP), AppId("mine"), OwnerId("ann"), 0).spec
    tuner.enter(spec, {job.id: {"q": 1} for job in spec.jobs})
    tuner.begin()
    job = spec.jobs[1].id
    assert tuner.suggested(job, None) == {"q": 10}
    assert tuner.observe(spec.jobs[0].id, 1.0, 0.1) is None
    assert tuner.observe(job, 1.0, 0.1) is not None


# At a real door


def at_the_door(folder: Path, work: Callable[[World], Awaitable[None]]) -> None:
    async def play() -> None:
        async with open_world(folder) as world:
            slots = (SlotReport(0, 0, SlotState.EMPTY),)
            report = NodeReport("m0", 1, 1, 0, 0, slots, (), Machine("m0", "r0", (1,)))
            orders = await world.service.nodes.report(report)
            again = replace(report, number=2, epoch=orders.epoch, revision=orders.revision)
            joining = asyncio.create_task(world.service.nodes.report(again))
            await until(lambda: world.service.steward.arbiter.world.topology.machines)
            await work(world)
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    asyncio.run(asyncio.wait_for(play(), 60.0))


def planned(app: AppFile) -> SweepPlan:
    return plan_app(app, AppId(app.name), OwnerId("ann"), seed=0)


async def submitted(world: World, **more: Any) -> AppId:
    app = parse_app({**APP, "tuner": "own", **more})
    return await world.service.submissions.submit_file(planned(app), "key")


async def spoken_for(world: World, app: AppId, tuner: OwnTuner, desk: Desk | None = None) -> None:
    connection = world.connection(Role.TENANT, "ann")
    try:
        await run_agent(tuner, app, connection, client_of(desk or Desk()))
    finally:
        await connection.close()


def test_changed_app_file_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(world: World) -> None:
        written = parse_app({**APP, "tuner": "own"})
        app = await submitted(world)
        await world.service.loop.carry_out(ev.AppEnded(world.service.now(), app, "cancelled"))
        for given, warnings in ((written, 0), (replace(written, retries=9), 1)):
            connection = world.connection(Role.TENANT, "ann")
            desk = Desk()
            desk.over[app] = "cancelled"
            await run_agent(OwnTuner(), app, connection, client_of(desk), given)
            await connection.close()
            assert caplog.text.count("another app file") == warnings

    at_the_door(tmp_path, work)


class Watching(OwnTuner):
    entered = 0

    def enter(self, *given: Any, **more: Any) -> Any:
        self.entered += 1
        return super().enter(*given, **more)


def test_apps_with_their_own_tuner_get_no_service_agent(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await submitted(world)
        assert world.service.files.hosting() == set()
        await world.stop()
        await world.start()
        assert world.service.files.hosting() == set(), "it is remembered"
        other = parse_app(APP)
        name = await world.service.submissions.submit_file(planned(other), "other")
        listed = await world.service.files.hosted_by(OwnerId("ann"), 0)
        assert listed.apps == (name,)

    at_the_door(tmp_path, work)


def test_tuner_stays_connected_through_a_service_restart_until_the_app_ends(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        app = await submitted(world)
        tuner = Watching()
        speaking = asyncio.create_task(spoken_for(world, app, tuner))
        await until(lambda: tuner.entered == 1)
        assert [trial.params for trial in tuner.training] == [{"q": 1}, {"q": 2}, {"q": 3}]
        await world.stop()
        await world.start()
        await until(lambda: tuner.entered == 2)
        now = world.service.now()
        await world.service.loop.carry_out(ev.AppEnded(now, app, "cancelled"))
        await speaking

    at_the_door(tmp_path, work)


def test_later_tuner_takes_over_and_the_earlier_one_is_notified(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        app = await submitted(world)
        first, second = Watching(), Watching()
        one = asyncio.create_task(spoken_for(world, app, first))
        await until(lambda: first.entered)
        two = asyncio.create_task(spoken_for(world, app, second))
        with pytest.raises(StaleAnswerError):
            await one
        await until(lambda: second.entered)
        two.cancel()
        await asyncio.gather(two, return_exceptions=True)

    at_the_door(tmp_path, work)


def test_an_app_that_the_service_decides_for_is_left_to_it(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        app = await submitted(world, tuner="service")
        with pytest.raises(DeniedError, match="tuner: own"):
            await spoken_for(world, app, OwnTuner())

    at_the_door(tmp_path, work)


def test_unknown_app_is_an_error_and_an_ended_app_is_not(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        with pytest.raises(DeniedError):
            await spoken_for(world, AppId("nobody"), OwnTuner())
        app = await submitted(world)
        await world.service.loop.carry_out(ev.AppEnded(world.service.now(), app, "cancelled"))
        await spoken_for(world, app, OwnTuner())
        desk = Desk()
        desk.over[app] = "cancelled"
        await spoken_for(world, app, OwnTuner(), desk)

    at_the_door(tmp_path, work)


def test_a_mistake_in_a_tuner_ends_its_process_and_not_the_app(tmp_path: Path) -> None:
    class Broken(OwnTuner):
        def begin(self) -> Any:
            return 1 / 0

    async def work(world: World) -> None:
        app = await submitted(world)
        with pytest.raises(ZeroDivisionError):
            await spoken_for(world, app, Broken())
        assert app in world.service.steward.arbiter.world.apps

    at_the_door(tmp_path, work)


def test_a_mistake_that_comes_with_an_alarm_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wake(session: AgentSession, at: float) -> Any:
        return 1 / 0

    monkeypatch.setattr(AgentSession, "wake", wake)
    monkeypatch.setattr(AgentSession, "next_wake", property(lambda session: -math.inf))

    async def work(world: World) -> None:
        app = await submitted(world)
        with pytest.raises(ZeroDivisionError):
            await spoken_for(world, app, OwnTuner())

    at_the_door(tmp_path, work)
