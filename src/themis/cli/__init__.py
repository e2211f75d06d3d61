"""The command `themis`: one file per verb, everything heavy imported late.

themis sim run --policy themis --apps 20
"""

import atexit
import signal
import sys
from contextlib import suppress
from pathlib import Path

from themis.errors import (
    ConfigError,
    CorruptLogError,
    DeniedError,
    LimitError,
    MissingError,
    MissingFileError,
    RefusedError,
    ThemisError,
    UnavailableError,
    UnknownCallerError,
)

_NO_TOKEN = (
    "an admin makes one with `themis token create`; put it into ~/.config/themis/token (mode "
    "0600), or name its file in THEMIS_TOKEN_FILE"
)
EVERYWHERE = ("--quiet", "-q", "--no-color")


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:2] == ["exec"] and len(sys.argv) == 3 and not sys.argv[2].startswith("-"):
        from themis.cli.exec import supervise  # noqa: PLC0415 - each job waits for this: no typer

        return supervise(sys.argv[2])
    from themis.cli.common.fast_path import quick_call  # noqa: PLC0415 - see above
    from themis.cli.common.output import (  # noqa: PLC0415 - typer is not needed to import this package
        DENIED,
        FAILED,
        INTERRUPTED,
        NOT_FOUND,
        OK,
        UNREACHABLE,
        USAGE,
        MistypedError,
        mistyped,
    )

    # A user's policy is found in the working directory, after all installed packages.
    with suppress(FileNotFoundError):  # The folder may be gone; most commands do not need it.
        sys.path.append(str(Path.cwd()))
    try:
        call = quick_call(sys.argv[1:])
        if call is not None:
            return call()
        from themis.cli.app import tree  # noqa: PLC0415 - see above

        args = _with_flags_first(sys.argv[1:])
        app = tree(next((arg for arg in args if arg not in EVERYWHERE), ""))
        # Named here, because click would name it after the module that Python was started with.
        code = app(args=args, prog_name="themis", standalone_mode=False)
        if code == INTERRUPTED:
            return _interrupted(INTERRUPTED)
        return code if isinstance(code, int) else OK
    except SystemExit as done:  # a shell that asks for completions, or a closed pipe
        return done.code if isinstance(done.code, int) else OK
    except MistypedError as error:
        return mistyped(error)
    except (MissingFileError, MissingError) as error:
        return _complain(str(error), NOT_FOUND)
    except UnknownCallerError as error:
        return _complain(f"{error}; {_NO_TOKEN}", DENIED)
    except DeniedError as error:
        return _complain(str(error), DENIED)
    except UnavailableError as error:
        return _complain(str(error), UNREACHABLE)
    except LimitError as error:  # Nothing is wrong with what was typed.
        return _complain(str(error), FAILED)
    except (ConfigError, CorruptLogError, RefusedError) as error:
        return _complain(str(error), USAGE)
    except ThemisError as error:
        return _complain(str(error), FAILED)
    except KeyboardInterrupt:
        return _interrupted(INTERRUPTED)


def _with_flags_first(args: list[str]) -> list[str]:
    """Flags that every command has may stand anywhere: `themis sim run --quiet`."""
    end = args.index("--") if "--" in args else len(args)
    if next((arg for arg in args if arg not in EVERYWHERE), "") == "run" and "--" not in args:
        return args  # what follows may be flags of the program that is to run
    flags = [arg for arg in args[:end] if arg in EVERYWHERE]
    return [*flags, *(arg for arg in args[:end] if arg not in EVERYWHERE), *args[end:]]


def _interrupted(code: int) -> int:
    # Who presses Ctrl-C again while Python cleans up would make the exit code that of a signal.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    return _complain("interrupted", code)


def _complain(message: str, code: int) -> int:
    from themis.cli.common.output import escape_line  # noqa: PLC0415 - only on errors

    sys.stderr.write(f"error: {escape_line(message)}\n")
    return code


__all__ = ["main"]
