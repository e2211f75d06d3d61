"""Slurm's commands as calls, each with a timeout; `UnavailableError` when Slurm is away."""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from themis.errors import ConfigError, RefusedError, UnavailableError

NEEDED = ("salloc", "srun", "squeue", "scancel", "scontrol", "sinfo")
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH", "SLURM_CONF", "TMPDIR")
"""Variables that Slurm's commands get; supervisors inherit them from `srun`."""
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_AWAY = (
    "unable to contact slurm",
    "socket timed out",
    "connection refused",
    "unable to establish",
    "communication",
    "protocol authentication",
    "munge",
    "slurm backup controller",
    "zero bytes were transmitted",
    "temporarily unavailable",
    "connection timed out",
    "slurmctld",
)


class Commands:
    """Runs Slurm's commands as the user of this process."""

    def __init__(self, environ: Mapping[str, str] | None = None, limit: float = 30.0) -> None:
        given = os.environ if environ is None else environ
        self._env = {name: given[name] for name in _PASSED_ON if name in given}
        self._limit = limit
        self.user = pwd.getpwuid(os.geteuid()).pw_name

    def check(self) -> None:
        """Let this machine pass if it has all commands.

        Raises:
            ConfigError: Some are missing.
        """
        path = self._env.get("PATH")
        missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
        if missing:
            named = ", ".join(f"`{name}`" for name in missing)
            given = f"slurm, without {named} on the PATH"
            raise ConfigError("engine", given, "Slurm's commands on the PATH of the service")

    async def ping(self) -> str:
        """Slurm's report on its controllers, in one line.

        Raises:
            UnavailableError: None of them is up.
            RefusedError: The command failed.
        """
        text, _ = await self.run("scontrol", "ping")
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        said = "; ".join(lines)
        if not any(line.split()[-1] == "UP" for line in lines):
            raise UnavailableError(f"scontrol ping: {said[-300:] or 'no answer'}")
        return said[:300]

    async def run(self, *argv: str, limit: float = 0.0) -> tuple[str, str]:
        """The stdout and stderr of a command.

        Raises:
            UnavailableError: Slurm is away, or the command timed out.
            RefusedError: It failed for another reason.
        """
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limit or self._limit):
                out, err = await process.communicate()
        except TimeoutError:
            raise UnavailableError(f"{argv[0]} took more than {limit or self._limit:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                    # On SIGTERM salloc gives back its allocation.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(2.0):
                            await process.wait()
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
        text, complaint = out.decode("utf-8", "replace"), err.decode("utf-8", "replace").strip()
        if process.returncode:
            if any(word in complaint.lower() for word in _AWAY):
                raise UnavailableError(f"{argv[0]}: {complaint[-300:]}")
            raise RefusedError(argv[0], complaint[-300:] or f"exited with {process.returncode}")
        return text, complaint

    def spawn(self, argv: Sequence[str], errors: Path) -> int:
        """Start a command that outlives us, with its stderr in a file; returns its process id."""
        program = shutil.which(argv[0], path=self._env.get("PATH")) or argv[0]
        return os.posix_spawn(
            program,
            list(argv),
            self._env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(errors), _APPEND, 0o600),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM),
        )
