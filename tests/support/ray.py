"""A Ray cluster of one's own, for tests: several machines on this one, with loopback only.

    with ray_cluster(nodes=4, gpus=2) as cluster:
        os.environ |= cluster.environment       # a driver finds it, and may use it
        subprocess.run([cluster.python, "script.py"])   # ray.init(cluster.address)
        cluster.kill("n3")                      # a power cut; `start` brings it back
        cluster.kill("head"); cluster.start("head")
        cluster.cut("n2"); cluster.mend("n2")   # the machine lives, and nobody reaches it

All of it is in a network and PID namespace of its own, with its own token, with pretend GPUs, and
tells nobody outside about itself. Leaves nothing behind, even when the test is killed
(`tests.support.namespaced_cluster`). Needs root and the Python package `ray`.
"""

import importlib.util
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.namespaced_cluster import NEEDED, SBIN, Kept, keep, machine, require_programs
from tests.support.requirements import missing

_HEAD = "127.0.0.2"
_PORT, _CLIENTS, _AGENTS = 6379, 10001, 20001
_CUT = "cut-"
"""And a machine's name: the file that says that it is cut off."""
_TABLE = "inet themis"
_HELD = """
import ray
ray.init("auto", namespace="themis", log_to_driver=False)
groups = ray.util.placement_group_table().values()
print(*(group["name"] for group in groups if group["state"] != "REMOVED"))
"""


def require_ray() -> None:
    """Skip the running test where something of Ray is missing, and name the package."""
    require_programs(NEEDED | {"nft": "nftables"})
    for module, package in {"ray": "ray", "aiohttp": "ray[default]"}.items():
        if importlib.util.find_spec(module) is None:
            missing(f"{module} is not installed (Python package {package})")


