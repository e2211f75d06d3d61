"""Service, bridge and jobs of an ordinary user of Slurm: nothing of Themis is root's."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.slurm import SlurmCluster, require_slurm, slurm_cluster
from tests.support.unprivileged import NOBODY, interpreter, paths

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

LONG = 120.0
APP = """
name: mine
command: [/bin/sh, -c, "id -u; echo GPUs $THEMIS_GPUS"]
gpus: {per_job_min: 2, per_job_max: 2}
duration: 1h
workdir: /
"""


class User:
    """Somebody who may use a cluster, and has a folder there."""

    def __init__(self, cluster: SlurmCluster, home: Path, python: str) -> None:
        self.home = home
        # In with the machines, so that all of it ends with the cluster.
        self._command = [
            "nsenter", f"--target={cluster.inside}", "--net", "--pid", "--mount", "--",
            "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
            "--no-new-privs", "env", "-i", "PATH=/usr/bin:/bin", f"HOME={home}",
            f"SLURM_CONF={cluster.folder}/slurm.conf", f"PYTHONPATH={paths()}",
            f"THEMIS_TOKEN_FILE={home}/state/admin.token", python, "-B", "-m", "themis",
        ]  # fmt: skip

    def start(self, *words: str) -> None:
        with (self.home / "log").open("ab") as log:
            self._service = subprocess.Popen(
                [*self._command, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def themis(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words], capture_output=True, text=True, check=False, timeout=LONG
        )
        assert done.returncode == 0, done.stderr + (self.home / "log").read_text()[-3000:]
        return done.stdout

    def ended(self) -> None:
        """With the cluster."""
        self._service.wait(LONG)

    def until_nodes(self, count: int) -> None:
        until = time.monotonic() + LONG
        while True:
            told = subprocess.run(
                [*self._command, "nodes", "ls", "--json"],
                capture_output=True, text=True, check=False, timeout=LONG,
            ).stdout  # fmt: skip
            nodes: list[dict[str, Any]] = json.loads(told)["nodes"] if told else []
            if sum(node["present"] for node in nodes) == count:
                return
            late = time.monotonic() > until or self._service.poll() is not None
            assert not late, told + (self.home / "log").read_text()[-3000:]
            time.sleep(0.5)


def test_slurm_engine_needs_no_root(state: Path) -> None:
    require_slurm()
    python = interpreter("import grpc, starlette, uvicorn")
    home = state.with_name("home")
    home.mkdir()
    (home / "shared").mkdir()
    for folder in (home, home / "shared"):
        os.chown(folder, NOBODY, NOBODY)
    (home / "app.yaml").write_text(APP)
    with slurm_cluster(nodes=2, gpus=2) as cluster:
        user = User(cluster, home, python)
        user.start(
            "serve", "--engine", "slurm", "--state-dir", f"{home}/state", "--trust-tenants",
            "--shared-dir", f"{home}/shared", "--set", "pooling=1", *cluster.flags,
        )  # fmt: skip
        user.until_nodes(2)
        assert user.themis("submit", f"{home}/app.yaml", "--json")
        user.themis("wait", "mine")
        told = user.themis("logs", "mine").splitlines()
        assert [line.rpartition("GPUs ")[2] for line in told if "GPUs" in line] == ["0,1"]
        assert any(line.endswith(str(NOBODY)) for line in told)
        owners = {path.lstat().st_uid for path in home.rglob("*")} - {0}
        roots = [path for path in home.rglob("*") if path.lstat().st_uid == 0]
        assert owners == {NOBODY}
        assert {path.name for path in roots} == {"log", "app.yaml"}
    user.ended()
