"""`themis exec`: what it costs to start, what it refuses, what it reports to other schedulers."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from themis.engines.attempt.attempt import Attempt
from themis.engines.attempt.layout import EngineLimits, StateFolder
from themis.engines.attempt.lease_timing import LeaseTimer
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.metrics.points import MetricSample
from themis.engines.metrics.progress_file import recall_sample
from themis.engines.supervisor import processes
from themis.engines.supervisor.spawn import command
from themis.engines.task import Task
from themis.testing.engines import LONG

HEAVY = (
    "asyncio",
    "dataclasses",
    "inspect",
    "logging",
    "pathlib",
    "socket",
    "subprocess",
    "typing",
)
HANGS_AFTER = 60


def attempt(
    state: Path,
    owners: Owners,
    script: str,
    token: int = 7,
    gpus: tuple[int, ...] = (0,),
    patience: float = 5.0,
    **more: Any,
) -> Attempt:
    folder = StateFolder(state, EngineLimits(patience=patience))
    folder.prepare()
    task = Task(
        "job-1",
        "ann",
        token,
        gpus,
        ("/bin/sh", "-c", script),
        end=boottime.now() + LONG,
        grace=5.0,
        control="tree",
        **more,
    )
    return folder.create(task, owners.account("ann"))


def themis_exec(made: Attempt, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "themis", "exec", str(made.folder / "task.json")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(made: Attempt, **env: str) -> tuple[int, dict[str, object], str]:
    process = themis_exec(made, **env)
    _, said = process.communicate(timeout=HANGS_AFTER)
    page = made.status
    assert page is not None
    return process.returncode, page, said


@pytest.mark.parametrize("code", [0, 75, 3])
def test_how_far_a_job_is_outlasts_a_node_that_is_dead(
    state: Path, owners: Owners, code: int
) -> None:
    says = """echo '{"it": 11, "loss": 0.5}' > "$THEMIS_METRICS"
    echo '{"it": 12, "loss": 0.25}' >> "$THEMIS_METRICS"; """
    made = attempt(state, owners, f"{says} exit {code}")
    ran(made)
    found = recall_sample(made.task.checkpoint_dir, made.task.user, "loss")
    assert found == MetricSample(12.0, 0.25, None)


def test_only_the_first_part_of_a_job_records_progress(state: Path, owners: Owners) -> None:
    says = """echo '{"it": 12}' > "$THEMIS_METRICS" """
    made = attempt(state, owners, says, rank=1, world=2, rendezvous="m0:20000")
    ran(made)
    assert recall_sample(made.task.checkpoint_dir, made.task.user, "loss") is None


def test_a_supervisor_imports_little() -> None:
    """Every start of a job waits for it."""
    show = f"print(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    import_it = (
        "import sys; sys.path.append(sys.argv[1]); import themis.engines.supervisor.supervisor; "
    )
    line = command("", "")
    run = subprocess.run(
        [*line[:4], import_it + show, line[5]], check=True, capture_output=True, text=True
    )
    assert run.stdout.strip() == ""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("exit 0", 0, id="finished"),
        pytest.param("exit 75", 75, id="resumable"),
        pytest.param("exit 4", 4, id="failed"),
        pytest.param("kill -9 $$", 137, id="killed by somebody"),
    ],
)
def test_it_exits_as_its_job_did(state: Path, owners: Owners, script: str, code: int) -> None:
    assert ran(attempt(state, owners, script))[0] == code


def test_where_another_scheduler_chose_the_gpus_it_reports_them(
    state: Path, owners: Owners
) -> None:
    made = attempt(state, owners, "echo $THEMIS_GPUS $CUDA_VISIBLE_DEVICES", gpus=(0, 1))
    scheduled(made, gpu_variables=["NONE_SUCH", "CUDA_VISIBLE_DEVICES"])
    code, page, _ = ran(made, CUDA_VISIBLE_DEVICES="3, GPU-ab12")
    assert code == 0
    assert page["gpus"] == ["3", "GPU-ab12"]
    assert (made.folder / "log").read_text() == "3,GPU-ab12 3, GPU-ab12\n"
    # Tokens go with the ledger's numbers; the GPUs themselves are only held.
    tokens = {path.name: path.read_text().strip() for path in (state / "gpus").iterdir()}
    assert tokens == {"0": "7", "1": "7", "device-3": "", "device-GPU-ab12": ""}


def test_an_older_lease_may_get_a_gpu_that_a_younger_one_had(state: Path, owners: Owners) -> None:
    for number, token in ((0, 9), (1, 7)):
        made = attempt(state, owners, "exit 0", gpus=(number,), token=token)
        scheduled(made, gpu_variables=["CUDA_VISIBLE_DEVICES"])
        assert ran(made, CUDA_VISIBLE_DEVICES="3")[0] == 0


def scheduled(made: Attempt, **more: object) -> None:
    file = made.folder / "task.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | more))


@pytest.mark.parametrize("given", ["../../etc/passwd", "0,1", "", "0,0"])
def test_other_gpus_than_one_lease_is_for_are_refused(
    state: Path, owners: Owners, given: str
) -> None:
    made = attempt(state, owners, "exit 0", gpus=(0,))
    scheduled(made, gpu_variables=["CUDA_VISIBLE_DEVICES"])
    code, page, _ = ran(made, CUDA_VISIBLE_DEVICES=given)
    assert (code, page["outcome"]) == (78, "never-ran")


def test_a_lease_on_another_machines_clock_is_no_lease(state: Path, owners: Owners) -> None:
    made = attempt(state, owners, "echo ran")
    lease = made.lease
    assert lease is not None
    lease.boot = "another machine's"
    made.write_lease(lease)
    code, page, _ = ran(made)
    assert (code, page["outcome"]) == (78, "never-ran")
    assert "no lease" in str(page["reason"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"end": 1.0}, "its lease is over", id="a lease that is over"),
        pytest.param({"token": 8}, "no lease with token 7", id="a lease of somebody else"),
        pytest.param({"stop": "kill"}, "its lease is over", id="a lease that was called off"),
    ],
)
def test_without_a_lease_nothing_starts(
    state: Path, owners: Owners, change: dict[str, Any], reason: str
) -> None:
    made = attempt(state, owners, "echo ran")
    lease = made.lease
    assert lease is not None
    for key, value in change.items():
        setattr(lease, key, value)
    made.write_lease(lease)
    code, page, _ = ran(made)
    assert (code, page["state"], page["outcome"]) == (78, "exited", "never-ran")
    assert reason in str(page["reason"])
    assert not (made.folder / "log").exists()


def test_a_stale_token_starts_nothing(state: Path, owners: Owners) -> None:
    assert ran(attempt(state, owners, "exit 0", token=9))[0] == 0
    code, page, _ = ran(attempt(state, owners, "echo ran", token=8))
    assert (code, page["outcome"]) == (78, "never-ran")
    assert "token 8 for GPU 0 is stale: it has seen 9" in str(page["reason"])


def test_a_second_supervisor_of_the_same_task_goes_away(state: Path, owners: Owners) -> None:
    made = attempt(state, owners, 'echo "{\\"it\\": 1}" >> $THEMIS_METRICS; exec sleep 600')
    first = themis_exec(made)
    while not Path(made.task.metrics).exists() or not Path(made.task.metrics).stat().st_size:
        assert first.poll() is None
    code, page, said = ran(made)
    assert code == 78
    assert "another supervisor has it" in said
    assert page["state"] == "running"
    # What a batch system does that wants its machine back: the job hears it, and is resumable.
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=HANGS_AFTER)
    assert first.returncode == 75


HARD_TO_KILL = """
import sys
from themis.engines.supervisor import supervisor
from themis.engines.supervisor.process_control import TreeControl

