"""The command `themis`: one file per verb, everything heavy imported late.

themis sim run --policy themis --apps 20
"""

import sys

from themis.errors import ConfigError, RefusedError, ThemisError


def main() -> int:
    """Run the command line; returns the exit code."""
    from themis.cli.app import app  # noqa: PLC0415 - typer is not needed to import this package
    from themis.cli.output import FAILED, INTERRUPTED, OK, USAGE  # noqa: PLC0415 - see above

    try:
        app()
    except SystemExit as done:  # how a command line that was understood, or not, comes back
        return done.code if isinstance(done.code, int) else OK
    except (ConfigError, RefusedError) as error:
        return _complain(str(error), USAGE)
    except ThemisError as error:
        return _complain(str(error), FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    return OK


def _complain(message: str, code: int) -> int:
    from themis.cli.output import escape_line  # noqa: PLC0415 - only on errors

    sys.stderr.write(f"error: {escape_line(message)}\n")
    return code


__all__ = ["main"]
