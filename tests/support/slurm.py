"""A Slurm cluster of one's own, for tests: many machines on this one, with loopback only.

    with slurm_cluster(nodes=16, gpus=8) as cluster:
        os.environ |= cluster.environment       # sbatch, squeue, ... find it
        cluster.run("sinfo")
        cluster.kill("n3")                      # a power cut; `start` brings it back
        cluster.kill("ctld"); cluster.start("ctld")

All of it is in a network and PID namespace of its own, with its own munge key, and pretend GPUs.
The first process in there ends when the one that started it does, however it does, and with it all
others; it removes the folder too. Needs root, and the Debian packages in `PACKAGES`.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.namespaced_cluster import NEEDED, SBIN, Kept, keep, machine, require_programs
from themis.engines.supervisor import processes
from themis.errors import UnavailableError

PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "salloc": "slurm-client",
    "munged": "munge",
} | NEEDED
"""Programs, and the Debian packages that bring them."""
CLIENTS = ("salloc", "srun", "sbatch", "squeue", "sinfo", "scontrol", "scancel")
_ADDRESS = "10.254.254.1"


def require_slurm() -> None:
    """Skip the running test where something of Slurm is missing, and name the package."""
    require_programs(PACKAGES)


class SlurmCluster(Kept):
    """One that is running. Its programs: `munged`, `ctld` and the machines."""

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    engine = "slurm"
    head = "ctld"

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which Slurm's commands, wrapped, find this cluster."""
        path = os.environ.get("PATH", SBIN)
        return {
            "PATH": f"{self.folder / 'bin'}:{path}",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }

    @property
    def flags(self) -> tuple[str, ...]:
        """What a service is told that uses it: patience, for machines with much else to do."""
        return ("--slurm-patience", "120s", "--slurm-silence", "60s", "--slurm-pending", "120s")

    pace = 1.0

    def held(self) -> str:
        """Allocations that are not over."""
        return self.run("squeue", "-h", "-o", "%j %T")

    def cut(self, name: str) -> None:
        """Let the controller not reach a machine, whose jobs go on."""
        os.kill(self._daemon(name), signal.SIGSTOP)

    def mend(self, name: str) -> None:
        """Let it be reached again."""
        os.kill(self._daemon(name), signal.SIGCONT)

    def _daemon(self, name: str) -> int:
        words = ["slurmd", "-D", "-N", name, "-f", str(self.folder / "slurm.conf")]
        wanted = b"".join(word.encode() + b"\0" for word in words)
        for pid in processes.all_processes():
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes() == wanted:
                    return pid
        raise UnavailableError(f"machine {name} has no slurmd")

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of Slurm's; what it prints."""
        env = os.environ | self.environment
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode:
            raise UnavailableError(f"{command[0]}: {done.stderr.strip()}")
        return done.stdout

    def states(self) -> dict[str, str]:
        """The state of each machine, as `sinfo` has it."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).split("\n")
        return dict(line.split(" ", 1) for line in lines if " " in line)

    def until_idle(self) -> None:
        """Wait until all machines are there."""
        wanted = dict.fromkeys(self.nodes, "idle")
        self.until(lambda: self.states() == wanted, "Slurm does not come up")

    def until_up(self) -> None:
        """Wait until the controller answers."""
        self.until(lambda: bool(self.states()), "Slurm does not answer")


@contextmanager
def slurm_cluster(
    nodes: int = 16, gpus: int = 8, racks: int = 2, **settings: str
) -> Iterator[SlurmCluster]:
    """A cluster, for as long as the context lasts.

    Args:
        nodes: Machines, n0 and so on.
        gpus: Pretend GPUs of each.
        racks: Leaf switches, r0 and so on, that they are spread over.
        settings: Further lines of slurm.conf.
    """
    folder = Path(tempfile.mkdtemp(prefix="themis-slurm-"))
    folder.chmod(0o755)
    names = tuple(f"n{number}" for number in range(nodes))
    programs = _write(folder, names, gpus, racks, settings)
    env = {"PATH": SBIN, "SLURM_CONF": f"{folder}/slurm.conf"}
    with keep(folder, programs, env, [f"{_ADDRESS}/32"]) as kept:
        cluster = SlurmCluster(kept.folder, kept.process, kept.inside)
        cluster.nodes, cluster.gpus = names, gpus
        for name in CLIENTS:
            # What lives long ends with the cluster; the others get their signals themselves.
            cluster.wrapper(name, str(shutil.which(name, path=SBIN)), pids=name == "srun")
        for name in programs:
            cluster.start(name)
        cluster.until_idle()
        yield cluster


def _write(
    folder: Path, names: tuple[str, ...], gpus: int, racks: int, settings: dict[str, str]
) -> dict[str, list[str]]:
    """All files of a cluster; returns its programs."""
    host = socket.gethostname().partition(".")[0]
    for part in ("run", "state", "spool", "log", "dev"):
        (folder / part).mkdir(mode=0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    for name in names:
        for gpu in range(gpus):
            os.mknod(folder / "dev" / f"{name}-{gpu}", 0o020666, os.makedev(1, 3))
    count = len(names)
    given = {
        "ClusterName": "themis-test",
        "SlurmctldHost": f"{host}({_ADDRESS})",
        "SlurmctldPort": "16817",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/run/munge.socket",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/ctld.pid",
        "SlurmdPidFile": f"{folder}/run/%n.pid",
        "SlurmctldLogFile": f"{folder}/log/ctld.log",
        "SlurmdLogFile": f"{folder}/log/%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SchedulerType": "sched/backfill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "GresTypes": "gpu",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": "2",
        "SlurmdTimeout": "10",
        "KillWait": "5",
        "MpiDefault": "none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SwitchType": "switch/none",
        "TopologyPlugin": "topology/tree",
    } | settings
    lines = [f"{name}={value}" for name, value in given.items()]
    every = f"n[0-{count - 1}]"
    ports, cpus = f"Port=[17000-{16999 + count}]", f"CPUs={max(16, 2 * gpus)} RealMemory=1000"
    lines += [
        f"NodeName={every} NodeHostname={host} NodeAddr={_ADDRESS} {ports} {cpus} Gres=gpu:{gpus}",
        f"PartitionName=main Nodes={every} Default=YES MaxTime=INFINITE State=UP",
        # The last machine alone, which is in both.
        f"PartitionName=last Nodes={names[-1]} MaxTime=INFINITE State=UP",
    ]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    gres = [f"NodeName={n} Name=gpu File={folder}/dev/{n}-[0-{gpus - 1}]" for n in names]
    (folder / "gres.conf").write_text("\n".join(gres) + "\n", encoding="utf-8")
    each = -(-count // racks)
    groups = [names[first : first + each] for first in range(0, count, each)]
    switches = [f"SwitchName=r{n} Nodes={','.join(group)}" for n, group in enumerate(groups)]
    switches.append(f"SwitchName=core Switches=r[0-{len(groups) - 1}]")
    (folder / "topology.conf").write_text("\n".join(switches) + "\n", encoding="utf-8")
    return {
        "munged": [
            "munged", "--foreground", "--force", f"--key-file={key}",
            f"--socket={folder}/run/munge.socket", f"--pid-file={folder}/run/munged.pid",
            f"--log-file={folder}/log/munged.log", f"--seed-file={folder}/run/seed",
        ],
        "ctld": ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"],
    } | {
        name: machine(f"slurmd -D -N {name} -f {folder}/slurm.conf") for name in names
    }  # fmt: skip