class Slow(TreeControl):
    looks = 0
    def is_empty(self, *, children):
        self.looks += 1
        return self.looks > 40 and super().is_empty(children=children)

tell = supervisor.Supervisor.tell
def tell_aloud(self, state="starting"):
    print(state, flush=True)
    tell(self, state)

supervisor.Supervisor.tell = tell_aloud
supervisor.control_from = lambda *_: Slow()
sys.exit(supervisor.main(sys.argv[1]))
"""


def test_unkillable_process_is_reported_and_retried_until_it_dies(
    state: Path, owners: Owners
) -> None:
    made = attempt(state, owners, "exit 0", patience=0.1)
    run = subprocess.run(
        [sys.executable, "-c", HARD_TO_KILL, str(made.folder / "task.json")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert list(dict.fromkeys(run.stdout.split())) == ["starting", "running", "stuck", "exited"]
    assert (made.status or {}).get("outcome") == "finished"


def test_supervisor_without_its_folder_still_enforces_the_lease(
    state: Path, owners: Owners
) -> None:
    """It ends the job at the end that it knows, and nothing stays behind."""
    made = attempt(state, owners, "trap '' TERM; while :; do sleep 0.05; done")
    process = themis_exec(made)
    while (made.status or {}).get("state") != "running":
        assert process.poll() is None
    made.write_lease(LeaseTimer(made.task.token, end=boottime.now() + 2.0, grace=60.0))
    while (made.status or {}).get("state") != "stopping":  # it has seen the new end
        assert process.poll() is None
    shutil.rmtree(made.folder)
    process.communicate(timeout=HANGS_AFTER)
    assert process.returncode == 75
    assert processes.marked(f"THEMIS_RUN={made.task.run}") == []


BROKEN = """
import sys
from themis.engines.supervisor import supervisor

def broken(self, control):
    raise RuntimeError("a bug")

supervisor.Supervisor.keep_lease = broken
sys.exit(supervisor.main(sys.argv[1]))
"""


def test_a_supervisor_that_fails_takes_its_job_along(state: Path, owners: Owners) -> None:
    made = attempt(state, owners, "(setsid sleep 600 & ) & exec sleep 600")
    run = subprocess.run(
        [sys.executable, "-c", BROKEN, str(made.folder / "task.json")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert "a bug" in run.stderr
    assert processes.marked(f"THEMIS_RUN={made.task.run}") == []


def test_invalid_task_file_is_reported(tmp_path: Path) -> None:
    odd = tmp_path / "task.json"
    odd.write_text('{"job": "job-1"}')
    for path, code, words in ((odd, 2, "not a task"), (tmp_path / "none", 3, "no such file")):
        run = subprocess.run(
            [sys.executable, "-m", "themis", "exec", str(path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
            capture_output=True,
            text=True,
        )
        assert run.returncode == code
        assert words in run.stderr
        assert "Traceback" not in run.stderr
