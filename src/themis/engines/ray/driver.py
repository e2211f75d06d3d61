"""The driver process of the bridge: the only engine file that imports Ray.

    python driver.py ADDRESS < requests > answers

A program of its own, run by the Python that has Ray, which need not be Themis's: Ray wants drivers
of exactly its version, its calls block while its head is away, and it ends its process when that
takes long. Lines of JSON go in, `{"id": 1, "do": "look"}`, and out, `{"id": 1, "ok": ...}`. It ends
when its input does. Groups and actors are detached and run on, under the names of starts.

At `auto` it is a driver on a machine of the cluster. At `ray://HOST:PORT` it is a client of Ray,
where every call is a task; an actor beside the head then does the work of all calls.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

NAMESPACE = "themis"
PREFIX = "themis-"
HEAD = "node:__internal_head__"
"""A resource of the head's machine alone."""
HOMELESS = "RESCHEDULING"
"""A group's state when its machine has died."""
LAUNCHES = 64
"""At a time: a launch may wait long for room."""
CALLS = 16
"""Other calls at a time; they never wait for launches."""
KILL_WAIT = 5.0
"""Seconds for a holder to kill its job."""
SUBREAPER_WAIT = 1.0
"""Seconds for a subreaper without descendants to end."""
ANSWER_WAIT = 0.5
"""Seconds for a holder's answers to get away before it ends."""


class Holder:
    """The actor in a placement group: it starts a subreaper on the GPUs that Ray gave, and waits.

    The subreaper starts the supervisor and dies with this process, or Ray kills it at the end of
    it; then the supervisor ends the job. The subreaper kills what a supervisor leaves behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._killed = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, argv: list[str], env: dict[str, str], errors: str) -> str:
        """Wait until none of it is alive, then end. Returns why it never started, if so."""
        why = ""
        try:
            child = self._start(argv, env, errors)
        except Exception as error:  # any error is reported to the engine
            why = f"{os.uname().nodename}: {type(error).__name__}: {error}"[:600]
        else:
            if child is not None:
                child.wait()
        # Not by Ray's own way, which would wait for the child that has ended. The caller must get
        # the answer first.
        threading.Timer(ANSWER_WAIT, os._exit, [0]).start()
        return why

    def _start(
        self, argv: list[str], env: dict[str, str], errors: str
    ) -> "subprocess.Popen[bytes] | None":
        import ray  # noqa: PLC0415 - see above

        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        told = {"CUDA_VISIBLE_DEVICES": ",".join(gpus), "THEMIS_HOLDER": str(os.getpid())}
        with self._lock, open(errors, "ab") as out:
            if not self._killed:
                self._child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=out,
                    env=env | told,
                    cwd="/",
                    start_new_session=True,
                )
            return self._child

    def kill(self) -> bool:
        """Kill all that was started here, and see it dead."""
        with self._lock:
            self._killed = True
            child = self._child
        empty = 0.0
        while child is not None and child.poll() is None:
            # Not the subreaper, which adopts orphans: it ends when it has no descendants.
            found = _offspring(child.pid)
            empty = 0.0 if found else empty or time.monotonic()
            if empty and time.monotonic() > empty + SUBREAPER_WAIT:
                found = [child.pid]
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in found:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            time.sleep(0.01)
        return True


def _offspring(pid: int) -> list[int]:
    """The processes below this one that are not dead."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
                children.setdefault(int(parent), []).append(int(entry) if state != "Z" else 0)
    found: list[int] = []
    front = [pid]
    while front:
        front = [child for one in front for child in children.get(one, ()) if child]
        found += front
    return found


class RayCalls:
    """All calls to Ray. Runs in a driver, or in an actor for a client."""

    def __init__(self) -> None:
        self._waiting: dict[Any, str] = {}
        self._more = threading.Event()
        self._lock = threading.Lock()

    def look(self) -> dict[str, Any]:
        """Starts, actors and machines, in this order, so that no living actor is missed."""
        import ray  # noqa: PLC0415 - see above

        table = ray.util.placement_group_table().values()
        for group in table:
            if group["name"].startswith(PREFIX) and group["state"] == HOMELESS:
                _remove(group["placement_group_id"])
        groups = {
            group["name"]: [
                group["state"],
                group["bundles_to_node_id"].get(0, ""),
                int(group["bundles"].get(0, {}).get("GPU", 0)),
            ]
            for group in table
            if group["name"].startswith(PREFIX) and group["state"] != "REMOVED"
        }
        return {
            "groups": groups,
            "actors": ray.util.list_named_actors(),
            "nodes": [_node(node) for node in ray.nodes()],
            "free": _free(),
        }

    def launch(
        self,
        name: str,
        node: str,
        gpus: int,
        cpus: int,
        argv: list[str],
        env: dict[str, str],
        errors: str,
        patience: float,
    ) -> str:
        """Make a group on this machine with a holder in it; returns why not, if so."""
        import ray  # noqa: PLC0415 - see above
        from ray.util.scheduling_strategies import (  # noqa: PLC0415 - see above
            PlacementGroupSchedulingStrategy,
        )

        bundle = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
        group = ray.util.placement_group(
            [bundle],
            name=name,
            lifetime="detached",
            bundle_label_selector=[{"ray.io/node-id": node}],
        )
        # An infeasible group stays pending, and Ray does not say so.
        if not group.wait(patience):
            ray.util.remove_placement_group(group)
            return "Ray has no room for it"
        holder = ray.remote(Holder).options(
            name=name,
            lifetime="detached",
            namespace=NAMESPACE,
            max_restarts=0,
            max_concurrency=4,
            num_cpus=cpus,
            num_gpus=gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
        )
        ended = holder.remote().run.remote(argv, env, errors)
        with self._lock:
            self._waiting[ended] = name
        self._more.set()
        return ""

    def ended(self, limit: float) -> list[tuple[str, str | None]]:
        """Starts that have ended, as soon as there are any, and why they never ran.

        The reason is None if the holder died before it could report.
        """
        import ray  # noqa: PLC0415 - see above

        if not self._waiting:
            self._more.wait(limit)
        self._more.clear()
        with self._lock:
            waiting = list(self._waiting)
        if not waiting:
            return []
        ready, _ = ray.wait(waiting, timeout=limit)
        told: list[tuple[str, str | None]] = []
        for item in ready:
            try:
                why = str(ray.get(item))
            except Exception:  # it died, and its job may be alive
                why = None
            with self._lock:
                told.append((self._waiting.pop(item), why))
        return told

    def cancel(self, name: str, hard: bool) -> bool:
        """Give back a start's group; True: no process of it can be alive.

        Removing a group kills its holder only, so the holder is asked to kill its job first. Raises
        if it does not confirm that: then it keeps its job and its GPUs.
        """
        import ray  # noqa: PLC0415 - see above

        gone = (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnschedulableError)
        sure = True
        if hard:
            try:
                holder = ray.get_actor(name, NAMESPACE)
                ray.get(holder.kill.remote(), timeout=KILL_WAIT)
            except (ValueError, *gone):
                sure = False
        with contextlib.suppress(ValueError):
            ray.util.remove_placement_group(ray.util.get_placement_group(name))
        return sure