class RayCluster(Kept):
    """One that is running. Its programs: `head`, and the machines n0 and so on."""

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    engine = "ray"
    head = "head"
    flags = ("--ray-pending", "300s")
    """What a service is told that uses it: patience, for machines with much else to do."""
    pace = 4.0
    """A start takes a process of Ray's, which is a second of CPU."""
    python: Path = Path()
    """Runs Python inside; folders and processes are those of outside."""

    @property
    def address(self) -> str:
        """Where clients of Ray's call, from inside."""
        return f"ray://{_HEAD}:{_CLIENTS}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client or `themis serve` must be told."""
        more = {"THEMIS_RAY_PYTHON": str(self.python), "RAY_ADDRESS": f"{_HEAD}:{_PORT}"}
        return _environment(self.folder) | more

    def address_of(self, node: str) -> str:
        """Where a machine is."""
        return f"127.0.0.{3 + self.nodes.index(node)}"

    def run(self, script: str, *words: str, limit: float = 300.0) -> str:
        """Run a script as a driver inside; what it prints."""
        done = subprocess.run(
            [str(self.python), "-c", script, *words],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        assert not done.returncode, done.stderr
        return done.stdout

    def held(self) -> str:
        """Placement groups that are not removed."""
        return self.run(_HELD).strip()

    def cut(self, name: str) -> None:
        """Let nothing through between this machine and all others."""
        here = self.address_of(name)
        rules = (
            f"add table {_TABLE}; add chain {_TABLE} cut {{ type filter hook input priority 0; }}; "
            f"add rule {_TABLE} cut ip saddr {here} ip daddr != {here} drop; "
            f"add rule {_TABLE} cut ip saddr != {here} ip daddr {here} drop"
        )
        # Ray chooses other addresses of its own to call from: one that is started now would get
        # through to the head, as from a machine that is cut off it could not.
        (self.folder / f"{_CUT}{name}").touch()
        self._nft(rules)

    def mend(self, name: str) -> None:
        """Let everything through again, to all of them."""
        self._nft(f"delete table {_TABLE}")
        for cut in self.folder.glob(f"{_CUT}*"):
            cut.unlink()

    def _nft(self, rules: str) -> None:
        subprocess.run(
            ["nsenter", "--target", str(self.inside), "--net", "--", "nft", rules],
            check=True,
            timeout=20,
        )

    def until_up(self, *names: str) -> None:
        """Wait until these, or all, have said that they run."""
        logs = [self.folder / "log" / f"{name}.out" for name in names or ("head", *self.nodes)]
        for log in logs:
            self.until(partial(_has_started, log), f"Ray's {log.stem} does not come up")

    def start(self, name: str) -> None:
        """Start `head` or a machine; what an earlier one said is forgotten."""
        (self.folder / "log" / f"{name}.out").unlink(missing_ok=True)
        super().start(name)


@contextmanager
def ray_cluster(
    nodes: int = 4, gpus: int = 2, racks: int = 2, *, lasting: bool = False, **settings: str
) -> Iterator[RayCluster]:
    """A cluster, for as long as the context lasts; its head has no GPUs.

    Args:
        nodes: Machines, n0 and so on.
        gpus: Pretend GPUs of each.
        racks: Values of the label `rack`, r0 and so on, that they are spread over.
        lasting: What the head knows is on disk, and there again when it restarts.
        settings: Of Ray's, without RAY_ in front.
    """
    folder = Path(tempfile.mkdtemp(prefix="themis-ray-"))
    folder.chmod(0o755)
    names = tuple(f"n{number}" for number in range(nodes))
    token = folder / "token"
    token.write_text(secrets.token_hex(32), encoding="ascii")
    token.chmod(0o600)
    # Quiet, and patient with a machine that has much else to do.
    given = {
        "enable_worker_prestart": "0",
        "prestart_worker_first_driver": "0",
        "worker_register_timeout_seconds": "300",
        "CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "300",
    } | settings
    if lasting:
        given |= {"gcs_storage": "rocksdb", "gcs_storage_path": str(folder / "gcs")}
        # By itself, Ray ends on all machines when its head is away for a minute.
        given["gcs_rpc_server_reconnect_timeout_s"] = "900"
    env = _environment(folder) | {f"RAY_{key}": value for key, value in given.items()}
    env |= {"PATH": SBIN, "HOME": str(folder), "LANG": "C.UTF-8"}
    with keep(folder, _programs(folder, names, gpus, racks), env) as kept:
        cluster = RayCluster(kept.folder, kept.process, kept.inside)
        cluster.nodes, cluster.gpus = names, gpus
        cluster.python = cluster.wrapper("python", sys.executable)
        cluster.start("head")
        cluster.until_up("head")
        for name in names:
            # One after the other: Ray gives a machine half a minute to start.
            cluster.start(name)
            cluster.until_up(name)
        yield cluster


def _has_started(log: Path) -> bool:
    return log.exists() and "runtime started" in log.read_text("utf-8")


def _environment(folder: Path) -> dict[str, str]:
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        # Else workers stand behind everything else that the machine does: a start takes a minute.
        "RAY_worker_niceness": "0",
        "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
    }


def _programs(folder: Path, names: tuple[str, ...], gpus: int, racks: int) -> dict[str, list[str]]:
    ray = f"{sys.executable} -m ray.scripts.scripts start --block --disable-usage-stats"
    ray += " --include-log-monitor=False --object-store-memory=80000000"
    each = -(-len(names) // racks)
    head = (
        f"{ray} --head --node-ip-address={_HEAD} --port={_PORT} --num-gpus=0 --num-cpus=1"
        f" --ray-client-server-port={_CLIENTS} --include-dashboard=False --temp-dir={folder}/t"
        f" --dashboard-agent-listen-port={_AGENTS}"
    )
    programs = {"head": machine(f"while sleep 0.1; do {head}; done")}
    for number, name in enumerate(names):
        # Each with files of its own, as machines have: else they would take each other's sockets.
        own = f"{folder}/{name}"
        programs[name] = machine(
            # Who was taken for dead ends itself, and is started again, as a unit of systemd's is.
            f"mkdir -p {own} {folder}/t && mount --bind {own} {folder}/t && while sleep 1; do"
            f" [ -e {folder}/{_CUT}{name} ] ||"
            f" {ray} --address={_HEAD}:{_PORT} --node-ip-address=127.0.0.{3 + number}"
            f" --num-gpus={gpus} --num-cpus={2 * gpus + 1}"
            f" --labels=machine={name},rack=r{number // each}"
            f" --dashboard-agent-listen-port={_AGENTS + 1 + number}; done"
        )
    return programs
