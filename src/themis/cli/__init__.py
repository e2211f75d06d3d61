"""The command `themis`: one file per verb, everything heavy imported late.

themis sim run --policy themis --apps 20
"""

import sys
from pathlib import Path

from themis.errors import ConfigError, RefusedError, ThemisError

EVERYWHERE = ("--quiet", "-q", "--no-color")


def main() -> int:
    """Run the command line; returns the exit code."""
    from themis.cli.app import app  # noqa: PLC0415 - typer is not needed to import this package
    from themis.cli.output import FAILED, INTERRUPTED, OK, USAGE  # noqa: PLC0415 - see above

    # Policies of one's own are found in the folder one works in, after everything installed.
    sys.path.append(str(Path.cwd()))
    try:
        # Named here, because click would name it after the module that Python was started with.
        app(args=_with_flags_first(sys.argv[1:]), prog_name="themis")
    except SystemExit as done:  # how a command line that was understood, or not, comes back
        if done.code == INTERRUPTED:
            return _complain("interrupted", INTERRUPTED)
        return done.code if isinstance(done.code, int) else OK
    except (ConfigError, RefusedError) as error:
        return _complain(str(error), USAGE)
    except ThemisError as error:
        return _complain(str(error), FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    return OK


def _with_flags_first(args: list[str]) -> list[str]:
    """Flags that every command has may stand anywhere: `themis sim run --quiet`."""
    end = args.index("--") if "--" in args else len(args)
    flags = [arg for arg in args[:end] if arg in EVERYWHERE]
    return [*flags, *(arg for arg in args[:end] if arg not in EVERYWHERE), *args[end:]]


def _complain(message: str, code: int) -> int:
    from themis.cli.output import escape_line  # noqa: PLC0415 - only on errors

    sys.stderr.write(f"error: {escape_line(message)}\n")
    return code


__all__ = ["main"]
