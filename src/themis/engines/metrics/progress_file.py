"""A job's progress, kept with its checkpoints: its last sample, for a service that lost it.

    keep_sample(folder, sample, account)        # when a start of it has ended
    recall_sample(folder, account)              # when another one ends well without a word

A program that finds nothing left to do reports nothing. The service may not know that it is done: a
service that was restored from a backup knows less than the checkpoint.

The owner can put anything into the folder, so it is trusted as little as metrics. It is opened as
the owner. All functions block, perhaps for ever: the storage may be a file server's.
"""

import json
import os
from contextlib import suppress
from dataclasses import replace

from themis.engines.metrics.jsonl import MetricsReader
from themis.engines.metrics.points import MetricSample
from themis.engines.supervisor import libc

NAME = ".themis-progress"
"""The file in a checkpoint folder: a line as jobs write them."""
_TAIL = 1 << 16
"""Bytes at the end of a job's file that are searched for its last line."""


def keep_sample(folder: str, sample: MetricSample, account: tuple[int, int] | None) -> None:
    """Write down a job's last sample; errors are ignored.

    Args:
        folder: Its checkpoint folder.
        sample: The sample.
        account: The account it runs as; None for this process's own user.
    """
    line = {"it": sample.iteration, **dict(sample.values)}
    path, fresh = os.path.join(folder, NAME), os.path.join(folder, f"{NAME}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError), libc.files_as(account):
        with suppress(FileNotFoundError):
            os.unlink(fresh)
        fd = os.open(fresh, flags, 0o600)
        try:
            os.write(fd, json.dumps(line).encode() + b"\n")
        finally:
            os.close(fd)
        os.replace(fresh, path)


def keep_last(metrics: str, folder: str, account: tuple[int, int] | None, metric: str) -> None:
    """Write down the last line in a job's own file, for a node that is not there to do it."""
    reader = MetricsReader(metrics, account, metric=metric)
    with suppress(OSError):
        reader.seek(max(0, os.path.getsize(metrics) - _TAIL))
    samples = reader.read()
    if samples:
        keep_sample(folder, samples[-1], account)


def recall_sample(folder: str, account: tuple[int, int] | None, metric: str) -> MetricSample | None:
    """The sample that was written down, without a time: it is not new."""
    samples = MetricsReader(os.path.join(folder, NAME), account, metric=metric).read(1)
    return replace(samples[-1], time=None) if samples else None
