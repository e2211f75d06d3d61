"""How a training program tells Themis how far it is. Standard library only.

    import themis
    themis.report(iteration, loss)

Outside Themis it does nothing, so the call can stay in the program.
"""

import json
import math
import os
import time
from typing import SupportsFloat

METRICS_VARIABLE = "THEMIS_METRICS"


def report(it: SupportsFloat, loss: SupportsFloat | None = None, **values: SupportsFloat) -> None:
    """Say that iteration `it` is done, with its loss if there is one.

    Of several processes only the first should call it. A loss that is no finite number is told as
    none. A file that cannot be written to is no reason to stop training.

    Args:
        it: Iterations done since the very beginning, not since the last restart.
        loss: Anything that `float` takes, such as a tensor with one element.
        **values: Other measurements, by name; seven are passed on beside a loss.
    """
    path = os.environ.get(METRICS_VARIABLE)
    if not path:
        return
    number = float(it)
    body = {
        "it": int(number) if number.is_integer() else number,
        "loss": None if loss is None else _finite(float(loss)),
        "t": time.time(),
    }
    for name, value in values.items():
        body.setdefault(name, _finite(float(value)))
    line = json.dumps(body, separators=(",", ":")).encode() + b"\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line)  # one write, so that lines of several processes do not mix
        finally:
            os.close(fd)
    except OSError:
        return


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
