"""Which number a GPU has. Given once, by UUID: leases, locks and running jobs go by it.

What the driver lists differs from time to time: a GPU falls off the bus, or the topology cannot be
read for once. Numbers that followed it would give one GPU to two jobs.
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
    """What is there now, with the numbers and the shape of the first time."""
    if not all(gpu.device for gpu in first.gpus):
        return now  # pretended: their numbers are all they are
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
    """Keep the numbers, durably and whole."""
    devices = [{"device": gpu.device, "model": gpu.model} for gpu in found.gpus]
    body = json.dumps({"machine": asdict(found.machine), "gpus": devices})
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def read_numbers(path: Path) -> Discovered | None:
    """The numbers that were kept, if any were.

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
