"""What must hold with a service on a cluster of any engine, whatever breaks in it.

    class TestMine(ServiceContract):
        @pytest.fixture
        def open_cluster(self) -> OpenCluster:
            require_mine()
            return my_cluster           # my_cluster(nodes, gpus): a context manager

Clusters are real, jobs are shell scripts that write down what they do:
`tests.support.gpu_share_audit` finds GPUs that were shared, and jobs that were alive twice. Nothing
is timed; limits are there so that nothing hangs.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.grpc_service import until
from tests.support.log_replay import spoken_for
from tests.support.real_clusters import (
    ITERATIONS,
    LONG,
    PATIENT,
    OpenCluster,
    RealCluster,
    busy,
    check,
    grows,
    holder,
    on,
    over,
    play,
    staged,
    starts_of,
    submitted,
    sweep,
    toys,
    where,
)
from tests.support.service_processes import SHORT


class ServiceContract:
    """Tests for an engine whose clusters come from the fixture `open_cluster`."""

    machines: ClassVar[int] = 16
    """Of the cluster that tenants share."""

    @pytest.fixture
    def place(self) -> Iterator[Path]:
        """A folder that jobs of other users can pass through."""
        folder = Path(tempfile.mkdtemp(prefix="themis-stage-"))
        folder.chmod(0o755)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def test_jobs_start_are_revoked_and_go_on_elsewhere_when_their_machine_dies(
        self, open_cluster: OpenCluster, place: Path
    ) -> None:
        """The short of it."""

        async def scene(cluster: RealCluster) -> None:
            async with staged(cluster, place, policy="fifo") as stage:
                one = await toys(stage, "one", 1)
                await until(lambda: one.running == 1, LONG)
                two = await toys(stage, "two", 1)
                await until(lambda: two.running == 1 and len(stage.starts()) == 2, LONG)
                dead = where(stage, "one")
                cluster.kill(dead)
                two.finish()  # The only GPU that is left is taken from it.
                await until(lambda: where(stage, "one") != dead, LONG)
                check(stage)
                one.finish()
                await until(lambda: not stage.jobs_alive() and not cluster.held(), LONG)

        play(open_cluster(2, 1), scene)

    def test_three_tenants_sweep_to_the_end_whatever_breaks(
        self, open_cluster: OpenCluster, place: Path
    ) -> None:
        """A machine dies, the head restarts, the service is killed, a machine is cut off."""

        async def scene(cluster: RealCluster) -> None:
            async with staged(cluster, place) as stage:
                resumed = place / "resumed"
                resumed.touch()
                resumed.chmod(0o666)
                apps = [await submitted(stage, name, resumed) for name in ("ann", "bob", "eve")]
                await until(lambda: len(stage.starts()) >= 6 and len(busy(stage)) >= 2, LONG)
                dead = busy(stage)[0]
                cluster.kill(dead)
                cluster.kill(cluster.head)
                await stage.kill()
                cluster.start(cluster.head)
                await asyncio.to_thread(cluster.until_up)
                await stage.start()
                await stage.joined(len(cluster.nodes) - 1)
                await until(lambda: bool(busy(stage)), LONG)
                lonely = busy(stage)[-1]
                assert lonely != dead
                cluster.cut(lonely)
                await stage.joined(len(cluster.nodes) - 2)
                cluster.mend(lonely)
                cluster.start(dead)
                for app in apps:
                    found = await over(stage, app)
                    assert found["outcome"] == "finished"
                    by_param = {job["params"]["q"]: job for job in found["jobs"]}
                    assert found["best"] == by_param[3]["job"]
                    assert by_param[3]["iterations"] == ITERATIONS
                check(stage)
                await stage.joined()
                await until(lambda: not stage.jobs_alive() and not cluster.held(), LONG)
            told = [line.split() for line in resumed.read_text(encoding="utf-8").splitlines()]
            victims = {job for job, machine, _ in told if machine == dead}
            later = [int(n) for job, machine, n in told if job in victims and machine != dead]
            assert any(later), "what was lost with its machine goes on from its checkpoint"

        play(open_cluster(self.machines, 2), scene)

    def test_nothing_is_shared_or_started_twice_whatever_is_killed(
        self, open_cluster: OpenCluster, place: Path
    ) -> None:
        """The service, the bridge, the head; then a machine, whose jobs go on elsewhere."""

        async def scene(cluster: RealCluster) -> None:
            # A bridge that is killed is back before its nodes are given up, on a busy machine too.
            held = {"settings": PATIENT, "node_ttl": 30.0}
            async with staged(cluster, place, policy="fifo", **held) as stage:
                agent = await toys(stage, "sweep", 3)
                await until(lambda: agent.running == 3 and len(stage.starts()) == 3, LONG)
                before = stage.starts()
                await stage.kill()
                await stage.start()
                await stage.joined()
                await grows(stage)
                bridge = holder(stage)
                os.kill(bridge, signal.SIGKILL)
                await until(lambda: holder(stage) not in {0, bridge}, LONG)
                await stage.joined()
                await grows(stage)
                cluster.kill(cluster.head)
                await grows(stage, 100)
                cluster.start(cluster.head)
                await asyncio.to_thread(cluster.until_up)
                await grows(stage)
                assert stage.starts() == before, "training was started again"
                check(stage)
                dead, count = busy(stage)[0], len(stage.starts())
                cluster.kill(dead)
                written = on(stage, dead)
                await until(lambda: agent.running == 3 and len(stage.starts()) > count, LONG)
                assert on(stage, dead) == written
                await stage.joined(len(cluster.nodes) - 1)
                # It comes back, and is used again.
                cluster.start(dead)
                await stage.joined()
                more = await toys(stage, "more", 6)
                await until(lambda: more.running >= 3 and on(stage, dead) > written, LONG)
                check(stage)

        play(open_cluster(3, 2), scene)

    @pytest.mark.parametrize("hangs", [False, True], ids=["cut off", "hung"])
    def test_lost_machine_that_returns_has_nothing_of_its_past(
        self, open_cluster: OpenCluster, place: Path, hangs: bool
    ) -> None:
        """Supervisors end jobs while nobody can tell them to, or when they are awake again."""

        async def scene(cluster: RealCluster) -> None:
            async with staged(cluster, place, policy="fifo") as stage:
                agent = await toys(stage, "one", 1)
                await until(lambda: agent.running == 1 and bool(stage.starts()), LONG)
                away = where(stage, "one")
                (cluster.stop if hangs else cluster.cut)(away)
                await until(lambda: where(stage, "one") != away, LONG)
                if not hangs:
                    check(stage)
                (cluster.go_on if hangs else cluster.mend)(away)
                await stage.joined()
                # The other machine is taken, so this is where that one came back.
                more = await toys(stage, "more", 1)
                await until(lambda: more.running == 1 and bool(starts_of(stage, "more")), LONG)
                assert where(stage, "more") == away
                stage.check()

        play(open_cluster(2, 1), scene)

    def test_jobs_end_with_their_leases_in_an_outage(
        self, open_cluster: OpenCluster, place: Path
    ) -> None:
        """Neither service nor bridge; the next ones find that out, and start them again."""

        async def scene(cluster: RealCluster) -> None:
            async with staged(cluster, place, policy="fifo") as stage:
                agent = await toys(stage, "one", 2)
                await until(lambda: agent.running == 2 and len(stage.starts()) == 2, LONG)
                await stage.kill()
                os.kill(holder(stage), signal.SIGKILL)
                await until(lambda: not stage.jobs_alive(), LONG)
                before = len(stage.starts())
                await stage.start()
                await stage.joined()
                await until(lambda: agent.running == 2 and len(stage.starts()) > before, LONG)
                check(stage)

        play(open_cluster(2, 1), scene)

    def test_a_job_on_several_machines_runs_on_all_of_them_or_none(
        self, open_cluster: OpenCluster, place: Path
    ) -> None:
        """Also when one of them dies."""
        train = """
            file=$AUDIT/$THEMIS_RANK.x
            echo "$THEMIS_RANK of $THEMIS_WORLD_SIZE at $THEMIS_RENDEZVOUS" > "$file"
            trap 'exit 75' TERM; sleep 600 & wait $!
        """

        async def scene(cluster: RealCluster) -> None:
            async with staged(cluster, place, policy="fifo") as stage:
                app = {
                    "name": "wide", "command": ["/bin/sh", "-c", train],
                    "env": {"AUDIT": str(stage.audit)}, "workdir": "/",
                    "gpus": {"per_job_min": 4, "per_job_max": 4}, "duration": "1h",
                }  # fmt: skip
                await asyncio.to_thread(stage.client().submit, app, None)

                def said() -> set[str]:
                    return {file.read_text("utf-8").strip() for file in stage.audit.glob("*.x")}

                for turn in range(2):
                    await until(lambda: len(said()) == 2 and "" not in said(), LONG)
                    assert len({line.partition(" at ")[2] for line in said()}) == 1, "one place"
                    assert {line.partition(" at ")[0] for line in said()} == {"0 of 2", "1 of 2"}
                    if turn:
                        return
                    cluster.kill(cluster.nodes[0])
                    await until(lambda: not stage.jobs_alive(), LONG)
                    for file in stage.audit.glob("*.x"):
                        file.unlink()
                    cluster.start(cluster.nodes[0])

        play(open_cluster(2, 2), scene)

    def test_logs_of_arbiter_and_agents_replayed_give_the_same_decisions(
        self, open_cluster: OpenCluster, place: Path
    ) -> None:
        """Bids, grants, starts and stops; and what was put in another order is found."""

        async def scene(cluster: RealCluster) -> None:
            async with staged(cluster, place, settings=SHORT) as stage:
                # The first holds all GPUs when the second one comes, for longer than a lease.
                longest = round(ITERATIONS * cluster.pace)
                two = {
                    "search": {"method": "grid", "params": {"q": [7, 3]}},
                    "stop": {"method": "halving", "max_iterations": longest},
                }
                files = [sweep(stage, name, place / "resumed") | two for name in ("one", "two")]
                logs = await spoken_for(stage, files, lambda: len(stage.starts()) >= 2)
                await stage.kill(signal.SIGTERM)
                check(stage)
                logs.check()

        play(open_cluster(2, 1), scene)
