"""The command `themis`: one file per verb, everything heavy imported late.

themis sim run --policy themis --apps 20
"""

import sys

from themis.errors import ConfigError, CorruptLogError, RefusedError, ThemisError


def main() -> int:
    """Run the command line; returns the exit code."""
    from themis.cli.app import app  # noqa: PLC0415 - typer is not needed to import this package
    from themis.cli.output import FAILED, OK, USAGE  # noqa: PLC0415 - see above

    try:
        result = app(standalone_mode=False)
    except (ConfigError, RefusedError) as error:
        return _complain(str(error), USAGE)
    except CorruptLogError as error:
        return _complain(str(error), FAILED)
    except ThemisError as error:
        return _complain(str(error), FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except Exception as error:
        return _usage(error)
    return result if isinstance(result, int) else OK


def _usage(error: Exception) -> int:
    """The command line itself was wrong; anything else is our bug and must be seen whole."""
    import click  # noqa: PLC0415 - loaded by typer already

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return _complain("interrupted", 130)
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    raise error


def _complain(message: str, code: int) -> int:
    from themis.cli.output import escape_line  # noqa: PLC0415 - only on errors

    sys.stderr.write(f"error: {escape_line(message)}\n")
    return code


__all__ = ["main"]
