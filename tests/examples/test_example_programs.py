"""The programs in examples/ do what they are copied for: report, save, go on, stop when told."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import themis
from themis.apps import plan_app, read_app
from themis.core.model import AppId, OwnerId

EXAMPLES = Path(__file__).parents[2] / "examples"
FAR = 1_000_000
PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Program:
    """A training program, run as a node would."""

    script: Path
    folder: Path
    arguments: Sequence[str] = ()

    def start(self, limit: int, more: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(Path(themis.__file__).parents[1]),
            "CUDA_VISIBLE_DEVICES": "",
            "THEMIS_JOB_ID": "sweep/0",
            "THEMIS_METRICS": str(self.folder / "metrics.jsonl"),
            "THEMIS_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
            "THEMIS_MAX_ITERATIONS": str(limit),
        } | dict(more or {})
        return subprocess.Popen(
            [sys.executable, str(self.script), *self.arguments],
            env=environ,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, limit: int) -> int:
        """Train to a limit; the exit code."""
        return self.end(self.start(limit))

    def end(self, process: "subprocess.Popen[str]") -> int:
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        print(said)
        return process.returncode

    def iterations(self) -> list[int]:
        """As reported, each once."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        told = [json.loads(line) for line in lines]
        return list(dict.fromkeys(each["it"] for each in told if each["loss"] is not None))


def check(program: Program) -> None:
    assert program.run(3) == 0
    assert program.iterations() == [1, 2, 3]
    process = program.start(FAR)
    end = time.monotonic() + PATIENCE
    while len(program.iterations()) < 6 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert program.end(process) == themis.GRACEFUL_EXIT
    reached = program.iterations()[-1]
    assert program.run(reached + 2) == 0
    # Nothing was trained twice, nothing was left out, and nothing went beyond the limit.
    assert program.iterations() == list(range(1, reached + 3))


@pytest.mark.parametrize(
    ("name", "arguments"), [("plain", ("--pause", "0.02")), ("optuna", ())], ids=["plain", "optuna"]
)
def test_example_program_saves_on_request_and_resumes(
    name: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    program = Program(EXAMPLES / name / "train.py", tmp_path, arguments)
    check(program)
    trained = program.iterations()
    assert program.run(trained[-1]) == 0, "it may be started again where it is"
    assert program.iterations() == trained


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package", "arguments"),
    [
        ("pytorch", "torch", ()),
        ("huggingface", "transformers", ("--steps", str(FAR))),
        ("lightning", "lightning", ("--steps", str(FAR))),
    ],
    ids=["pytorch", "huggingface", "lightning"],
)
def test_framework_example_saves_on_request_and_resumes(
    name: str, package: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    for needed in dict.fromkeys(("torch", package)):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    check(Program(EXAMPLES / name / "train.py", tmp_path, arguments))


def test_a_program_runs_without_themis_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "plain" / "train.py", "--pause", "0"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(themis.__file__).parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "at iteration 100 of 100\n"


FILES = sorted(EXAMPLES.glob("*/app.yaml"))


@pytest.mark.parametrize("path", FILES, ids=[path.parent.name for path in FILES])
def test_an_app_file_is_one_and_its_program_is_there(path: Path) -> None:
    written = read_app(path)
    plan = plan_app(written, AppId(written.name), OwnerId("ann"), seed=0)
    assert written.name == path.parent.name
    assert 4 <= len(plan.trials) <= 20
    assert (path.parent / written.command[1]).is_file()


def test_every_example_has_an_app_file_and_a_line_in_the_list() -> None:
    folders = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    scripts = {"ray-tune"}  # It submits itself.
    assert [path.parent.name for path in FILES] == sorted({*folders} - scripts)
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in folders if f"| [{name}]({name}/" not in text] == []


@pytest.mark.slow
def test_data_parallel_training_goes_on_with_other_gpus_on_other_machines(tmp_path: Path) -> None:
    """Two machines with a GPU each, then two GPUs of one, then two machines again."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    first, second = (Program(EXAMPLES / "ddp" / "train.py", tmp_path / name) for name in "ab")
    for program in (first, second):
        program.folder.mkdir()

    def parts(limit: int, *gpus: str) -> "list[subprocess.Popen[str]]":
        more = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "THEMIS_RENDEZVOUS": meet}
        more |= {"THEMIS_WORLD_SIZE": str(len(gpus))} if len(gpus) > 1 else {}
        more["THEMIS_CHECKPOINT_DIR"] = str(tmp_path / "checkpoints")
        programs = (first, second)[: len(gpus)]
        told = [more | {"THEMIS_RANK": str(n), "THEMIS_GPUS": gpu} for n, gpu in enumerate(gpus)]
        return [program.start(limit, env) for program, env in zip(programs, told, strict=True)]

    for gpus in (("0", "0"), ("0,1",)):
        before = len(first.iterations())
        running = parts(FAR, *gpus)
        end = time.monotonic() + 5 * PATIENCE
        while len(first.iterations()) < before + 5 and time.monotonic() < end:
            time.sleep(0.05)
        for process in running:
            process.send_signal(signal.SIGTERM)
        assert [first.end(process) for process in running] == [themis.GRACEFUL_EXIT] * len(gpus)
    reached = first.iterations()[-1]
    assert [first.end(process) for process in parts(reached + 3, "0", "0")] == [0, 0]
    assert first.iterations() == list(range(1, reached + 4)), "nothing twice, nothing left out"
