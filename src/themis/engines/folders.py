"""What the local engine keeps on disk: one folder per start of a job, and what outlives it.

    state/                 0711
      tasks/NAME/          0700  task.json lease status lock log log.head log.old errors
      ended/NAME/          0700  log and status of starts whose end is known
      gpus/N               0700  the highest token of each GPU
      metrics/RUN/         0711  the owner's, 0700: metrics.jsonl
      checkpoints/OWNER/   0711  the owner's, 0700: for tasks that name no folder

Folders that an owner may write in lie in folders it may not, and are handed over when what we need
in them is there: nothing of ours ever follows a link that an owner made. All of it blocks.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from themis.engines.base import Task
from themis.engines.contract import job_environment
from themis.engines.deadlines import NEVER_RAN, RUN, Lease
from themis.engines.owners import Account
from themis.engines.pages import create_page, read_page, write_page
from themis.engines.supervisor import EXITED, STARTING

_UNFINISHED = ".new-"
_KEPT = ("status", "log", "log.head", "log.old", "errors")


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and patience of an engine on one machine."""

    log: int = 32 << 20
    metrics: int = 16 << 20
    patience: float = 5.0
    """Seconds from SIGKILL until something counts as unkillable."""
    kept_logs: int = 256
    """Starts whose logs stay after their end is known."""
    look: float = 2.0
    """Seconds between looks at all jobs, in case the kernel's notices are lost."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a job, as its folder tells of it."""

    job: str
    owner: str
    token: int
    gpus: tuple[int, ...]
    run: str
    folder: Path
    metrics: str
    group: str
    account: tuple[int, int] | None

    @property
    def status(self) -> dict[str, object] | None:
        """What its supervisor says."""
        return read_page(str(self.folder / "status"))

    @property
    def lease(self) -> Lease | None:
        """What the node said last."""
        return Lease.from_page(read_page(str(self.folder / "lease")), self.token)

    def write_lease(self, lease: Lease) -> None:
        """For its supervisor to see."""
        write_page(str(self.folder / "lease"), lease.page())

    def write_end(self, outcome: str, reason: str) -> None:
        """In place of a supervisor that is gone."""
        page = self.status or _first_page(self.job, self.token, self.run)
        page |= {"state": EXITED, "outcome": outcome, "code": None, "reason": reason[:600]}
        write_page(str(self.folder / "status"), page)

    def complaint(self) -> str:
        """What is known of the death of its supervisor."""
        try:
            said = (self.folder / "errors").read_text(encoding="utf-8", errors="replace")
        except OSError:
            said = ""
        last = said.strip().rpartition("\n")[2][:300]
        return "its supervisor was gone" + (f": {last}" if last else "")

    def claim(self) -> bool:
        """Call off a start whose supervisor has not come up; False if it has.

        Whoever has the lock decides: a supervisor that comes later finds the task over.
        """
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.write_end(NEVER_RAN, "its node went away before it was started")
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            os.close(lock)


