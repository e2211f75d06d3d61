"""A service as a process of its own, on loopback, and commands as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import themis
from themis.client import Client

DOORS = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
HANG = 60.0
"""Seconds after which something that should have happened never will."""
_CALL = (sys.executable, "-c", "import sys; from themis.cli import main; sys.exit(main())")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Place:
    """A folder to work in, and what is started there."""

    home: Path
    started: list["Running"] = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def store(self) -> Path:
        return self.state / "themis.db"

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("THEMIS_")}
        source = str(Path(themis.__file__).parents[1])
        return {**kept, "HOME": str(self.home), "XDG_STATE_HOME": "", "PYTHONPATH": source}

    def themis(self, *args: object, **environ: object) -> Ended:
        """Run a command to its end."""
        done = subprocess.run(
            [*_CALL, *map(str, args)],
            env={**self.environment(), **{key: str(value) for key, value in environ.items()}},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def start(self, *args: object) -> "subprocess.Popen[bytes]":
        """Start a command whose end nobody waits for here."""
        return subprocess.Popen(
            [*_CALL, *map(str, args)],
            env=self.environment(),
            cwd=self.home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def serve(self, *flags: object) -> "Running":
        """Start a service and wait until it answers."""
        log = (self.home / "service.log").open("a")
        with log:
            process = subprocess.Popen(
                [*_CALL, "serve", "--state-dir", str(self.state), *DOORS,
                 *map(str, flags)],
                env=self.environment(),
                cwd=self.home,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip
        running = Running(self, process)
        self.started.append(running)
        running.wait_for_words()
        return running


class Running:
    """A service that runs."""

    def __init__(self, place: Place, process: "subprocess.Popen[str]") -> None:
        self.place = place
        self.process = process
        self.words: list[str] = []
        self.server = ""

    def wait_for_words(self) -> None:
        """Read what it announces; its store comes last."""
        guard = threading.Timer(HANG, self.process.kill)
        guard.start()
        stream = self.process.stdout
        assert stream is not None
        try:
            for line in stream:
                self.words.append(line.strip())
                if line.startswith("people: "):
                    self.server = line.split()[1]
                if line.startswith("store: "):
                    return
        finally:
            guard.cancel()
        raise AssertionError(f"the service ended: {self.log()}")

    @property
    def token_file(self) -> Path:
        return self.place.state / "admin.token"

    def client(self, **options: Any) -> Client:
        token = self.token_file.read_text().strip()
        return Client(self.server, token, **options)

    def themis(self, *args: object, **environ: object) -> Ended:
        """Run a command against it, as its admin."""
        known = {"THEMIS_SERVER": self.server, "THEMIS_TOKEN_FILE": self.token_file}
        return self.place.themis(*args, **{**known, **environ})

    def log(self) -> str:
        return (self.place.home / "service.log").read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and wait; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Where services and commands of a test live; what is still running at its end is ended."""
    made = Place(tmp_path)
    yield made
    for running in made.started:
        running.end(signal.SIGKILL)


@pytest.fixture
def read_json() -> Callable[[Ended], Any]:
    """What a command printed with --json."""

    def read(done: Ended) -> Any:
        assert done.code == 0, done.err
        return json.loads(done.out)

    return read
