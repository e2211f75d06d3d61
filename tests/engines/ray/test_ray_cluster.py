"""What becomes of what Ray says, without a Ray."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from themis.engines.ray import driver
from themis.engines.ray.cluster import RayCluster, RaySettings, RayView
from themis.engines.ray.driver_client import DriverConnection
from themis.engines.ray.launcher import RayLauncher
from themis.engines.remote.launcher import LaunchStage, RemoteTiming
from themis.engines.remote.scheduler_calls import SchedulerCalls
from themis.errors import ConfigError, UnavailableError


class Said(DriverConnection):
    """A line on which a test answers."""

    def __init__(self) -> None:
        super().__init__("auto")
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, object]]] = []

    async def call(self, what: str, limit: float = 0.0, **args: object) -> Any:
        self.asked.append((what, args))
        answer = self.answers[what]
        if isinstance(answer, Exception):
            raise answer
        return answer


def node(name: str, host: str = "h", **more: Any) -> dict[str, Any]:
    given = {
        "id": f"id-{name}", "alive": True, "why": "", "host": host, "address": f"10.0.0.{name[1:]}",
        "gpus": 2, "labels": {"machine": name, "rack": "R 1"},
    }  # fmt: skip
    return given | more


def look(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"nodes": list(nodes), "groups": {}, "actors": [], "free": {}} | more


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def line() -> Said:
    return Said()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(tmp_path: Path, line: Said, clock: Clock) -> RayCluster:
    return RayCluster(tmp_path, line=line, now=clock)


def names(cluster: RayCluster) -> dict[str, str]:
    seen = asyncio.run(cluster.look())
    return {item.machine.name: item.trouble for item in seen}


def test_machines_are_named_by_label_then_host_then_address(
    cluster: RayCluster, line: Said
) -> None:
    line.answers["look"] = look(
        node("n0"),
        node("n1", host="Big_One", labels={}),
        node("n2", host="twice", labels={}),
        node("n3", host="twice", labels={}),
        node("n4", gpus=0),
    )
    assert set(names(cluster)) == {"n0", "big-one", "10-0-0-2", "10-0-0-3"}
    assert cluster.machine("n0").rack == "r-1"
    assert cluster.machine("big-one").rack == "r0"
    assert cluster.machine("n0").slots == (1, 1), "each GPU a slot: nobody chooses them"
    assert cluster.address("n0") == "10.0.0.0"


def test_nodes_that_are_leases_of_ray_tune_are_no_machines(cluster: RayCluster, line: Said) -> None:
    trial = node("n9", host="big", labels={"themis-trial": "07"})
    line.answers["look"] = look(node("n1", host="big", labels={}), trial)
    assert names(cluster) == {"big": ""}
    assert cluster.node("big") == "id-n1"


def test_a_machine_keeps_its_name_when_another_node_comes_with_it(
    cluster: RayCluster, line: Said, clock: Clock
) -> None:
    first = node("n1", host="big", labels={})
    other = node("n2", host="big", labels={})
    line.answers["look"] = look(first)
    assert names(cluster) == {"big": ""}
    line.answers["look"] = look(first, other)
    clock.time += 10
    assert names(cluster) == {"big": "", "10-0-0-2": ""}
    assert (cluster.node("big"), cluster.node("10-0-0-2")) == ("id-n1", "id-n2")
    # It comes back while the other is there, which then goes.
    line.answers["look"] = look(first | {"id": "new"}, other)
    clock.time += 10
    assert cluster.node("big") == "id-n1"
    assert names(cluster) == {"big": "", "10-0-0-2": ""}
    assert cluster.node("big") == "new"
    line.answers["look"] = look(other)
    clock.time += 10
    assert names(cluster)["big"].startswith("Ray lists it as dead")
    assert cluster.node("10-0-0-2") == "id-n2"


def test_first_of_two_nodes_with_one_name_is_the_machine(
    cluster: RayCluster, line: Said, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = node("n1"), node("n1", id="second", gpus=8)
    for nodes in ([first], [second, first], [first, second]):
        line.answers["look"] = look(*nodes)
        clock.time += 10
        assert names(cluster) == {"n1": ""}
        assert cluster.node("n1") == "id-n1"
        assert cluster.machine("n1").gpus == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"], "once"
    line.answers["look"] = look(first | {"alive": False}, second)
    clock.time += 10
    assert names(cluster) == {"n1": ""}
    assert cluster.node("n1") == "second"


def test_only_machines_with_the_label_are_used(tmp_path: Path, line: Said, clock: Clock) -> None:
    cluster = RayCluster(tmp_path, settings=RaySettings(only="pool=a"), line=line, now=clock)
    labels = {"machine": "n1", "pool": "b"}
    line.answers["look"] = look(
        node("n0", labels={"machine": "n0", "pool": "a"}), node("n1", labels=labels)
    )
    assert list(names(cluster)) == ["n0"]


def test_a_machine_that_comes_back_is_the_same_machine_and_another_node(
    cluster: RayCluster, line: Said, clock: Clock
) -> None:
    line.answers["look"] = look(node("n0"), node("n1"))
    assert names(cluster) == {"n0": "", "n1": ""}
    # A dead node has no resources any more.
    line.answers["look"] = look(node("n0"), node("n1", alive=False, gpus=0, why="no heartbeat"))
    clock.time += 10
    assert names(cluster)["n1"].startswith("Ray lists it as dead")
    with pytest.raises(UnavailableError):
        cluster.node("n1")
    line.answers["look"] = look(node("n0"), node("n1", alive=False, gpus=0), node("n1", id="new"))
    clock.time += 10
    assert names(cluster) == {"n0": "", "n1": ""}
    assert cluster.node("n1") == "new"


def test_gpus_that_others_use_are_taken_out_after_two_looks(
    cluster: RayCluster, line: Said, clock: Clock
) -> None:
    groups = {"themis-a": ["CREATED", "id-n0", 1]}
    line.answers["look"] = look(node("n0", gpus=4), groups=groups, free={"id-n0": 1.5})
    found = asyncio.run(cluster.discover("n0", busy=[3]))
    assert not any(gpu.trouble for gpu in found.gpus)
    clock.time += 10
    found = asyncio.run(cluster.discover("n0", busy=[3]))
    # Four, of which one is ours, and one and a half are free: one and a part of one are others'.
    assert [bool(gpu.trouble) for gpu in found.gpus] == [False, True, True, False]


@pytest.mark.parametrize(
    ("group", "actor", "node", "launching", "place"),
    [
        pytest.param(("CREATED", "id-n0", 1), True, "id-n0", False, "placed", id="it runs"),
        pytest.param(("CREATED", "id-n0", 1), False, "id-n0", False, "empty", id="its actor ended"),
        pytest.param(("CREATED", "id-n0", 1), False, "id-n0", True, "placed", id="on its way"),
        pytest.param(("PENDING", "", 1), True, "id-n0", False, "waiting", id="no room"),
        pytest.param(("RESCHEDULING", "", 1), False, "id-n0", False, "lost", id="rescheduled"),
        pytest.param(("CREATED", "id-old", 1), True, "id-old", False, "lost", id="a dead node"),
        pytest.param(None, False, "id-old", False, "lost", id="forgotten with its node"),
        pytest.param(None, False, "id-n0", False, None, id="removed"),
    ],
)
def test_where_a_start_is(
    group: tuple[str, str, int] | None, actor: bool, node: str, launching: bool, place: str | None
) -> None:
    seen = RayView(
        alive=frozenset({"id-n0"}),
        groups={"themis-a": group} if group else {},
        actors=frozenset({"themis-a"} if actor else ()),
    )
    found = seen.place("themis-a", node, launching=launching)
    assert (found.state if found else None) == place


RUNNING = {"groups": {"themis-a": ["CREATED", "id-n0", 1]}, "actors": ["themis-a"]}


async def launched(cluster: RayCluster, line: Said, folder: Path) -> RayLauncher:
    """One that has launched themis-a, which runs."""
    line.answers |= {"look": look(node("n0")), "launch": "", "cancel": False}
    await cluster.look()
    launcher = RayLauncher(cluster, "n0", folder)
    await launcher.launch("themis-a", ["x"], 1, folder / "errors", lambda: None)
    line.answers["look"] = look(node("n0"), **RUNNING)
    cluster.look_again()
    return launcher


async def where(launcher: RayLauncher, name: str = "themis-a") -> LaunchStage | None:
    return (await launcher.places() or {}).get(name)


def test_silently_vanished_start_is_lost_until_it_ends(
    cluster: RayCluster, line: Said, clock: Clock, tmp_path: Path
) -> None:
    """Its supervisor may still be at it, however long ago its holder was seen."""

    async def scene() -> None:
        launcher = await launched(cluster, line, tmp_path)
        assert await where(launcher) == LaunchStage("placed")
        line.answers["look"] = look(node("n0"))
        await launcher.cancel("themis-a", hard=True)
        clock.time += 1000
        found = await where(launcher)
        assert found is not None
        assert found.state == "lost"
        # A bridge that is started again still knows.
        later = RayLauncher(cluster, "n0", tmp_path)
        found = await where(later)
        assert found is not None
        assert found.state == "lost"
        line.answers["cancel"] = True
        await later.cancel("themis-a", hard=False)
        assert await later.places() == {}
        assert await RayLauncher(cluster, "n0", tmp_path).places() == {}

    asyncio.run(scene())


def test_start_whose_end_its_holder_saw_is_gone(
    cluster: RayCluster, line: Said, tmp_path: Path
) -> None:
    async def scene() -> None:
        launcher = await launched(cluster, line, tmp_path)
        line.answers["look"] = look(node("n0"), groups=RUNNING["groups"])
        line._take({"ended": "themis-a", "why": ""})
        assert await where(launcher) == LaunchStage("empty")
        await launcher.cancel("themis-a", hard=True)
        line.answers["look"] = look(node("n0"))
        assert await launcher.places() == {}

    asyncio.run(scene())


def test_silently_dead_holder_saw_no_end(cluster: RayCluster, line: Said, tmp_path: Path) -> None:
    async def scene() -> None:
        launcher = await launched(cluster, line, tmp_path)
        line.answers["look"] = look(node("n0"), groups=RUNNING["groups"])
        line._take({"ended": "themis-a", "why": None})
        found = await where(launcher)
        assert found is not None
        assert found.state == "lost"

    asyncio.run(scene())


def test_holder_reports_its_start_failure(cluster: RayCluster, line: Said, tmp_path: Path) -> None:
    async def scene() -> None:
        launcher = await launched(cluster, line, tmp_path)
        line._take({"ended": "themis-a", "why": "no such Python"})
        assert await where(launcher) == LaunchStage("empty", "no such Python", never=True)

    asyncio.run(scene())


def test_a_kill_that_failed_changes_nothing(
    cluster: RayCluster, line: Said, tmp_path: Path
) -> None:
    async def scene() -> None:
        launcher = await launched(cluster, line, tmp_path)
        line.answers["cancel"] = UnavailableError("its holder does not answer")
        with pytest.raises(UnavailableError):
            await launcher.cancel("themis-a", hard=True)
        assert await where(launcher) == LaunchStage("placed")

    asyncio.run(scene())


def test_full_disk_is_reported_and_nothing_is_launched(
    cluster: RayCluster, line: Said, tmp_path: Path
) -> None:
    async def scene() -> None:
        line.answers |= {"look": look(node("n0")), "cancel": False}
        await cluster.look()
        launcher = RayLauncher(cluster, "n0", tmp_path / "gone")
        with pytest.raises(UnavailableError, match="cannot be written"):
            await launcher.launch("themis-a", ["x"], 1, tmp_path / "errors", lambda: None)
        assert "launch" not in [what for what, _ in line.asked]

    asyncio.run(scene())


def test_unfollowed_starts_are_forgotten(cluster: RayCluster, line: Said, tmp_path: Path) -> None:
    """It has neither actor nor group, and no engine waits to see its end."""

    async def scene() -> None:
        launcher = await launched(cluster, line, tmp_path)
        line.answers["look"] = look(node("n0"))

        async def call(what: str, limit: float = 0.0, **args: object) -> object:
            return line.answers[what] if what != "cancel" else not args["hard"]

        line.call = call  # type: ignore[method-assign]
        calls = SchedulerCalls(
            launcher, RemoteTiming(), "themis-", asyncio.ensure_future, cluster.now
        )
        await calls.sweep({"themis-a"})
        assert await where(launcher) is not None
        await calls.sweep(())
        assert await launcher.places() == {}
        assert await RayLauncher(cluster, "n0", tmp_path).places() == {}

    asyncio.run(scene())


def test_start_on_a_dead_machine_stays_lost_after_group_removal(
    cluster: RayCluster, line: Said, tmp_path: Path
) -> None:
    async def scene() -> None:
        line.answers |= {"look": look(node("n0"), node("n1")), "launch": "", "cancel": True}
        await cluster.look()
        launcher = RayLauncher(cluster, "n0", tmp_path)
        await launcher.launch("themis-a", ["x"], 1, tmp_path / "errors", lambda: None)
        for groups in ({"themis-a": ["RESCHEDULING", "", 1]}, {}):
            line.answers["look"] = look(node("n0", alive=False), node("n1"), groups=groups)
            cluster.look_again()
            assert (await launcher.places() or {})["themis-a"].state == "lost"

    asyncio.run(scene())


def test_a_launch_without_room_is_called_off(
    cluster: RayCluster, line: Said, tmp_path: Path
) -> None:
    async def scene() -> None:
        line.answers |= {"look": look(node("n0")), "launch": "no room", "cancel": True}
        await cluster.look()
        launcher = RayLauncher(cluster, "n0", tmp_path)
        with pytest.raises(UnavailableError, match="no room"):
            await launcher.launch("themis-a", ["x"], 1, tmp_path / "errors", lambda: None)
        assert line.asked[-1] == ("cancel", {"name": "themis-a", "hard": True})
        assert await launcher.places() == {}

    asyncio.run(scene())


def test_unresponsive_ray_leaves_places_of_starts_unknown(
    cluster: RayCluster, line: Said, tmp_path: Path
) -> None:
    async def scene() -> None:
        line.answers["look"] = UnavailableError("away")
        assert await RayLauncher(cluster, "n0", tmp_path).places() is None
        with pytest.raises(UnavailableError):
            await cluster.look()

    asyncio.run(scene())


# The line, to a driver that knows no Ray.

PRETENDED = """#!{python}
import sys
sys.path.insert(0, {folder!r})
import driver
class Office:
    def look(self): return [1]
    def hang(self): import time; time.sleep(600)
    def fail(self): raise ValueError("no such thing")
    def ended(self, limit): import time; time.sleep(limit); return []
    def die(self): import os; os._exit(3)
    def babble(self): out.write(b"no JSON\\n"); out.flush(); self.hang()
