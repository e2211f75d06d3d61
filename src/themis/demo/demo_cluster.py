"""The demo's service and its nodes: started in a folder of their own, and gone at the end.

    with DemoCluster.open() as cluster:
        print(cluster.address)
        cluster.admin.nodes()
        cluster.tenant("ann").submit(app)
    cluster.ending.cpu_seconds

All processes are below a cleanup process, which ends them when this one closes the demo, or dies.
"""

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import yaml

from themis.client import Answer, Client
from themis.core.model.presets import preset
from themis.demo.cleanup_process import KEEP, REMOVE
from themis.demo.training_program import ProgramLocation, copy_program
from themis.engines.host.accounts import Account, Owners
from themis.engines.supervisor.spawn import command
from themis.errors import ConfigError, ThemisError, UnavailableError
from themis.node.disk import first_closed_folder

CLUSTER = "demo16"
JOB_ACCOUNT = "nobody"
SETTINGS = {
    "lease": 8.0, "heartbeat": 0.5, "grace": 2.0, "bid_deadline": 1.0, "solve_budget": 1.0,
    "guard": 2.0, "pooling": 1.0,
}  # fmt: skip
"""Short leases, so that GPUs change hands within seconds."""
QUICK_SETTINGS = SETTINGS | {"lease": 6.0}
_START_PATIENCE = 120.0
_END_PATIENCE = 60.0
_LOOK = 0.1
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Ending:
    """What the cleanup process reports at the end."""

    cpu_seconds: float = 0.0
    """Of service, nodes, agents and jobs."""
    failed: str = ""
    """The end of the service's log, if it ended by itself."""


class DemoCluster:
    """The service and nodes of one demo. Use it with `with`."""

    def __init__(self, folder: Path, place: ProgramLocation, *, keep: bool, quick: bool) -> None:
        self.folder = folder
        self.place = place
        self.address = ""
        self.ending = Ending()
        self._keep = keep
        self._quick = quick
        self._rest = b""
        self._cleanup: subprocess.Popen[bytes] | None = None
        self._topology = preset(CLUSTER)

    @staticmethod
    def open(keep: Path | None = None, *, quick: bool = False) -> "DemoCluster":
        """A demo in a folder that is removed at the end, or in `keep`, which stays.

        Raises:
            ConfigError: The folder cannot be used, or jobs cannot run here.
        """
        account = Owners.trusting(JOB_ACCOUNT).everybody
        folder = None
        try:
            with _signals_delayed():
                folder = _kept(keep) if keep is not None else _temporary(account)
            if account is not None:
                folder.chmod(folder.stat().st_mode | 0o111)
                _check_reachable(folder, account)
            place = copy_program(folder / "program", account)
        except BaseException:
            if keep is None and folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return DemoCluster(folder, place, keep=keep is not None, quick=quick)

    def __enter__(self) -> Self:
        try:
            self._start()
            self._wait_for_nodes()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # The beginning

    def _start(self) -> None:
        # A process that is interrupted while it tests its temporary folder leaves a file there.
        scratch = self.folder / "tmp"
        scratch.mkdir()
        scratch.chmod(0o1777)
        file = self.folder / "cluster.yaml"
        file.write_text(yaml.safe_dump(_cluster_data()), encoding="utf-8")
        line = command(
            "themis.demo.cleanup_process",
            str(self.folder),
            KEEP if self._keep else REMOVE,
            *self._service(file),
        )
        self._cleanup = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(scratch),
            start_new_session=True,
        )
        end = time.monotonic() + _START_PATIENCE
        while not self.address:
            name, _, value = self._line(end).partition(": ")
            if name == "people":
                self.address = value

    def _service(self, cluster: Path) -> list[str]:
        settings = QUICK_SETTINGS if self._quick else SETTINGS
        return [
            *(sys.executable, "-m", "themis", "serve", "--trust-tenants"),
            *("--job-account", JOB_ACCOUNT, "--state-dir", str(self.folder / "state")),
            *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--local-nodes", str(cluster)),
            *(word for key, value in settings.items() for word in ("--set", f"{key}={value:g}")),
        ]

    def _line(self, end: float) -> str:
        """The next line that the service prints, or at the end the cleanup process.

        Raises:
            ThemisError: There is none.
        """
        assert self._cleanup is not None
        assert self._cleanup.stdout is not None
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0.0 or not select.select([self._cleanup.stdout], [], [], left)[0]:
                raise UnavailableError(f"the service did not start: {self._last_words()}")
            piece = os.read(self._cleanup.stdout.fileno(), 65536)
            if not piece:
                raise UnavailableError(f"the service ended: {self._last_words()}")
            self._rest += piece
        raw, _, self._rest = self._rest.partition(b"\n")
        text = raw.decode("utf-8", "replace")
        if text.startswith("{"):
            self.ending = Ending(**json.loads(text))
            raise ThemisError(f"the service ended: {self._last_words()}")
        return text

    def _last_words(self) -> str:
        lines = self.ending.failed.splitlines()
        return lines[-1].removeprefix("error: ") if lines else "it said nothing"

    def _wait_for_nodes(self) -> None:
        wanted = {machine.name for machine in self._topology.machines}
        end, missing = time.monotonic() + _START_PATIENCE, wanted
        while time.monotonic() < end:
            nodes = self.admin.nodes()["nodes"]
            missing = wanted - {node["node"] for node in nodes if node["present"]}
            if not missing:
                return
            self.check()
            time.sleep(_LOOK)
        raise UnavailableError(f"nodes did not come: {', '.join(sorted(missing))}")

    # While it runs

    @property
    def gpus(self) -> int:
        """How many GPUs the cluster has."""
        return self._topology.gpus

    @property
    def token_file(self) -> Path:
        """The file with the admin's token."""
        return self.folder / "state" / "admin.token"

    @property
    def admin(self) -> Client:
        """The service as its operator sees it."""
        return Client(self.address, self.token_file.read_text(encoding="utf-8").strip())

    def tenant(self, owner: str) -> Client:
        """The service as a team sees it, with a token of its own."""
        return Client(self.address, str(self.admin.create_token("tenant", owner)["token"]))

    def submit(self, owner: str, app: Answer, seed: int) -> str:
        """Submit an app for a team; returns its name."""
        key = secrets.token_hex(8)
        return str(self.tenant(owner).submit(app, key, seed=seed)["app"])

    def check(self) -> None:
        """Notice a service that has ended.

        Raises:
            ThemisError: It has.
        """
        if self._cleanup is not None and self._cleanup.poll() is not None:
            while True:
                self._line(time.monotonic() + 1.0)

    # The end

    def close(self) -> None:
        """End all processes and wait for that. Ctrl-C does not shorten it."""
        if self._cleanup is None:
            if not self._keep:
                shutil.rmtree(self.folder, ignore_errors=True)
            return
        process, self._cleanup = self._cleanup, None
        with signals_ignored():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                said = self._rest + _read_all(process.stdout.fileno())
                process.wait(_END_PATIENCE)
            except (OSError, subprocess.TimeoutExpired):
                return
            finally:
                process.stdout.close()
        if not self._keep:  # The cleanup process did that, unless it was killed.
            shutil.rmtree(self.folder, ignore_errors=True)
        last = said.splitlines()[-1:]
        if last and last[0].startswith(b"{"):
            self.ending = Ending(**json.loads(last[0]))


