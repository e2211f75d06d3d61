"""What if: the state of a cluster forked into the simulator, with an app that is not there yet.

    for answer in foresee(snapshot, Question((case,)), clock=time.monotonic):
        answer.cases[0].finish        # Interval(low, mid, high): seconds from now

What nobody knows, such as how long processes take to start and which trials are stopped early, is
drawn: several seeds give intervals. Nothing here reads a clock or a file; `worker` is the process.
"""

from themis.forecast.answers import CaseAnswer, Forecast, ForecastRange, OtherApp
from themis.forecast.forecast import foresee

__all__ = ["CaseAnswer", "Forecast", "ForecastRange", "OtherApp", "foresee"]
