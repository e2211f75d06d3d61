"""Where groups can be made is read from the kernel's own lists, and believed only when seen."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from themis.engines.supervisor import control_probe, processes
from themis.engines.supervisor.cgroups import Cgroup, find_base

UNIFIED = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
SYSTEMD = "34 24 0:29 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER = "900 899 0:29 /docker/ab /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
SPACES = "34 24 0:29 / /mnt/two\\040words rw - cgroup2 cgroup2 rw\n"
OLD = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("mounts", "membership", "base"),
    [
        pytest.param(UNIFIED, "4:memory:/x\n0::/\n", "/sys/fs/cgroup/unified", id="below a tmpfs"),
        pytest.param(
            SYSTEMD,
            "0::/system.slice/themis-node.service\n",
            "/sys/fs/cgroup/system.slice/themis-node.service",
            id="a service of systemd",
        ),
        pytest.param(CONTAINER, "0::/docker/ab/n\n", "/sys/fs/cgroup/n", id="a part is mounted"),
        pytest.param(CONTAINER, "0::/docker/cd\n", None, id="another part is mounted"),
        pytest.param(SYSTEMD, "0::/../other\n", None, id="outside of the namespace"),
        pytest.param(SPACES, "0::/a\n", "/mnt/two words/a", id="a path with a space"),
        pytest.param(OLD, "4:memory:/x\n", None, id="version 1 only"),
        pytest.param("", "0::/\n", None, id="nothing mounted"),
    ],
)
def test_the_base_is_the_processes_own_group_where_version_2_is_mounted(
    mounts: str, membership: str, base: str | None
) -> None:
    assert find_base(mounts, membership) == base


def test_non_cgroup_folder_kills_nothing_and_is_not_taken_for_empty(tmp_path: Path) -> None:
    """On a tmpfs the files could be written to, to no effect."""
    group = Cgroup(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        group.join()
    group.kill()
    assert not group.is_empty()
    assert list(tmp_path.iterdir()) == []


def test_invalid_cgroup_base_is_detected_by_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_probe, "own_base", lambda: str(tmp_path))
    with pytest.raises(RuntimeError, match=r"cgroup: .*cgroup\.procs"):
        control_probe.choose("cgroup")
    choice = control_probe.choose()
    assert choice.name in {"namespace", "tree"}
    assert choice.reasons[0].startswith("cgroup: ")
    assert list(tmp_path.iterdir()) == []


PRETENDING = """
import os, sys
from pathlib import Path
from themis.engines.supervisor import control_probe
from themis.engines.supervisor.cgroups import Cgroup

made = Cgroup.create

def create_with_files(group):
    made(group)
    for name, text in (("procs", ""), ("kill", ""), ("events", "populated 0\\n")):
        (Path(group.path) / f"cgroup.{name}").write_text(text)

Cgroup.create = create_with_files
control_probe._PATIENCE = 0.3
sys.exit(control_probe.main("cgroup", sys.argv[1]))
"""


def test_ineffective_writable_files_do_not_pass_for_a_cgroup(tmp_path: Path) -> None:
    """Everything says that the victim is dead, and its end of the pipe says that it is not."""
    group = tmp_path / "group"
    mark = f"TEST_MARK={uuid.uuid4().hex}"
    env = {"PYTHONPATH": os.pathsep.join(sys.path), **dict([mark.split("=")])}
    run = subprocess.run(
        [sys.executable, "-c", PRETENDING, str(group)],
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (1, "the victim was killed and did not die\n")
    assert (group / "cgroup.kill").read_text() == "1"
    assert processes.marked(mark) == []


def test_without_version_2_and_namespaces_the_tree_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_probe, "own_base", lambda: None)
    monkeypatch.setattr(control_probe, "_tried", lambda *_: "not permitted")
    assert control_probe.choose() == control_probe.ChosenControl(
        "tree", "", ("cgroup: no cgroup version 2 is mounted", "namespace: not permitted")
    )


def test_unknown_control_is_refused() -> None:
    with pytest.raises(RuntimeError, match="none of cgroup, namespace, tree"):
        control_probe.choose("magic")
