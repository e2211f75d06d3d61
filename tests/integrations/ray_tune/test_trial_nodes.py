"""The process in a lease and the script, over a real connection; the Ray node is pretended."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

import themis
from themis.engines.ray import cluster
from themis.integrations.ray_tune import trial_node
from themis.integrations.ray_tune.trial_node import node_command, node_folder
from themis.integrations.ray_tune.trial_node_server import TrialNode, TrialNodeServer

NODE = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(os.environ["NODE_LOG"], "w").write(json.dumps([sys.argv[1:], dict(os.environ)]))
while not os.path.exists(os.environ["NODE_LOG"] + ".die"):
    time.sleep(0.02)
sys.exit(3)
"""


def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def node_server() -> Iterator[TrialNodeServer]:
    made = TrialNodeServer("127.0.0.1")
    yield made
    made.close()


class Lease:
    """A node's process, as its supervisor would start it."""

    def __init__(
        self,
        folder: Path,
        node_server: TrialNodeServer,
        secret: str = "",
        planted: Callable[[Path], object] | None = None,
    ) -> None:
        module = folder / "ray" / "scripts"
        module.mkdir(parents=True, exist_ok=True)
        (module / "__init__.py").touch()
        (module.parent / "__init__.py").touch()
        (module / "scripts.py").write_text(NODE)
        self.metrics, self.log = folder / "metrics", folder / "node.log"
        self.short = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))  # for the names of sockets
        if planted is not None:
            planted(self.place)
        source = str(Path(themis.__file__).parents[1])
        self.process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "themis.integrations.ray_tune.trial_node",
                    "--driver",
                    node_server.address,
                ),
                *("--ray", "10.0.0.1:6379", "--trial", "3", "--mark", "themis-ab-"),
                *("--node", '{"CPU": 2.0, "disk": 1.0}'),
            ],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{folder}{os.pathsep}{source}",
                "THEMIS_JOB_ID": "app-3",
                "THEMIS_RUN_NUMBER": "17",
                "THEMIS_GPUS": "4,5",
                "CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb",
                "THEMIS_GRACE": "12.5",
                "THEMIS_METRICS": str(self.metrics),
                "THEMIS_CHECKPOINT_DIR": str(folder),
                "TUNE_NODE_SECRET": secret or node_server.secret,
                "NODE_LOG": str(self.log),
                "TMPDIR": str(self.short),
            },
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def place(self) -> Path:
        """Where the folders of Ray nodes are."""
        return self.short / f"themis-{os.geteuid()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # As its supervisor does: all of it ends with its first process.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        shutil.rmtree(self.short)


def on_own_node(node_server: TrialNodeServer) -> TrialNode:
    until(lambda: node_server.node("3"))
    node = node_server.node("3")
    assert node is not None
    return node


def test_a_lease_becomes_a_ray_node_with_its_gpus(
    tmp_path: Path, node_server: TrialNodeServer
) -> None:
    with Lease(tmp_path, node_server) as lease:
        node = on_own_node(node_server)
        assert (node.world, node.gpus, node.grace, node.leaving_since) == (1, 2, 12.5, None)
        until(lambda: lease.log.exists() and lease.log.read_text())
        words, environ = json.loads(lease.log.read_text())
        assert words[words.index("--address") + 1] == "10.0.0.1:6379"
        assert words[words.index("--num-gpus") + 1] == "2"
        assert words[words.index("--num-cpus") + 1] == "2"
        offered = json.loads(words[words.index("--resources") + 1])
        assert offered == {"disk": 1.0, "themis-ab-3": 1}
        assert words[words.index("--labels") + 1] == "themis-trial=3"
        assert environ["CUDA_VISIBLE_DEVICES"] == "GPU-aa,GPU-bb"
        assert "TUNE_NODE_SECRET" not in environ


