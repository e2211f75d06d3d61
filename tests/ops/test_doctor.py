"""The doctor: each check on a machine that pretends."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from themis.config.addresses import Address
from themis.config.keys import NodeConfig, Ray, Retention, ServiceConfig, Tls
from themis.engines.ray.driver_client import ray_version
from themis.engines.slurm.commands import NEEDED
from themis.errors import ConfigError, ThemisError, UnavailableError
from themis.ops.doctor import (
    CHECKS,
    CheckVerdict,
    Finding,
    GpuFound,
    check_engine,
    check_local_nodes,
    examine_machine,
)
from themis.ops.engine_facts import EngineProbe
from themis.ops.host_facts import LocalMachine, filesystem_of

NOW = 1_800_000_000.0


@dataclass
class PretendProbe:
    kind: str = "cgroup"
    found: tuple[GpuFound, ...] = (GpuFound("gpu 0"), GpuFound("gpu 1"))
    broken: bool = False
    away: ThemisError | None = None

    def cluster(self, config: ServiceConfig) -> str:
        if self.away is not None:
            raise self.away
        return "2 machines"

    def control(self) -> str:
        return self.kind

    def reasons(self) -> Sequence[str]:
        return ("cgroup: no cgroup version 2 is mounted",) if self.kind == "tree" else ()

    def gpus(self) -> Sequence[GpuFound]:
        return self.found

    def store(self, url: str) -> str:
        if self.broken:
            raise UnavailableError("the file is damaged")
        return "version 1"


@dataclass
class PretendMachine:
    """Everything is fine unless said otherwise."""

    probe: PretendProbe = field(default_factory=PretendProbe)
    user: int = 0
    known: tuple[str, ...] = ("ann", "2002", "nobody")
    free: int = 10**12
    closed: tuple[Path, ...] = ()
    kind: str = "nfs4"
    clock: bool | None = True
    taken: tuple[int, ...] = ()
    there: bool = True

    def uid(self) -> int:
        return self.user

    def account_exists(self, account: str) -> bool:
        return account in self.known

    def free_bytes(self, folder: Path) -> int:
        return self.free

    def writable(self, folder: Path) -> bool:
        return folder not in self.closed

    def is_folder(self, folder: Path) -> bool:
        return self.there

    def marked_by(self, folder: Path) -> list[str]:
        return ["m0", "m1"]

    def filesystem(self, folder: Path) -> str:
        return self.kind

    def clock_synchronised(self) -> bool | None:
        return self.clock

    def port_free(self, address: Address) -> bool:
        return address.port not in self.taken


FINE = ServiceConfig(shared_dir=Path("/shared"), accounts={"vision": "ann", "ads": "2002"})
TRUSTING = ServiceConfig(shared_dir=Path("/shared"), trust_tenants=True)


def findings(
    machine: PretendMachine, config: ServiceConfig = FINE, now: float = NOW
) -> tuple[Finding, ...]:
    return examine_machine(machine, config, now=now)


def test_a_machine_where_all_is_well_gets_no_advice() -> None:
    found = findings(PretendMachine())
    assert {item.verdict for item in found} == {CheckVerdict.OK}
    assert {item.advice for item in found} == {""}
    none = len([check_engine, check_local_nodes])
    assert len({item.check for item in found}) == len(CHECKS) - none, "of neither there are any"


LAB = "racks: [{machines: [{count: 2, prefix: m, slots: 2x2}]}]\n"


@pytest.mark.parametrize(
    ("user", "config", "verdict", "word"),
    [
        (0, ServiceConfig(), "failed", "trust_tenants"),
        (0, ServiceConfig(accounts={"vision": "nobody"}), "ok", "2 machines with 8 pretend GPUs"),
        (1000, ServiceConfig(), "failed", "--trust-tenants"),
        (1000, ServiceConfig(node=NodeConfig(owner="vision")), "ok", "8 pretend GPUs"),
    ],
)
def test_local_nodes_that_could_not_start_are_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    config: ServiceConfig,
    verdict: str,
    word: str,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    file = tmp_path / "lab.yaml"
    file.write_text(LAB)
    found = findings(PretendMachine(user=user), replace(config, local_nodes=file))
    (item,) = (item for item in found if item.check == "local nodes")
    assert (item.verdict, word in item.what) == (CheckVerdict(verdict), True), item
    gone = findings(PretendMachine(user=user), replace(config, local_nodes=tmp_path / "none"))
    assert CheckVerdict.FAILED in {item.verdict for item in gone if item.check == "local nodes"}


@pytest.mark.parametrize(
    ("machine", "config", "check", "verdict", "word"),
    [
        (PretendMachine(PretendProbe("tree")), FINE, "process control", "warning", "quarantines"),
        (PretendMachine(PretendProbe(found=())), FINE, "GPUs", "warning", "none found"),
        (
            PretendMachine(PretendProbe(found=(GpuFound("gpu 3", "ECC error"),))),
            FINE, "GPUs", "warning", "gpu 3: ECC error",
        ),
        (PretendMachine(user=1000), TRUSTING, "accounts", "warning", "node's own user"),
        (PretendMachine(user=1000), FINE, "accounts", "warning", "none is named"),
        (
            PretendMachine(user=1000), ServiceConfig(node=NodeConfig(owner="vision")),
            "accounts", "ok", "serves vision only",
        ),
        (PretendMachine(), TRUSTING, "accounts", "warning", "all jobs run as nobody"),
        (PretendMachine(known=()), TRUSTING, "accounts", "failed", "no such user: nobody"),
        (PretendMachine(), ServiceConfig(), "accounts", "warning", "no owner has an account"),
        (PretendMachine(known=("ann",)), FINE, "accounts", "warning", "ads (2002)"),
        (
            PretendMachine(known=("7:1", "7:2")), ServiceConfig(accounts={"a": "7:1", "b": "7:2"}),
            "accounts", "failed", "a, b",
        ),
        (PretendMachine(closed=(FINE.state_dir,)), FINE, "disk", "failed", "cannot be written"),
        (PretendMachine(free=10**8), FINE, "disk", "failed", "0.1 GB"),
        (PretendMachine(free=10**9), FINE, "disk", "warning", "1.0 GB"),
        (PretendMachine(clock=False), FINE, "clock", "warning", "not synchronised"),
        (PretendMachine(clock=None), FINE, "clock", "skipped", "does not tell"),
        (PretendMachine(taken=(7421,)), FINE, "ports", "warning", "http 127.0.0.1:7421 is taken"),
        (PretendMachine(kind="ext4"), FINE, "shared storage", "warning", "ext4"),
        (PretendMachine(), ServiceConfig(), "shared storage", "warning", "none is named"),
        (PretendMachine(closed=(Path("/shared"),)), FINE, "shared storage", "failed", "/shared"),
        (PretendMachine(there=False), FINE, "shared storage", "failed", "not exist"),
        (PretendMachine(), FINE, "shared storage", "ok", "m0, m1"),
        (PretendMachine(PretendProbe(broken=True)), FINE, "store", "failed", "damaged"),
        (
            PretendMachine(), ServiceConfig(tls=Tls(cert=Path("none.pem"), key=Path("none.key"))),
            "certificates", "failed", "none.pem",
        ),
    ],
)  # fmt: skip
def test_obstacles_are_found(
    machine: PretendMachine, config: ServiceConfig, check: str, verdict: str, word: str
) -> None:
    found = [item for item in findings(machine, config) if item.check == check]
    assert verdict in [item.verdict for item in found]
    assert any(word in item.what for item in found if item.verdict == verdict)


MISSING = ConfigError("ray.python", "python3", "a Python that has Ray")
SILENT = UnavailableError("scontrol: error:\nno controller")


@pytest.mark.parametrize("engine", ["ray", "ray://head:10001", "slurm"])
@pytest.mark.parametrize(
    ("away", "verdict", "word"),
    [(None, "ok", "2 machines"), (MISSING, "failed", "that has Ray"), (SILENT, "failed", "r: no")],
)
def test_doctor_checks_a_cluster_engines_cluster_and_not_this_machine(
    engine: str, away: ThemisError | None, verdict: str, word: str
) -> None:
    machine = PretendMachine(PretendProbe("tree", found=(), away=away))
    told = {item.check: item for item in findings(machine, replace(TRUSTING, engine=engine))}
    found = told["engine"]
    assert (found.verdict, word in found.what) == (CheckVerdict(verdict), True)
    assert bool(found.advice) is (away is not None)
    for check in ("GPUs", "process control"):
        assert (told[check].verdict, told[check].advice) == (CheckVerdict.SKIPPED, "")


def test_keys_that_an_engine_lacks_are_found_as_well_as_its_cluster() -> None:
    config = ServiceConfig(engine="slurm")
    found = [item for item in findings(PretendMachine(), config) if item.check == "engine"]
    assert [item.verdict for item in found] == [CheckVerdict.FAILED, CheckVerdict.OK]
    assert "shared_dir" in found[0].what


def tool(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_slurm_is_available_with_its_commands_and_one_live_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = replace(TRUSTING, engine="slurm")
    for name in NEEDED[:-1]:
        tool(tmp_path, name, "exit 0")
    with pytest.raises(ConfigError, match="without `sinfo` on the PATH"):
        EngineProbe().cluster(config)
    tool(tmp_path, "sinfo", "exit 0")
    for said, other, up in (("DOWN", "DOWN", False), ("UP", "DOWN", True), ("DOWN", "UP", True)):
        both = f'echo "Slurmctld(primary) at c is {said}"; echo "Slurmctld(backup) at d is {other}"'
        tool(tmp_path, "scontrol", f'[ "$1" = ping ] || exit 1; {both}')
        if up:
            assert f"at c is {said}; " in EngineProbe().cluster(config)
            continue
        with pytest.raises(UnavailableError, match="c is DOWN"):
            EngineProbe().cluster(config)


def test_ray_is_there_when_the_configured_python_has_it(tmp_path: Path) -> None:
    config = replace(TRUSTING, engine="ray", ray=Ray(python=tool(tmp_path, "has", "echo 2.60.0")))
    assert "Ray 2.60.0" in EngineProbe().cluster(config)
    lacks = tool(tmp_path, "lacks", """echo "No module named 'ray'" >&2; exit 1""")
    with pytest.raises(ConfigError, match=r"lacks \(No module named 'ray'\)"):
        EngineProbe().cluster(replace(config, ray=Ray(python=lacks)))
    with pytest.raises(ConfigError, match=r"ray\.python"):
        EngineProbe().cluster(replace(config, ray=Ray(python=tmp_path / "none")))
    with pytest.raises(UnavailableError, match="took more than"):
        ray_version(str(tool(tmp_path, "slow", "exec sleep 600")), limit=0.2)


def test_closed_ray_port_is_reported(tmp_path: Path) -> None:
    python = tool(tmp_path, "python", "echo 2.60.0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = replace(
            TRUSTING, engine=f"ray://127.0.0.1:{server.getsockname()[1]}", ray=Ray(python=python)
        )
        assert "a server listens" in EngineProbe().cluster(config)
    with pytest.raises(UnavailableError, match="does not answer"):
        EngineProbe().cluster(config)


def test_advice_is_not_what_is_so_already(tmp_path: Path) -> None:
    for user, told in ((0, False), (1000, True)):
        found = findings(PretendMachine(user=user), TRUSTING)
        (item,) = (item for item in found if item.check == "accounts" and item.advice)
        assert ("as root" in item.advice) is told
    file = tmp_path / "lab.yaml"
    file.write_text(LAB)
    sharing = replace(TRUSTING, local_nodes=file, shared_dir=None)
    (item,) = (item for item in findings(PretendMachine(), sharing) if "shared" in item.check)
    assert item.verdict is CheckVerdict.OK


def test_every_warning_says_what_to_do() -> None:
    worst = PretendMachine(
        PretendProbe("tree", (GpuFound("gpu 0", "hot"),)), free=10**9, kind="ext4", clock=False
    )
    for item in findings(worst, ServiceConfig(accounts={"a": "9"})):
        assert bool(item.advice) is (item.verdict is CheckVerdict.WARNING), item


def test_a_check_that_fails_does_not_hide_the_others() -> None:
    found = findings(PretendMachine(PretendProbe(broken=True)))
    assert [item.check for item in found][-2:] == ["store", "certificates"]


def test_a_clock_in_the_past_is_a_failure() -> None:
    found = [item for item in findings(PretendMachine(), now=0.0) if item.check == "clock"]
    assert [item.verdict for item in found] == [CheckVerdict.FAILED]


def test_pretend_gpus_and_any_port_need_no_look() -> None:
    config = ServiceConfig(
        grpc=Address("127.0.0.1", 0), node=NodeConfig(pretend=4), retention=Retention(bytes=10**7)
    )
    found = findings(PretendMachine(PretendProbe(found=()), taken=(0,), free=10**9), config)
    told = {item.check: item for item in found}
    assert told["GPUs"].what == "4 pretend GPUs"
    assert told["disk"].verdict is CheckVerdict.OK
    assert [item.verdict for item in found if item.check == "ports"] == [
        CheckVerdict.OK,
        CheckVerdict.OK,
    ]


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /shared rw - nfs4 server:/export rw
31 30 0:31 / /shared/with\\040space rw - tmpfs tmpfs rw
32 22 0:32 / /mnt rw - ext4 /dev/sdb rw
33 22 0:33 / /mnt rw - lustre mgs:/fs rw
garbage
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/shared/a/b", "nfs4"),
        ("/shared", "nfs4"),
        ("/sharedness", "ext4"),
        ("/shared/with space/x", "tmpfs"),
        ("/mnt/x", "lustre"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert filesystem_of(Path(folder), MOUNTS) == kind


def test_this_machine_can_be_looked_at(tmp_path: Path) -> None:
    machine = LocalMachine(PretendProbe())
    assert machine.free_bytes(tmp_path / "not" / "there") > 0
    assert machine.writable(tmp_path / "not" / "there")
    assert machine.filesystem(tmp_path)
    assert machine.account_exists("root")
    assert machine.account_exists("4294967294:5")
    assert not machine.account_exists("4294967294")
    assert not machine.account_exists("nobody-of-that-name")
    assert machine.clock_synchronised() in {True, False, None}
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not LocalMachine(PretendProbe()).port_free(Address("127.0.0.1", port))
    assert LocalMachine(PretendProbe()).port_free(Address("127.0.0.1", port))
