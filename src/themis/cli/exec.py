"""`themis exec`: the supervisor of one start of a job. Engines call it; people need not.

No typer in here: each start of a job waits for this file, and `themis.cli.main` calls `supervise`
without building the tree of commands.
"""

import sys

from themis.errors import CorruptLogError, MissingFileError, ThemisError


def execute(file: str) -> None:
    """Run the job of a task file under its lease (internal: engines call this)."""
    sys.exit(supervise(file))


def supervise(file: str) -> int:
    """Supervise the job; returns the job's exit code, or 75 if it can be resumed."""
    from themis.engines.supervisor import supervisor  # noqa: PLC0415 - late: --help is quick
    from themis.engines.task import read_task  # noqa: PLC0415 - see above

    error: ThemisError
    try:
        task = read_task(file)
    except FileNotFoundError:
        error = MissingFileError("task", file)
    except (OSError, TypeError, ValueError) as reason:
        error = CorruptLogError(file, 1, f"not a task of an engine: {reason!r}")
    else:
        return supervisor.supervise(file, task)
    sys.stderr.write(f"error: {error}\n")
    return 3 if isinstance(error, MissingFileError) else 2