def connect(self, address):
    global out
    out = self._out
    if address == "without":
        raise ModuleNotFoundError("No module named 'ray'")
    if address == "nowhere":
        raise ConnectionError("nobody there")
    return lambda what, **args: getattr(Office(), what)(**args)
driver.Driver._connect = connect
sys.argv = sys.argv[2:]
driver.main()
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    script = tmp_path / "python"
    folder = str(Path(driver.__file__).parent)
    script.write_text(PRETENDED.format(python=sys.executable, folder=folder))
    script.chmod(0o755)
    return str(script)


def test_a_line_answers_and_is_opened_again_after_its_process_died(python: str) -> None:
    async def scene() -> None:
        line = DriverConnection("auto", python)
        assert await line.call("look") == [1]
        with pytest.raises(UnavailableError, match="no such thing"):
            await line.call("fail")
        with pytest.raises(UnavailableError, match="has ended"):
            await line.call("die")
        while True:
            try:
                assert await line.call("look") == [1]
            except UnavailableError:  # not at once: what fails is not started again and again
                await asyncio.sleep(0.1)
            else:
                break
        await line.close()

    asyncio.run(scene())


def test_hanging_connection_is_closed_and_reopened(python: str) -> None:
    async def scene() -> None:
        line = DriverConnection("auto", python)
        await line.call("look")
        for _ in range(2):
            with pytest.raises(UnavailableError, match="no answer within"):
                await line.call("hang", 0.05)
        assert line._process is None
        await line.close()

    asyncio.run(scene())


