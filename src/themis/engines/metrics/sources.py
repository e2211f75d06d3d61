r"""Where a job's samples are read from: its own lines, event files, or its log.

    check_source(SourceSpec(kind="regex", pattern=r"step (?P<it>\d+) loss (?P<loss>\S+)"))
    reader = reader_for(task, log)      # blocking, so not for the event loop

A source that no node can read is refused before the start. If a node takes over a running job whose
source it cannot read, it reads nothing, and the job goes on.
"""

import os
import time

from themis.engines.metrics import BUILT_IN, JobLogReader, Reader, TensorBoardReader, matcher
from themis.engines.metrics.jsonl import MetricsReader
from themis.engines.metrics.log_patterns import is_able
from themis.engines.metrics.points import LONGEST_NAME, MetricSample, SampleBatch
from themis.engines.task import JSONL, REGEX, TENSORBOARD, SourceSpec, Task
from themis.errors import ConfigError

KINDS = (JSONL, TENSORBOARD, REGEX)
LONGEST_PATH = 1024


def check_source(source: SourceSpec, *, elsewhere: bool = False) -> None:
    """Let a readable source pass.

    Args:
        source: The source.
        elsewhere: It is read on another machine, which may have google-re2 where this has not.

    Raises:
        ConfigError: It cannot be read; says why.
    """
    if source.kind not in KINDS:
        raise ConfigError("metric.source", source.kind[:40], ", ".join(KINDS))
    if not 0 < len(source.name) <= LONGEST_NAME or not source.name.isprintable():
        allowed = f"1 to {LONGEST_NAME} printable characters"
        raise ConfigError("metric.name", source.name[:LONGEST_NAME], allowed)
    parts = source.path.split("/")
    if source.path.startswith("/") or ".." in parts or "\0" in source.path:
        raise ConfigError("metric.path", source.path[:80], "a path below the checkpoint folder")
    if len(source.path) > LONGEST_PATH:
        raise ConfigError("metric.path", "more", f"at most {LONGEST_PATH} characters")
    if source.kind == REGEX and not (elsewhere and not _is_known(source.pattern)):
        matcher(source.pattern, source.name)


def _is_known(pattern: str) -> bool:
    """Whether this machine can tell if a pattern is sound."""
    return not pattern or pattern in BUILT_IN or is_able()


def reader_for(task: Task, log: str) -> Reader:
    """A reader for the samples of one start of a job, whose output is in `log`."""
    source = task.source
    try:
        match source.kind:
            case "tensorboard":
                return TensorBoardReader(
                    task.checkpoint_dir,
                    source.path,
                    metric=source.name,
                    since=task.since,
                    owner=task.user,
                )
            case "regex":
                # The log is in one of our folders, so it needs no care to open it.
                return JobLogReader(log, matcher(source.pattern, source.name))
            case _:
                return MetricsReader(task.metrics, task.user, metric=source.name)
    except ConfigError as error:
        return _Nothing(str(error))


class _Nothing:
    """Reads nothing."""

    def __init__(self, trouble: str) -> None:
        self._trouble = trouble

    @property
    def trouble(self) -> str:
        """Why."""
        return self._trouble

    def read(self, most: int | None = None) -> tuple[MetricSample, ...]:
        """No samples."""
        return ()

    def batch(self, since: int, most: int) -> SampleBatch:
        """No samples."""
        return SampleBatch((), since, more=False, trouble=self._trouble)


def storage_time(folder: str) -> float:
    """The time that files in this folder get now; a file server's clock may differ."""
    try:
        os.utime(folder, follow_symlinks=False)
        return os.stat(folder, follow_symlinks=False).st_mtime
    except OSError:
        return time.time()
