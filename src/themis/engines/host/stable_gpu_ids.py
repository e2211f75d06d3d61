"""The number of each GPU, given once by UUID; leases, locks and running jobs refer to it.

The driver's list changes: a GPU falls off the bus, or the topology cannot be read once. Numbers
that followed the list would give one GPU to two jobs.
"""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from themis.core.model import Machine
from themis.engines.base import Discovered, Gpu
from themis.errors import UnavailableError

UNSEEN = "the driver does not see it"
NEW = "a GPU that was not there when the numbers were given; it counts after a restart without jobs"


def with_stable_numbers(first: Discovered, now: Discovered) -> Discovered:
    """The GPUs that are there now, with the numbers and slots of the first time."""
    if not all(gpu.device for gpu in first.gpus):
        return now  # pretend GPUs have nothing but their numbers
    present = {gpu.device: gpu for gpu in now.gpus}
    gpus = tuple(
        replace(present[gpu.device], index=gpu.index)
        if gpu.device in present
        else replace(gpu, trouble=UNSEEN)
        for gpu in first.gpus
    )
    known = {gpu.device for gpu in first.gpus}
    odd = tuple(f"{device}: {NEW}" for device in present if device not in known)
    return Discovered(first.machine, gpus, (*now.notes, *odd))


def write_numbers(path: Path, found: Discovered) -> None:
    """Store the numbers durably, as a whole file."""
    devices = [{"device": gpu.device, "model": gpu.model} for gpu in found.gpus]
    body = json.dumps({"machine": asdict(found.machine), "gpus": devices})
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def read_numbers(path: Path) -> Discovered | None:
    """The stored numbers, if there are any.

    Raises:
        UnavailableError: They cannot be read, and guessing them is not safe.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        machine = Machine(**{**data["machine"], "slots": tuple(data["machine"]["slots"])})
        gpus = tuple(
            Gpu(number, item["device"], item["model"]) for number, item in enumerate(data["gpus"])
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = f"{path}: the numbers of GPUs cannot be read ({error})"
        raise UnavailableError(f"{reason}; remove it when no job runs here") from error
    return Discovered(machine, gpus)