def _read_all(fd: int) -> bytes:
    made = b""
    while piece := os.read(fd, 65536):
        made += piece
    return made


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Terminated(SystemExit):
    """A signal asked this process to end: not an error."""


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise an exception, as Ctrl-C does.

    Raises:
        Terminated: One of them came; it has the exit code.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise Terminated(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Folders


def _kept(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError("keep", str(folder), "a new or empty folder")
    except OSError as error:
        allowed = f"a folder that can be written ({error.strerror})"
        raise ConfigError("keep", str(folder), allowed) from error
    return folder.resolve()


@contextmanager
def _signals_delayed() -> Iterator[None]:
    """Delay signals, so that no half-made folder is left behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _temporary(account: Account | None) -> Path:
    """A new folder that jobs can reach."""
    here = tempfile.gettempdir()
    for place in (here, "/tmp", "/var/tmp"):
        parent = Path(place).resolve()
        if account is None or (parent.is_dir() and _closed(parent, account) is None):
            folder = Path(tempfile.mkdtemp(prefix="themis-demo-", dir=parent))
            folder.chmod(0o711)
            return folder
    raise ConfigError("TMPDIR", here, f"a folder that {JOB_ACCOUNT} can reach")


def _closed(folder: Path, account: Account) -> Path | None:
    return first_closed_folder(folder, account.uid, {account.gid, *account.groups})


def _check_reachable(folder: Path, account: Account) -> None:
    closed = _closed(folder, account)
    if closed is not None:
        given = f"{closed}, which {account.name} may not pass through"
        raise ConfigError("keep", given, f"a folder that jobs can reach: chmod o+x {closed}")


def _environment(scratch: Path) -> dict[str, str]:
    """Our environment without THEMIS_ variables, and with absolute paths."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("THEMIS_")}
    if env.get("PYTHONPATH"):
        parts = env["PYTHONPATH"].split(os.pathsep)
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts)
    return {**env, "TMPDIR": str(scratch)}


def _cluster_data() -> dict[str, object]:
    """The preset as a cluster file."""
    racks: dict[str, list[dict[str, object]]] = {}
    for machine in preset(CLUSTER).machines:
        line: dict[str, object] = {"name": machine.name, "slots": list(machine.slots)}
        racks.setdefault(machine.rack, []).append(line)
    return {
        "name": CLUSTER,
        "racks": [{"name": name, "machines": lines} for name, lines in racks.items()],
    }
