"""`themis exec`: the supervisor of one start of a job. Engines call it; people need not."""

import sys

from themis.errors import CorruptLogError, MissingFileError

# Not typer's annotations: the quick way in, through `supervise`, must not import typer.


def execute(file: str) -> None:
    """Run the job of a task file under its lease (internal: engines call this)."""
    sys.exit(supervise(file))


def supervise(file: str) -> int:
    """Be the supervisor; returns its exit code, which is the job's, or 75 if it may be resumed.

    Raises:
        MissingFileError: There is no such task.
        CorruptLogError: It cannot be read.
    """
    from themis.engines.supervisor import main  # noqa: PLC0415 - late: --help is quick

    try:
        return main(file)
    except FileNotFoundError as error:
        raise MissingFileError("task", error.filename) from None
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptLogError(file, 1, f"not a task of an engine ({error})") from None
