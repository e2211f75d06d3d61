"""The systemd units: what must be in them, and what must not."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from themis.config.keys import KEYS

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"
SERVICE = UNITS / "themis.service"
NODE = UNITS / "themis-node@.service"


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_a_restart_of_the_node_leaves_its_jobs_alone() -> None:
    node = settings(NODE)
    assert node["KillMode"] == ["process"]
    assert node["Delegate"] == ["yes"]
    # Jobs inherit these and would lose their files or their GPUs.
    harmful = {
        "PrivateTmp", "PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock",
        "ProtectSystem", "ProtectHome", "PrivateMounts", "PrivateUsers", "MemoryMax",
    }  # fmt: skip
    assert harmful.isdisjoint(node)


def test_the_service_has_no_rights_beyond_its_state() -> None:
    service = settings(SERVICE)
    assert service["User"] == ["themis"]
    assert service["CapabilityBoundingSet"] == [""]
    assert service["ProtectSystem"] == ["strict"]
    assert service["NoNewPrivileges"] == ["yes"]
    assert service["StateDirectoryMode"] == ["0700"]


@pytest.mark.parametrize("unit", [SERVICE, NODE], ids=lambda unit: unit.name)
def test_a_unit_is_started_when_its_program_says_so(unit: Path) -> None:
    assert settings(unit)["Type"] == ["notify"]
    # A slow start reads a large store; nobody must kill it for that.
    assert settings(unit)["TimeoutStartSec"] == ["infinity" if unit is SERVICE else "120"]


@pytest.mark.parametrize("unit", [SERVICE, NODE], ids=lambda unit: unit.name)
def test_every_variable_and_flag_in_a_unit_is_a_key(unit: Path) -> None:
    known = {key.variable for key in KEYS.values()} | {"THEMIS_CONFIG"}
    text = unit.read_text(encoding="utf-8")
    assert set(re.findall(r"THEMIS_[A-Z_]+", text)) <= known
    assert "token" not in " ".join(settings(unit)["ExecStart"])


@pytest.mark.parametrize("unit", [SERVICE, NODE], ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed here")
    # The user and the command are not on this machine; a template is checked as an instance.
    text = unit.read_text(encoding="utf-8").replace("/opt/themis/bin/themis", "/bin/true")
    text = re.sub(r"^(User|Group)=themis$", r"\1=root", text, flags=re.MULTILINE)
    copy = tmp_path / unit.name.replace("@", "@gpu-07")
    copy.write_text(text, encoding="utf-8")
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(copy)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip("systemd-analyze does not work here")
    assert (done.returncode, done.stderr) == (0, "")
