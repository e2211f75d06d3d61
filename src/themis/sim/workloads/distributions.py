"""Published distributions, and how to draw from them.

quantile(APP_GPU_SECONDS, 0.5)     # the median app: about 810,000 GPU-seconds
"""

import math
from bisect import bisect_left
from itertools import pairwise

Table = tuple[tuple[float, float], ...]
"""A distribution: values and the share of draws at or below each."""

# Read off the figures of the Themis paper by the authors of PCS (TuftsNATLab/PCS, MIT).
APP_GPU_SECONDS: Table = (
    (3600, 0.0),
    (9216, 0.01),
    (40284, 0.11),
    (108864, 0.28),
    (297072, 0.35),
    (447552, 0.45),
    (1028304, 0.53),
    (1291464, 0.74),
    (1696176, 0.88),
    (2176452, 0.96),
    (2625444, 1.0),
)
W1_JOBS: Table = (
    (1, 0.0),
    (20, 0.23),
    (22, 0.35),
    (56, 0.55),
    (60, 0.69),
    (90, 1.0),
)
W2_JOBS: Table = (
    (1, 0.0),
    (5, 0.43),
    (13, 0.70),
    (23, 0.77),
    (28, 0.87),
    (64, 0.90),
    (87, 0.96),
    (90, 1.0),
)
# The 2 % at 3 GPUs of the digitised figure are folded into 2: the text says 1 or 2.
W1_GPUS_PER_JOB: Table = ((1, 0.75), (2, 1.0))
W2_GPUS_PER_JOB: Table = ((1, 0.20), (2, 0.38), (4, 0.98), (8, 1.0))

# Ours: one job for a tenth of the apps, 75 in the median, 100 at most, as the trace study says.
TRACE_JOBS: Table = (
    (1, 0.0),
    (1, 0.10),
    (20, 0.20),
    (50, 0.34),
    (75, 0.50),
    (90, 0.75),
    (100, 1.0),
)


def quantile(table: Table, share: float) -> float:
    """The value below which this share of draws lies, linear between the rows of the table."""
    index = max(1, bisect_left(table, share, key=lambda row: row[1]))
    (low, below), (high, upto) = table[index - 1], table[index]
    return low + (high - low) * (share - below) / (upto - below)


def mean_of(table: Table) -> float:
    """The mean of draws, linear between the rows of the table."""
    return math.fsum(
        (upto - below) * (low + high) / 2.0 for (low, below), (high, upto) in pairwise(table)
    )


def step(table: Table, share: float) -> int:
    """A draw from a distribution of a few whole values."""
    return next(int(value) for value, upto in table if share < upto)
