"""The state folder of an engine: a folder for each start of a job, and the files that outlive it.

    state/                 0711
      tasks/NAME/          0700  task.json lease status lock log log.head log.old log.cut errors
      ended/NAME/          0700  log and status of starts whose end is known
      gpus/N               0700  the highest token of each GPU
      metrics/RUN/         0711  the owner's, 0700: metrics.jsonl
      checkpoints/OWNER/   0711  the owner's, 0700: where no other place for them is named

A folder that an owner may write to lies in one that the owner may not write to, and is handed over
after our files in it were made: no code of ours follows a link that an owner made. All methods
block.
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from themis.engines.attempt.attempt import Attempt, first_page, read_attempt
from themis.engines.attempt.checkpoint_dirs import Checkpoints, slug
from themis.engines.attempt.lease_timing import RUN, LeaseTimer
from themis.engines.attempt.record_file import create_page, read_page
from themis.engines.host.accounts import Account
from themis.engines.metrics.sources import storage_time
from themis.engines.supervisor.bounded_log import tail
from themis.engines.supervisor.gpu_locks import highest_token
from themis.engines.supervisor.job_env import job_environment
from themis.engines.task import FILE, TENSORBOARD, Task
from themis.errors import RefusedError

_UNFINISHED = ".new-"
_KEPT = ("status", "log", "log.head", "log.old", "log.cut", "errors")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Sizes and timeouts of an engine on one machine."""

    log: int = 32 << 20
    metrics: int = 16 << 20
    patience: float = 5.0
    """Seconds from SIGKILL until a process counts as unkillable."""
    kept_logs: int = 256
    """How many finished starts keep their logs."""
    look: float = 2.0
    """Seconds between looks at all jobs, in case inotify misses a change."""


class StateFolder:
    """The folder of one engine."""

    def __init__(self, path: Path, limits: EngineLimits, checkpoints: Path | None = None) -> None:
        self.path = path.resolve()
        self.limits = limits
        self.tasks = self.path / "tasks"
        self.ended = self.path / "ended"
        self.gpus = self.path / "gpus"
        self.metrics = self.path / "metrics"
        self._own_checkpoints = self.path / "checkpoints"
        self.checkpoints = Checkpoints(checkpoints or self._own_checkpoints)
        self.prefix = f"themis-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]}-"
        """Prefix of this engine's control groups: several nodes may share a machine."""

    def prepare(self) -> None:
        """Make missing folders, and remove starts that a crash left half made."""
        for folder in (self.path, self.metrics, self._own_checkpoints):
            _make(folder, 0o711)
        for folder in (self.tasks, self.ended, self.gpus):
            _make(folder, 0o700)
        for left in self.tasks.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)

    def create(self, task: Task, account: Account | None, devices: Sequence[str] = ()) -> Attempt:
        """Make the folder of a start; it gets its name when it is complete.

        Args:
            task: The job, and how its processes are held.
            account: The account it runs as, if not this user.
            devices: CUDA's names of its GPUs.
        """
        run = uuid.uuid4().hex
        metrics = self.metrics / run
        checkpoint = task.checkpoint_dir or str(
            self.checkpoints.folder(task.owner, task.place or task.job, account)
        )
        metrics.mkdir(0o700)
        started = task.replace(
            run=run,
            account=(account.uid, account.gid, *account.groups) if account else None,
            checkpoint_dir=checkpoint,
            metrics=str(metrics / "metrics.jsonl"),
            since=storage_time(checkpoint) if task.source.kind == TENSORBOARD else 0.0,
            fence=str(self.gpus),
            group=f"{task.group}/{self.prefix}{run}" if task.group else "",
            log_limit=self.limits.log,
            metrics_limit=self.limits.metrics,
            patience=self.limits.patience,
        )
        started.env = job_environment(started, devices, account)
        folder = self.tasks / f"{_UNFINISHED}{run}"
        folder.mkdir(0o700)
        started.write(folder / FILE)
        lease = LeaseTimer(task.token, task.end, task.grace, RUN, task.boot)
        create_page(str(folder / "lease"), lease.page())
        create_page(str(folder / "status"), first_page(started))
        return read_attempt(folder.rename(self.tasks / f"{slug(task.job)}-{task.token}-{run}"))

    def check_tokens(self, task: Task) -> None:
        """Let a task pass unless a GPU has seen a higher token.

        Raises:
            RefusedError: One of its tokens is stale.
        """
        tokens = task.tokens or (task.token,) * len(task.gpus)
        for gpu, token in zip(task.gpus, tokens, strict=True):
            highest = highest_token(str(self.gpus), str(gpu))
            if token < highest:
                reason = f"token {token} for GPU {gpu} is stale: it has seen {highest}"
                raise RefusedError(task.job, reason)

    def attempts(self) -> list[Attempt]:
        """All starts that were not retired, the latest first."""
        found = []
        for file in _by_age(self.tasks.glob(f"*/{FILE}")):
            try:
                found.append(read_attempt(file.parent))
            except (ValueError, TypeError):
                # After a power cut; no supervisor could have read it either.
                shutil.rmtree(file.parent, ignore_errors=True)
        return found

    def retire(self, attempt: Attempt) -> None:
        """Keep the log of a start whose end is known, and drop the rest."""
        shutil.rmtree(Path(attempt.task.metrics).parent, ignore_errors=True)
        kept = self.ended / attempt.folder.name
        attempt.folder.rename(kept)
        for entry in sorted(kept.iterdir()):
            if entry.name not in _KEPT:
                entry.unlink()
        for old in _by_age(self.ended.glob("*/status"))[self.limits.kept_logs :]:
            shutil.rmtree(old.parent, ignore_errors=True)

    def tail(self, job: str, log: Path | None, limit: int) -> str:
        """The end of a job's output, whole lines if there are any."""
        log = log or self.last_log(job)
        text = tail(str(log), limit) if log else b""
        if len(text) == limit and b"\n" in text:
            text = text.partition(b"\n")[2]
        return text.decode("utf-8", "replace")

    def kept_log(self, tag: str) -> Path | None:
        """The log of a start that was retired, by its tag."""
        for status in _by_age(self.ended.glob("*/status")):
            if (read_page(str(status)) or {}).get("tag") == tag:
                return status.parent / "log"
        return None

    def last_log(self, job: str) -> Path | None:
        """The log of a job's latest start among those retired."""
        for status in _by_age(self.ended.glob(f"{slug(job)}-*/status")):
            page = read_page(str(status))
            if page is not None and page.get("job") == job:
                return status.parent / "log"
        return None


def _by_age(files: Iterable[Path]) -> list[Path]:
    """The newest first, without files that vanish meanwhile."""
    dated = []
    for path in files:
        with suppress(FileNotFoundError):
            dated.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(dated, reverse=True)]


def _make(folder: Path, mode: int) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(mode)
