"""The GPUs that a cluster's scheduler chose for this process, from the environment.

Imported by every supervisor: nothing but the standard library.
"""

import os
import re

from themis.engines.supervisor.gpu_locks import RefusedStartError

_NAME = re.compile(r"[A-Za-z0-9-]{1,80}\Z")
_HOW = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that name a program's GPUs. They are passed on unchanged, because a scheduler may
number devices anew inside a container."""


def chosen_devices(variables: tuple[str, ...], count: int) -> list[str]:
    """The names of this process's GPUs.

    Args:
        variables: The variables to read; the first one that is set counts.
        count: The number that there must be.

    Raises:
        RefusedStartError: There are more or fewer, or one is no valid name.
    """
    if not count:
        return []
    text = next((os.environ[name] for name in variables if os.environ.get(name)), "")
    names = _spread([part.strip() for part in text.split(",") if part.strip()])
    odd = [name for name in names if not _NAME.match(name)]
    if odd:
        raise RefusedStartError(f"its GPUs are named {odd[0][:80]!r}")
    if len(names) != count or len(set(names)) != count:
        where = " or ".join(variables)
        raise RefusedStartError(f"its lease is for {count} GPUs, and {where} has {text[:80]!r}")
    return names


def passed_on(names: list[str]) -> dict[str, str]:
    """The variables for a job's GPUs; an empty list hides all of them."""
    if not names:
        return dict.fromkeys(("CUDA_VISIBLE_DEVICES",), "")
    told = {name: os.environ[name] for name in _HOW if os.environ.get(name)}
    return {"CUDA_VISIBLE_DEVICES": ",".join(names)} | told


def _spread(parts: list[str]) -> list[str]:
    """Ranges of numbers one by one: 0-3 is four GPUs."""
    names: list[str] = []
    for part in parts:
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit():
            names += map(str, range(int(first), int(last) + 1))
        else:
            names.append(part)
    return names