def test_ray_files_are_kept_in_a_private_folder(
    tmp_path: Path, node_server: TrialNodeServer
) -> None:
    with Lease(tmp_path, node_server) as lease:
        until(lambda: lease.log.exists() and lease.log.read_text())
        words, _ = json.loads(lease.log.read_text())
        folder = Path(words[words.index("--temp-dir") + 1])
        assert folder.parent == lease.place
        assert lease.place.stat().st_mode & 0o777 == 0o700


def _open_to_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def _of_another(place: Path) -> None:
    place.mkdir(mode=0o700)
    os.chown(place, 12345, -1)


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        pytest.param(lambda place: place.symlink_to("/var"), "no folder", id="a link"),
        pytest.param(_open_to_all, "open to others", id="open"),
        pytest.param(
            _of_another,
            "belongs to user 12345",
            id="of another",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away"),
        ),
    ],
)
def test_no_node_is_started_where_others_can_interfere(
    tmp_path: Path, node_server: TrialNodeServer, planted: Callable[[Path], object], reason: str
) -> None:
    with Lease(tmp_path, node_server, planted=planted) as lease:
        said, _ = lease.process.communicate(timeout=30)
        assert lease.process.returncode == 1
        assert reason in said
        assert not lease.log.exists()


@pytest.mark.parametrize("options", [["--labels=a=b,c=d"], ["--labels", "a=b,c=d"]])
def test_user_labels_do_not_hide_the_trial_label_of_a_node(
    monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv(trial_node.OPTIONS_VARIABLE, json.dumps([*options, "--verbose"]))
    words = node_command("10.0.0.1:6379", {}, 1, "/tmp/x", "07")
    told = [word for word in words if word.startswith("--labels")]
    assert told == ["--labels"], "of two Ray forgets one"
    assert words[words.index("--labels") + 1] == f"a=b,c=d,{cluster.TRIAL_LABEL}=07"
    assert words[-1] == "--verbose"


def test_results_of_a_trial_are_those_of_its_job(
    tmp_path: Path, node_server: TrialNodeServer
) -> None:
    with Lease(tmp_path, node_server) as lease:
        on_own_node(node_server)
        node_server.report("3", 12, {"loss": 0.5})
        node_server.report("3", 13, {"accuracy": 0.9})
        until(lambda: lease.metrics.exists() and len(lease.metrics.read_text().splitlines()) == 2)
        told = [json.loads(line) for line in lease.metrics.read_text().splitlines()]
        assert [(each["it"], each["loss"], each.get("accuracy")) for each in told] == [
            (12, 0.5, None),
            (13, None, 0.9),
        ]


def test_stopping_node_waits_for_its_trial(tmp_path: Path, node_server: TrialNodeServer) -> None:
    with Lease(tmp_path, node_server) as lease:
        on_own_node(node_server)
        lease.process.send_signal(signal.SIGTERM)
        until(lambda: on_own_node(node_server).leaving_since is not None)
        assert lease.process.poll() is None
        node_server.let_go("3")
        assert lease.process.wait(30) == themis.GRACEFUL_EXIT
        until(lambda: node_server.node("3") is None)


def test_node_without_trials_exits_at_once(tmp_path: Path, node_server: TrialNodeServer) -> None:
    with Lease(tmp_path, node_server) as lease:
        on_own_node(node_server)
        node_server.dismiss()
        lease.process.send_signal(signal.SIGTERM)
        assert lease.process.wait(30) == themis.GRACEFUL_EXIT


def test_a_node_ends_with_its_script(tmp_path: Path, node_server: TrialNodeServer) -> None:
    with Lease(tmp_path, node_server) as lease:
        on_own_node(node_server)
        node_server.close()
        assert lease.process.wait(30) == themis.GRACEFUL_EXIT


def test_a_node_that_ends_by_itself_is_a_failure(
    tmp_path: Path, node_server: TrialNodeServer
) -> None:
    with Lease(tmp_path, node_server) as lease:
        on_own_node(node_server)
        Path(f"{lease.log}.die").touch()
        assert lease.process.wait(30) == 1


def test_unknown_callers_have_no_node(tmp_path: Path, node_server: TrialNodeServer) -> None:
    with Lease(tmp_path, node_server, secret="guess") as lease:
        assert lease.process.wait(30) == themis.GRACEFUL_EXIT
        assert node_server.trials() == ()


def hello(node_server: TrialNodeServer, **change: object) -> socket.socket:
    host, _, port = node_server.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    words = {"trial": "3", "secret": node_server.secret, "run": 1}
    words |= {"rank": 0, "world": 1, "gpus": 1, "grace": 5.0}
    connection.sendall(json.dumps(words | change).encode() + b"\n")
    return connection


def test_a_node_on_two_machines_counts_when_both_are_there(node_server: TrialNodeServer) -> None:
    with hello(node_server, world=2, gpus=2, grace=9.0) as first:
        until(lambda: "3" in node_server.trials())
        assert node_server.node("3") is None
        with hello(node_server, rank=1, world=2, gpus=1):
            node = on_own_node(node_server)
            assert (node.world, node.gpus, node.widest, node.grace) == (2, 3, 2, 5.0)
            node_server.report("3", 1, {})
            assert json.loads(first.recv(100))["it"] == 1
        until(lambda: node_server.node("3") is None)


def test_those_of_an_earlier_run_are_no_part_of_the_next(node_server: TrialNodeServer) -> None:
    with (
        hello(node_server, run=7, world=2) as old,
        hello(node_server, run=7, rank=1, world=2, gpus=4) as gone,
    ):
        before = on_own_node(node_server)
        with hello(node_server, run=9, world=2, gpus=2):
            assert old.recv(100) == gone.recv(100) == b""
            assert node_server.node("3") is None, "its other machine has not called"
            with hello(node_server, run=7, rank=1, world=2, gpus=4) as late:
                assert late.recv(100) == b""
            assert node_server.node("3") is None
            with hello(node_server, run=9, rank=1, world=2):
                node = on_own_node(node_server)
                assert (node.gpus, node.world) == (3, 2)
                assert node.key != before.key


def test_a_node_says_which_run_it_is(tmp_path: Path, node_server: TrialNodeServer) -> None:
    with Lease(tmp_path, node_server) as lease:
        on_own_node(node_server)
        with hello(node_server, run=16) as earlier:
            assert earlier.recv(100) == b""
        with hello(node_server, run=18):
            assert lease.process.wait(30) == themis.GRACEFUL_EXIT


def test_a_machine_that_is_gone_is_noticed_soon(node_server: TrialNodeServer) -> None:
    made = trial_node.connect(node_server.address)
    with made, hello(node_server) as other:
        on_own_node(node_server)
        (caller,) = node_server._callers["3"].values()
        for end in (made, caller.connection):
            idle, interval, count = (
                end.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert idle + interval * count <= 60
        assert not other.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), "not by itself"


@pytest.mark.parametrize("words", [b"\n", b"[]\n", b'{"trial": "3"}\n', b"x" * 10000 + b"\n"])
def test_malformed_connections_are_ignored(node_server: TrialNodeServer, words: bytes) -> None:
    host, _, port = node_server.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    with connection, contextlib.suppress(OSError):  # It may have hung up in the middle of it.
        connection.sendall(words)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    with hello(node_server):
        on_own_node(node_server)


def test_names_of_rays_sockets_are_short_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for root in ("/tmp", "/var/tmp/short", "/a/folder/for/temporary/files/with/a/long/name"):
        monkeypatch.setattr(tempfile, "tempdir", root)
        monkeypatch.setattr(os, "geteuid", lambda: 2**32 - 2)
        socket_name = (
            f"{node_folder()}/session_2026-11-17_01-43-54_585181_4194304/sockets/plasma_store"
        )
        assert len(socket_name) <= 107, "what the kernel takes"
