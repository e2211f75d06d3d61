"""The process that speaks with Ray, without a Ray: what it makes of what that says."""

import io
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from themis.engines.ray import driver


class DiedError(Exception):
    pass


class Ray(SimpleNamespace):
    """As much of Ray as a start takes; what was done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.answer: Callable[[], object] = lambda: True
        context = SimpleNamespace(get_accelerator_ids=lambda: {"GPU": ["0"]})
        super().__init__(
            exceptions=SimpleNamespace(ActorDiedError=DiedError, ActorUnschedulableError=DiedError),
            get_actor=lambda name, where: SimpleNamespace(
                kill=SimpleNamespace(remote=lambda: name)
            ),
            get=lambda item, timeout=0.0: self.answer(),
            kill=lambda actor: self.done.append("kill"),
            wait=lambda items, timeout: (items, []),
            get_runtime_context=lambda: context,
            util=SimpleNamespace(
                get_placement_group=lambda name: name,
                remove_placement_group=lambda group: self.done.append("remove"),
            ),
        )


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    pretended = Ray()
    monkeypatch.setitem(sys.modules, "ray", pretended)
    return pretended


def fail(error: Exception) -> Callable[[], object]:
    def raise_it() -> object:
        raise error

    return raise_it


def test_a_kill_without_an_answer_leaves_the_actor_and_its_gpus_alone(ray: Ray) -> None:
    ray.answer = fail(TimeoutError("no answer"))
    with pytest.raises(TimeoutError):
        driver.RayCalls().cancel("themis-a", hard=True)
    assert ray.done == []


@pytest.mark.parametrize(
    ("answer", "sure"),
    [
        pytest.param(lambda: True, True, id="it killed"),
        pytest.param(fail(DiedError()), False, id="it was dead"),
        pytest.param(fail(ValueError("no such actor")), False, id="it is not there"),
    ],
)
def test_a_group_is_given_back_when_its_holder_is_done(
    ray: Ray, answer: Callable[[], object], sure: bool
) -> None:
    ray.answer = answer
    assert driver.RayCalls().cancel("themis-a", hard=True) is sure
    assert ray.done == ["remove"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(lambda: "", "", id="in order"),
        pytest.param(lambda: "no Python", "no Python", id="never begun"),
        pytest.param(fail(DiedError()), None, id="without a word"),
    ],
)
def test_how_a_holder_ended_is_passed_on(
    ray: Ray, answer: Callable[[], object], told: str | None
) -> None:
    office, ray.answer = driver.RayCalls(), answer
    office._waiting["run"] = "themis-a"
    assert office.ended(0.0) == [("themis-a", told)]
    assert office.ended(0.0) == []


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codes by which a holder would have ended its process."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(driver, "ANSWER_WAIT", 0.0)
    return codes


def until(holds: Callable[[], object]) -> None:
    patience = threading.Event()
    for _ in range(6000):
        if holds():
            return
        patience.wait(0.01)
    raise AssertionError("it never happens")


def test_a_holder_says_why_it_can_start_nothing_and_ends(
    ray: Ray, ended: list[int], tmp_path: Path
) -> None:
    why = driver.Holder().run(["/no/such/python"], {}, str(tmp_path / "errors"))
    assert "/no/such/python" in why
    why = driver.Holder().run(["true"], {}, str(tmp_path / "gone" / "errors"))
    assert "gone/errors" in why
    until(lambda: ended == [0, 0])


def test_holder_with_a_kill_order_starts_nothing(
    ray: Ray, ended: list[int], tmp_path: Path
) -> None:
    holder = driver.Holder()
    assert holder.kill()
    assert holder.run(["/bin/sh", "-c", f"touch {tmp_path}/ran"], {}, str(tmp_path / "e")) == ""
    assert not (tmp_path / "ran").exists()
    until(lambda: ended)


def test_a_holder_kills_all_that_it_holds(ray: Ray, ended: list[int], tmp_path: Path) -> None:
    holder, said = driver.Holder(), list[str]()
    argv = ["/bin/sh", "-c", "trap '' TERM; setsid sleep 600 & setsid sleep 600 & wait"]
    running = threading.Thread(
        target=lambda: said.append(holder.run(argv, {}, str(tmp_path / "errors")))
    )
    running.start()
    until(lambda: holder._child is not None and len(driver._offspring(holder._child.pid)) == 2)
    assert holder._child is not None
    below = driver._offspring(holder._child.pid)
    assert holder.kill()
    running.join()
    assert said == [""]
    until(lambda: not [pid for pid in below if Path(f"/proc/{pid}/exe").exists()])


def test_launches_waiting_for_room_block_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    room = threading.Event()

    def call(what: str, **args: Any) -> object:
        if what == "launch":
            room.wait()
        if what == "ended":
            threading.Event().wait()  # in a thread that ends with us
            return []
        return what

    monkeypatch.setattr(driver.Driver, "_connect", lambda self, address: call)
    out = io.BytesIO()
    many = [{"id": number, "do": "launch"} for number in range(driver.LAUNCHES + 1)]
    asked = [*many, {"id": 1000, "do": "look"}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(one) + "\n" for one in asked)))
    made = driver.Driver("auto", out)
    made.serve()
    try:
        until(lambda: b'"look"' in out.getvalue())
        assert b'"launch"' not in out.getvalue()
    finally:
        room.set()
        made._launches.shutdown()


def test_groups_of_machines_that_died_are_removed_by_their_numbers(
    ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def group(name: str, state: str, number: str) -> dict[str, Any]:
        return {
            "name": name, "state": state, "placement_group_id": number,
            "bundles_to_node_id": {}, "bundles": {},
        }  # fmt: skip

    removed: list[str] = []

    def remove(number: bytes) -> None:
        removed.append(number.hex())
        if number == b"\xaa":
            raise RuntimeError("gone by itself")

    groups = [
        group("themis-a", "RESCHEDULING", "aa"), group("themis-b", "RESCHEDULING", "bb"),
        group("themis-c", "CREATED", "cc"), group("others", "RESCHEDULING", "dd"),
    ]  # fmt: skip
    ray.PlacementGroupID = lambda number: number
    ray.nodes = list
    ray.util = SimpleNamespace(
        placement_group_table=lambda: dict(enumerate(groups)),
        remove_placement_group=remove,
        list_named_actors=list,
    )
    module = SimpleNamespace(PlacementGroup=lambda number: number)
    monkeypatch.setitem(sys.modules, "ray.util", ray.util)
    monkeypatch.setitem(sys.modules, "ray.util.placement_group", module)
    monkeypatch.setattr(driver, "_free", dict)
    assert set(driver.RayCalls().look()["groups"]) == {"themis-a", "themis-b", "themis-c"}
    assert removed == ["aa", "bb"]
