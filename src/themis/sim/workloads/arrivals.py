"""When apps arrive."""

import math
from itertools import accumulate
from random import Random

FOLLOWERS = 0.3
FOLLOW_WITHIN = 600.0
"""In the bursty variant, this share of apps follows the previous one within this many seconds."""


def arrival_times(seed: int, apps: int, horizon: float, bursty: bool) -> list[float]:
    """Times of arrival within the horizon, rising.

    Exponential gaps, one more than apps, scaled so that together they fill the horizon: exactly a
    Poisson process given its number of points. Followers come at unscaled distances.
    """
    gaps = [Random(f"{seed}/gap/{index}").expovariate(1.0) for index in range(apps + 1)]
    follows = [0.0] * (apps + 1)
    if bursty:
        # Where the mean gap is shorter than the window, so are the bursts: they have to fit.
        window = min(FOLLOW_WITHIN, horizon / apps)
        for index in range(1, apps):
            stream = Random(f"{seed}/burst/{index}")
            if stream.random() < FOLLOWERS:
                gaps[index], follows[index] = 0.0, window * stream.random()
    scale = (horizon - math.fsum(follows)) / math.fsum(gaps)
    steps = (gap * scale + follow for gap, follow in zip(gaps, follows, strict=True))
    return list(accumulate(steps))[:apps]
