"""The keys of an app file for one job, and paths as the user means them."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from themis.errors import RefusedError


def job_app(
    command: Sequence[str],
    *,
    name: str | None = None,
    gpus: int = 1,
    min_gpus: int | None = None,
    duration: float | str | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
) -> dict[str, Any]:
    """An app of one job, as the keys of an app file.

    Args:
        command: Program and arguments, taken literally.
        name: The name; by default after the program.
        gpus: How many GPUs it gets.
        min_gpus: With how few it can run; by default as many as `gpus`.
        duration: How long it takes on one GPU, if known: seconds, or as 1h.
        env: Environment variables.
        workdir: The folder where it runs, on every machine.

    Raises:
        RefusedError: There is no command.
    """
    words = [str(word) for word in command]
    if isinstance(command, str) or not words:
        raise RefusedError("command", "a list of arguments is missing, such as python train.py")
    made: dict[str, Any] = {
        "name": name or _name_for(words),
        "command": [word.replace("{", "{{").replace("}", "}}") for word in words],
        "gpus": {"per_job_max": gpus, "per_job_min": gpus if min_gpus is None else min_gpus},
    }
    given = {"duration": duration, "env": dict(env) if env else None, "workdir": workdir}
    return made | {key: value for key, value in given.items() if value is not None}


def _name_for(words: Sequence[str]) -> str:
    """A name for a command: train for `python -u train.py --lr 1`."""
    program = os.path.basename(words[0])
    if re.fullmatch(r"python[0-9.]*|torchrun|bash|sh|env", program):
        rest = iter(words[1:])
        program = next((word for word in rest if not word.startswith("-")), program)
    plain = re.sub(r"\.(py|sh)\Z", "", os.path.basename(program)).lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "job"


def absolute(path: str) -> str:
    """An absolute path; links in the current folder's path are kept."""
    here = os.environ.get("PWD", "")
    try:
        known = os.path.isabs(here) and os.path.samefile(here, ".")
    except (OSError, ValueError):
        known = False
    whole = os.path.join(here if known else os.getcwd(), path)
    # With a link before it, `..` is not the folder that has the link.
    up = ".." in path.split("/")
    return os.path.realpath(whole) if up else os.path.normpath(whole)
