"""Engines side by side: wall-clock times, medians, one JSON line per engine.

python benchmarks/engines.py --rounds 10 --engines local,slurm,ray

start_ms       lease granted to process running: from `start` to `ProgramStarted`
revoke_ms      from `checkpoint` to `ProgramExited`, of a job that goes when it is asked to
change_ms      both, with the next job on the same GPUs: a lease that goes to somebody else
bare_ms        the same change without Themis: the engine's own commands
overhead_ms    what Themis adds to it, in changes with and without it by turns; at most 200
crowd_s        100 jobs (--crowd) started at once, until all run
death_s        from a machine's power cut to its job running on another one (with --deaths), where
               leases are of 120 s, a node lives unheard for 8 s, and the guard is 3 s

Exits 1 when the overhead is above the bar. Engines that are not installed say so, and are left out.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from tests.support.grpc_service import until
from tests.support.ray import RayCluster, ray_cluster
from tests.support.scripted_world import simple_app
from tests.support.service_processes import OWNER, SHORT, open_stage
from tests.support.slurm import PACKAGES, SlurmCluster, slurm_cluster
from themis.engines.base import Engine, ProgramExited, ProgramStarted
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.ray.cluster import RayCluster as Ray
from themis.engines.ray.cluster import RaySettings
from themis.engines.slurm.cluster import SlurmCluster as Slurm
from themis.engines.task import Task

BAR_MS = 200.0
CROWD = 100
GPUS = 8
JOB = ("/bin/sh", "-c", "trap 'exit 75' TERM; sleep 600 & wait $!")
PATIENT = {**SHORT, "lease": 120.0, "grace": 2.0, "bid_deadline": 30.0, "solve_budget": 15.0}
OWNERS = Owners.trusting("nobody")
Bare = Callable[[Path], float]
"""One change without Themis, in seconds."""


async def changes(engine: Engine, rounds: int, bare: Bare, place: Path) -> dict[str, float]:
    """One job after the other on all GPUs of a machine, with and without Themis in turns.

    In turns, because machines and engines have better and worse minutes.
    """
    events = engine.watch()
    starts: list[float] = []
    revokes: list[float] = []
    both: list[float] = []
    bares: list[float] = []
    for token in range(1, 2 * rounds + 1):
        task = Task(f"job-{token}", "ann", token, tuple(range(GPUS)), JOB, end=boottime.now() + 120)
        began = time.perf_counter()
        await engine.start(task)
        assert isinstance(event := await anext(events), ProgramStarted), event
        starts.append(time.perf_counter() - began)
        second = token % 2 == 0
        if second:
            both.append(revokes[-1] + starts[-1])
        began = time.perf_counter()
        await engine.checkpoint(task.job, token)
        assert isinstance(event := await anext(events), ProgramExited), event
        revokes.append(time.perf_counter() - began)
        await engine.forget(task.job, token)
        if second:
            bares.append(await asyncio.to_thread(bare, place))
    await engine.close()
    return {
        "start_ms": ms(starts),
        "revoke_ms": ms(revokes),
        "change_ms": ms(both),
        "bare_ms": ms(bares),
        "overhead_ms": ms([ours - theirs for ours, theirs in zip(both, bares, strict=True)]),
    }


async def crowd(engines: list[Engine], jobs: int) -> float:
    """Many jobs at once, spread over machines; until all of them run."""

    async def one(engine: Engine, count: int) -> None:
        events = engine.watch()
        end = boottime.now() + 300
        tasks = [Task(f"c{n}", "ann", 10_000 + n, (n,), JOB, end=end) for n in range(count)]
        await asyncio.gather(*(engine.start(task) for task in tasks))
        for _ in tasks:
            assert isinstance(event := await anext(events), ProgramStarted), event

    shares = [jobs // len(engines) + (n < jobs % len(engines)) for n in range(len(engines))]
    pairs = list(zip(engines, shares, strict=True))
    began = time.perf_counter()
    await asyncio.gather(*(one(engine, count) for engine, count in pairs))
    took = time.perf_counter() - began
    for engine, count in pairs:
        await asyncio.gather(*(engine.kill(f"c{n}", 10_000 + n) for n in range(count)))
    for engine, count in pairs:
        events = engine.watch()
        for _ in range(count):
            await anext(events)
        await engine.close()
    return took


async def measured(
    name: str,
    open_one: Callable[[int], Awaitable[Engine]],
    machines: int,
    bare: Bare,
    given: argparse.Namespace,
) -> dict[str, object]:
    """All figures of an engine but that of deaths."""
    rounds = max(2, given.rounds)
    line: dict[str, object] = {"benchmark": "engines", "engine": name, "rounds": rounds}
    place = Path(tempfile.mkdtemp(prefix="themis-bare-"))
    try:
        found = await changes(await open_one(0), rounds, bare, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    took = await crowd([await open_one(number) for number in range(machines)], given.crowd)
    return (
        line
        | found
        | {
            "crowd_s": round(took, 2),
            "crowd": given.crowd,
            "bar_ms": BAR_MS,
            "load": round(os.getloadavg()[0], 1),
        }
    )


def ms(seconds: list[float]) -> float:
    """The median in milliseconds, with a tenth."""
    return round(statistics.median(seconds) * 1000, 1)


def wait_for(file: Path) -> None:
    """Until a job has written it."""
    until = time.monotonic() + 60
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.002)


def bare_local(place: Path) -> float:
    """A process, told to go, and the next one."""
    began = took = 0.0
    for name in ("one", "two"):
        file = place / name
        script = f"trap 'exit 75' TERM; : > {file}; sleep 600 & wait $!"
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True, stdout=quiet)
        wait_for(file)
        took = time.perf_counter() - began
        if name == "one":
            began = time.perf_counter()
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        file.unlink()
    return took


def bare_slurm(cluster: SlurmCluster) -> Bare:
    """An allocation and a step in it, told to go and given back, and the next one."""

    def change(place: Path) -> float:
        place.chmod(0o777)
        began = took = 0.0
        for name in ("one", "two"):
            file = place / name
            job = f"bare-{name}"
            cluster.run("salloc", "--no-shell", f"-J{job}", "-wn0", f"--gres=gpu:{GPUS}")
            number = cluster.run("squeue", "-h", f"--name={job}", "-o%i").strip()
            script = f"trap 'exit 75' TERM; : > {file}; sleep 600 & wait $!"
            step = subprocess.Popen(
                ["srun", "-Q", f"--jobid={number}", "-n1", "/bin/sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            wait_for(file)
            took = time.perf_counter() - began
            if name == "one":
                began = time.perf_counter()
            cluster.run("scancel", "--signal=TERM", f"{number}.0", check=False)
            step.wait()
            cluster.run("scancel", number, check=False)
            file.unlink()
        return took

    return change


def bare_ray(cluster: RayCluster) -> Bare:
    """A placement group and an actor in it, told to go and removed, and the next one."""
    child = subprocess.Popen(
        [cluster.python, "-c", _BARE_RAY, str(GPUS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def change(place: Path) -> float:
        place.chmod(0o777)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{place}\n")
        child.stdin.flush()
        return float(child.stdout.readline())

    return change


_BARE_RAY = """
import os, subprocess, sys, time
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In
ray.init("auto", log_to_driver=False)