def _remove(number: str) -> None:
    """Remove a group whose machine has died, by its id: another may have its name by now.

    It is bound to that node, which never comes back: Ray would keep it for ever, and an autoscaler
    would start machines for it.
    """
    import ray  # noqa: PLC0415 - see above
    from ray.util.placement_group import PlacementGroup  # noqa: PLC0415 - see above

    with contextlib.suppress(Exception):  # the next look tries again
        group = PlacementGroup(ray.PlacementGroupID(bytes.fromhex(number)))
        ray.util.remove_placement_group(group)


def _node(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": node["NodeID"],
        "alive": node["Alive"],
        "why": node.get("DeathReasonMessage", ""),
        "host": node.get("NodeManagerHostname", ""),
        "address": node.get("NodeManagerAddress", ""),
        "gpus": int(node.get("Resources", {}).get("GPU", 0)),
        "labels": node.get("Labels", {}),
    }


def _free() -> dict[str, float]:
    """Free GPUs by machine; empty if this version of Ray does not tell."""
    try:
        from ray._private import state  # noqa: PLC0415 - Ray has no public way to ask

        found = state.available_resources_per_node()
    except Exception:  # a private function may change in any way
        return {}
    return {node: float(resources.get("GPU", 0.0)) for node, resources in found.items()}


class Driver:
    """Answers requests, several at a time."""

    def __init__(self, address: str, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._launches = ThreadPoolExecutor(LAUNCHES)
        self._calls = ThreadPoolExecutor(CALLS)
        self._call = self._connect(address)

    def _connect(self, address: str) -> Callable[..., Any]:
        import ray  # noqa: PLC0415 - takes a second

        given = {"namespace": NAMESPACE, "log_to_driver": False}
        if address.startswith("ray://"):
            ray.init(address, **given)
            office = ray.remote(RayCalls).options(
                # and one for `listen`
                num_cpus=0,
                max_concurrency=LAUNCHES + CALLS + 1,
                resources={HEAD: 0.001},
            )
            far = office.remote()
            ray.get(far.ended.remote(0.0))  # it takes a while to start
            return lambda what, **args: ray.get(getattr(far, what).remote(**args))
        ray.init(address, **given)
        near = RayCalls()
        return lambda what, **args: getattr(near, what)(**args)

    def serve(self) -> None:
        """Serve until the input ends."""
        self.say({"ok": "ready"})
        threading.Thread(target=self.listen, daemon=True).start()
        for line in sys.stdin:
            request = json.loads(line)
            pool = self._launches if request.get("do") == "launch" else self._calls
            pool.submit(self.answer, request)

    def answer(self, request: dict[str, Any]) -> None:
        """Carry out a request."""
        number, what = request.pop("id"), request.pop("do")
        try:
            self.say({"id": number, "ok": self._call(what, **request)})
        except BaseException as error:
            self.say({"id": number, "error": f"{type(error).__name__}: {error}"[:600]})

    def listen(self) -> None:
        """Report starts that have ended."""
        while True:
            try:
                for name, why in self._call("ended", limit=2.0):
                    self.say({"ended": name, "why": why})
            except Exception:  # other calls report the error
                time.sleep(1.0)

    def say(self, what: dict[str, Any]) -> None:
        """Write one line."""
        with self._lock:
            self._out.write(json.dumps(what).encode() + b"\n")
            self._out.flush()


def main() -> None:
    """Be the driver."""
    # Ray's own output must not mix with the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        Driver(sys.argv[1], out).serve()
    except BaseException as error:
        out.write(json.dumps({"error": f"{type(error).__name__}: {error}"[:600]}).encode())
        out.flush()
        os._exit(1)
    # Ray's own cleanup may hang when its head is gone.
    os._exit(0)


if __name__ == "__main__":
    main()