class StateFolder:
    """The folder of one engine."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path.resolve()
        self.limits = limits
        self.tasks = self.path / "tasks"
        self.ended = self.path / "ended"
        self.gpus = self.path / "gpus"
        self.metrics = self.path / "metrics"
        self.checkpoints = self.path / "checkpoints"
        self.prefix = f"themis-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]}-"
        """Of this engine's groups: several nodes may share a machine."""

    def prepare(self) -> None:
        """Make what is missing, and remove what a crash left half made."""
        for folder in (self.path, self.metrics, self.checkpoints):
            _make(folder, 0o711)
        for folder in (self.tasks, self.ended, self.gpus):
            _make(folder, 0o700)
        for left in self.tasks.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)

    def create(
        self, task: Task, devices: list[str], account: Account | None, control: str, base: str
    ) -> Attempt:
        """Write all that a supervisor needs; the folder gets its name when it is complete."""
        run = uuid.uuid4().hex
        metrics = self.metrics / run
        metrics.mkdir(0o700)
        checkpoint = task.checkpoint_dir or str(self._own_checkpoints(task, account))
        file = str(metrics / "metrics.jsonl")
        env = job_environment(
            task, devices=devices, metrics=file, checkpoint=checkpoint, account=account
        )
        body = {
            "job": task.job,
            "owner": task.owner,
            "token": task.token,
            "run": run,
            "argv": task.argv,
            "env": env,
            "workdir": task.workdir,
            "checkpoint": checkpoint,
            "account": [account.uid, account.gid, *account.groups] if account else None,
            "gpus": task.gpus,
            "fence": str(self.gpus),
            "control": control,
            "group": f"{base}/{self.prefix}{run}" if base else "",
            "log_limit": self.limits.log,
            "metrics": file,
            "metrics_limit": self.limits.metrics,
            "patience": self.limits.patience,
        }
        folder = self.tasks / f"{_UNFINISHED}{run}"
        folder.mkdir(0o700)
        with open(folder / "task.json", "x", encoding="utf-8", opener=_private) as out:
            json.dump(body, out)
        create_page(str(folder / "lease"), Lease(task.token, task.end, task.grace, RUN).page())
        create_page(str(folder / "status"), _first_page(task.job, task.token, run))
        return _attempt(folder.rename(self.tasks / f"{_slug(task.job)}-{task.token}-{run}"))

    def attempts(self) -> list[Attempt]:
        """All starts whose end is not known yet, the latest first."""
        found = []
        for file in _by_age(self.tasks.glob("*/task.json")):
            try:
                found.append(_attempt(file.parent))
            except (ValueError, KeyError, TypeError):
                # After a power cut. No supervisor could have read it either.
                shutil.rmtree(file.parent, ignore_errors=True)
        return found

    def retire(self, attempt: Attempt) -> None:
        """Its end is known: keep the log, drop the rest."""
        shutil.rmtree(Path(attempt.metrics).parent, ignore_errors=True)
        kept = self.ended / attempt.folder.name
        attempt.folder.rename(kept)
        for entry in sorted(kept.iterdir()):
            if entry.name not in _KEPT:
                entry.unlink()
        for old in _by_age(self.ended.glob("*/status"))[self.limits.kept_logs :]:
            shutil.rmtree(old.parent, ignore_errors=True)

    def last_log(self, job: str) -> Path | None:
        """The log of a job's latest start among those retired."""
        for status in _by_age(self.ended.glob(f"{_slug(job)}-*/status")):
            page = read_page(str(status))
            if page is not None and page.get("job") == job:
                return status.parent / "log"
        return None

    def _own_checkpoints(self, task: Task, account: Account | None) -> Path:
        folder = self.checkpoints / _slug(task.owner)
        if not folder.exists():
            folder.mkdir(0o700)
            if account is not None:
                os.chown(folder, account.uid, account.gid)
        return folder / _slug(task.job)


def _attempt(folder: Path) -> Attempt:
    body = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    account = body["account"]
    return Attempt(
        job=body["job"],
        owner=body["owner"],
        token=body["token"],
        gpus=tuple(body["gpus"] or ()),
        run=body["run"],
        folder=folder,
        metrics=body["metrics"],
        group=body["group"],
        account=(account[0], account[1]) if account else None,
    )


def _first_page(job: str, token: int, run: str) -> dict[str, object]:
    return {"job": job, "token": token, "run": run, "state": STARTING}


def _slug(text: str) -> str:
    """A file name for any text; different texts have different ones."""
    plain = re.sub(r"[^a-z0-9-]+", "-", text.lower())[:40]
    if plain == text:
        return plain
    return f"{plain}.{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _by_age(files: Iterable[Path]) -> list[Path]:
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path), reverse=True)


def _make(folder: Path, mode: int) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(mode)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