@ray.remote(max_concurrency=2)
class Job:
    def run(self, file):
        script = f"trap 'exit 75' TERM; : > {file}; sleep 600 & wait $!"
        self.child = subprocess.Popen(["/bin/sh", "-c", script])
        self.child.wait()
    def end(self):
        self.child.terminate()
        self.child.wait()

gpus = int(sys.argv[1])
(node,) = [n["NodeID"] for n in ray.nodes() if n["Labels"].get("machine") == "n0"]
for line in sys.stdin:
    began = took = 0.0
    for name in ("one", "two"):
        file = os.path.join(line.strip(), name)
        labels = [{"ray.io/node-id": node}]
        group = ray.util.placement_group([{"GPU": gpus, "CPU": 1}], bundle_label_selector=labels)
        group.wait(60)
        kind = Job.options(num_gpus=gpus, num_cpus=1, scheduling_strategy=In(group, 0))
        job = kind.remote()
        job.run.remote(file)
        while not os.path.exists(file):
            time.sleep(0.002)
        took = time.perf_counter() - began
        if name == "one":
            began = time.perf_counter()
        ray.get(job.end.remote())
        ray.util.remove_placement_group(group)
        os.unlink(file)
    print(took, flush=True)
"""


def death(cluster: SlurmCluster | RayCluster | None, engine: str = "") -> float:
    """From a power cut to the job running elsewhere, through a service."""
    with folder() as place:
        return asyncio.run(_death(place, cluster, engine))


async def _death(place: Path, cluster: SlurmCluster | RayCluster | None, engine: str) -> float:
    machines = dict.fromkeys(cluster.nodes, GPUS) if cluster else {"n0": 1, "n1": 1}
    stage_of = open_stage(
        place, machines, settings=PATIENT, node_ttl=8.0, policy="fifo", engine=engine
    )
    async with stage_of as stage:
        spec = simple_app("app", owner=OWNER)
        await stage.submit(spec)
        await stage.agent(spec)
        await until(lambda: bool(stage.starts()), 120.0)
        (machine,) = {gpu.partition(".")[0] for gpu in stage.lines()}
        began = time.perf_counter()
        if cluster:
            await asyncio.to_thread(cluster.kill, machine)
        else:
            for pid in (stage.node_pid(machine), *stage.jobs_alive()):
                os.kill(pid, signal.SIGKILL)
        await until(lambda: len(stage.starts()) > 1, 240.0)
        return time.perf_counter() - began


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A place that jobs of other users can pass through."""
    place = Path(tempfile.mkdtemp(prefix="themis-bench-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run_local(given: argparse.Namespace) -> dict[str, object]:
    """The local engine."""
    with folder() as place:

        async def open_one(number: int) -> Engine:
            machine = PretendGpus(f"m{number}", slots=(max(GPUS, given.crowd),))
            return await LocalEngine.open(place / f"m{number}", machine, OWNERS)

        line = asyncio.run(measured("local", open_one, 1, bare_local, given))
    return line | ({"death_s": round(death(None), 1)} if given.deaths else {})


def run_slurm(given: argparse.Namespace) -> dict[str, object]:
    """Sixteen machines of Slurm, of eight GPUs each."""
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        why = f"needs root, and {', '.join(missing) or 'nothing else'}"
        return {"benchmark": "engines", "engine": "slurm", "skipped": why}
    with slurm_cluster(nodes=16, gpus=GPUS) as cluster, folder() as place:
        os.environ.update(cluster.environment)
        shared = Slurm(place)

        async def open_one(number: int) -> Engine:
            await shared.look()
            return await shared.open(f"n{number}", OWNERS)

        line = asyncio.run(measured("slurm", open_one, 16, bare_slurm(cluster), given))
    if given.deaths:
        with slurm_cluster(nodes=2, gpus=GPUS) as cluster:
            os.environ.update(cluster.environment)
            line["death_s"] = round(death(cluster, "slurm"), 1)
    return line


def run_ray(given: argparse.Namespace) -> dict[str, object]:
    """Four machines of Ray, with as many GPUs as the crowd needs."""
    if importlib.util.find_spec("ray") is None or os.geteuid() != 0:
        why = "needs root, and the Python package ray"
        return {"benchmark": "engines", "engine": "ray", "skipped": why}
    gpus = max(GPUS, -(-given.crowd // 4))
    with ray_cluster(nodes=4, gpus=gpus) as cluster, folder() as place:
        os.environ.update(cluster.environment)

        async def all_of_it() -> dict[str, object]:
            settings = RaySettings(python=str(cluster.python), pending=300.0)
            shared = Ray(place, settings=settings)

            async def open_one(number: int) -> Engine:
                await shared.look()
                return await shared.open(f"n{number}", OWNERS)

            try:
                return await measured("ray", open_one, 4, bare_ray(cluster), given)
            finally:
                await shared.close()

        line = asyncio.run(all_of_it())
    if given.deaths:
        with ray_cluster(nodes=2, gpus=GPUS) as cluster:
            os.environ.update(cluster.environment)
            line["death_s"] = round(death(cluster, "ray"), 1)
    return line


def main() -> int:
    """Measure each engine that works here."""
    parser = argparse.ArgumentParser(description="Engines side by side.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="local,slurm,ray")
    parser.add_argument("--crowd", type=int, default=CROWD)
    parser.add_argument("--deaths", action="store_true")
    given = parser.parse_args()
    runs = {"local": run_local, "slurm": run_slurm, "ray": run_ray}
    slow = False
    for name in given.engines.split(","):
        line = runs[name](given)
        print(json.dumps(line), flush=True)
        over = line.get("overhead_ms", 0.0)
        slow = slow or (isinstance(over, float) and over > BAR_MS)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