def test_a_call_that_fails_does_not_cost_others_their_line(python: str) -> None:
    async def scene() -> None:
        line = DriverConnection("auto", python)
        await line.call("look")
        process = line._process
        for _ in range(3):
            with pytest.raises(UnavailableError, match="no such thing"):
                await line.call("fail")
        assert line._process is process
        await line.close()

    asyncio.run(scene())


def test_unreadable_line_leaves_no_caller_waiting(python: str) -> None:
    async def scene() -> None:
        line = DriverConnection("auto", python)
        assert await line.call("look") == [1]
        waiting = asyncio.create_task(line.call("hang", 500.0))
        with pytest.raises(UnavailableError, match="has ended"):
            await line.call("babble", 500.0)
        with pytest.raises(UnavailableError, match="has ended"):
            await waiting
        await line.close()

    asyncio.run(scene())


def test_unsolicited_message_is_ignored(line: Said) -> None:
    line._take({"error": "of no call"})


def test_a_cluster_that_is_not_there_is_unavailable_and_says_why(python: str) -> None:
    async def scene() -> None:
        with pytest.raises(UnavailableError, match="nobody there"):
            await DriverConnection("nowhere", python).call("look")

    asyncio.run(scene())


def test_a_line_that_failed_says_why_until_it_is_tried_again(python: str) -> None:
    async def scene() -> None:
        line = DriverConnection("nowhere", python)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="nobody there"):
                await line.call("look")

    asyncio.run(scene())


def test_a_python_without_ray_says_how_to_get_it(python: str) -> None:
    async def scene() -> None:
        with pytest.raises(UnavailableError, match=r"in .*/python: pip install .*ray\.python"):
            await DriverConnection("without", python).call("look")

    asyncio.run(scene())


def test_a_process_that_ends_by_itself_is_not_killed(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To kill what has just ended would take its end from asyncio, which complains of that.
    killed: list[int] = []
    monkeypatch.setattr(asyncio.subprocess.Process, "kill", lambda self: killed.append(self.pid))
    monkeypatch.setattr("themis.engines.ray.driver_client._FAREWELL", 60.0)

    async def scene() -> None:
        with pytest.raises(UnavailableError, match="nobody there"):
            await DriverConnection("nowhere", python).call("look")
        line = DriverConnection("auto", python)
        with pytest.raises(UnavailableError, match="has ended"):
            await line.call("die")
        await line.close()

    asyncio.run(scene())
    assert not killed


def test_a_python_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ray\.python"):
        RayCluster(tmp_path, settings=RaySettings(python="/no/such/python"))
