"""What jobs write besides lines of JSON, read where they run: TensorBoard's files, and logs.

    reader = TensorBoardReader(checkpoint_dir, "runs", metric="train/loss", since=began)
    reader = LogReader(log, matcher("tensorflow"))
    reader.read()           # the samples since the last time

The owner can put anything there, so the readers trust nothing: they open files as the owner, only
plain files of the owner's, never through a link and never blocking; each read has a limit, and
anything that is no sample is skipped.
"""

from themis.engines.metrics.log_patterns import BUILT_IN, Matcher, matcher
from themis.engines.metrics.log_reader import JobLogReader
from themis.engines.metrics.points import Reader
from themis.engines.metrics.tensorboard import TensorBoardReader

__all__ = [
    "BUILT_IN",
    "JobLogReader",
    "Matcher",
    "Reader",
    "TensorBoardReader",
    "matcher",
]
