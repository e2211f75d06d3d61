"""The connection to Ray: calls to a driver process (`driver.py`), which is restarted as needed."""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from themis.engines.ray import driver
from themis.errors import ConfigError, UnavailableError

_LOG = logging.getLogger(__name__)

_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
"""Variables that the driver gets, besides RAY_*."""
_READY = 120.0
"""Seconds to connect: for a client Ray starts a process beside the head."""
_PAUSE = 2.0
"""Seconds between starts of a driver that fails."""
_FAREWELL = 2.0
"""Seconds to end by itself."""
_WANTED = "a Python that has Ray"
_VERSION = "import ray; print(ray.__version__)"
_MISSING = "No module named 'ray'"
HINT = "pip install 'themis-scheduler[ray]', or let ray.python name a Python that has Ray"
_LONGEST = 16 << 20
"""Bytes of an answer."""


class DriverConnection:
    """Makes calls, also concurrently."""

    def __init__(
        self,
        address: str,
        python: str = "",
        *,
        limit: float = 20.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare; no process is started yet.

        Args:
            address: The address that Ray connects to.
            python: The interpreter that has Ray; empty: this one.
            limit: Seconds for one call.
            environ: The source of the process's environment.
        """
        self._env = _passed_on(os.environ if environ is None else environ)
        self._address = address
        self._python = python or sys.executable
        self._limit = limit
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._started = -_PAUSE
        self._why = "Ray cannot be reached"
        """Why the last start failed."""
        self._numbers = itertools.count(1)
        self._answers: dict[int, tuple[asyncio.subprocess.Process, asyncio.Future[Any]]] = {}
        self._ended: dict[str, Callable[[str | None], None]] = {}
        self._failed = 0
        """Unanswered calls in a row."""

    def check(self) -> None:
        """Let an existing interpreter pass.

        Raises:
            ConfigError: There is none.
        """
        if shutil.which(self._python) is None:
            raise ConfigError("ray.python", self._python, _WANTED)

    def when_ended(self, name: str, call: Callable[[str | None], None]) -> None:
        """Call `call` when the holder of this start has ended, if the driver hears of that.

        Its argument is why the start never ran; "" if it ran and none of it is alive; None if the
        holder died before it could report.
        """
        self._ended[name] = call

    def forget(self, name: str) -> None:
        """Do not wait for this start any longer."""
        self._ended.pop(name, None)

    async def call(self, what: str, limit: float = 0.0, **args: object) -> Any:
        """Make a call; returns Ray's answer.

        Raises:
            UnavailableError: It does not answer, or the call failed.
        """
        process = await self._open()
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._answers[number] = process, answer
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"id": number, "do": what, **args}).encode() + b"\n")
            async with asyncio.timeout(limit or self._limit):
                await process.stdin.drain()
                found = await answer
        except UnavailableError as error:
            # The driver works, unless even `look` fails: then it has lost its Ray.
            if what == "look":
                await self._silent(process)
            raise UnavailableError(f"Ray, {what}: {error}") from None
        except (TimeoutError, ConnectionError) as error:
            await self._silent(process)
            why = str(error) or f"no answer within {limit or self._limit:g} s"
            raise UnavailableError(f"Ray, {what}: {why}") from None
        finally:
            self._answers.pop(number, None)
        if process is self._process:
            self._failed = 0
        return found

    async def _silent(self, process: asyncio.subprocess.Process) -> None:
        """Count a call that this process did not answer; two in a row end it."""
        if process is not self._process:
            return
        self._failed += 1
        if self._failed > 1:
            await self.close()  # the next call starts another

    async def close(self) -> None:
        """End the driver. Jobs in Ray run on."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process)
        if self._reading is not None and self._reading is not asyncio.current_task():
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _open(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return self._process
            loop = asyncio.get_running_loop()
            if loop.time() < self._started + _PAUSE:
                raise UnavailableError(self._why)
            self._started, self._failed = loop.time(), 0
            process = await asyncio.create_subprocess_exec(
                self._python, "-I", str(Path(driver.__file__)), self._address,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._env,
                limit=_LONGEST,
                start_new_session=True,
            )  # fmt: skip
            try:
                await self._greet(process)
            except BaseException as error:
                await _end(process)
                self._started, self._why = loop.time(), str(error) or self._why
                raise
            self._process = process
            self._reading = asyncio.create_task(self._read(process))
            return process

    async def _greet(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_READY):
                said = json.loads(await process.stdout.readline() or b"{}")
        except (TimeoutError, ValueError):
            said = {}
        if "ok" not in said:
            why = str(said.get("error", "no answer"))
            hint = f" in {self._python}: {HINT}" if _MISSING in why else ""
            raise UnavailableError(f"Ray cannot be reached: {why}{hint}")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._take(json.loads(line))
        except (ValueError, ConnectionError) as error:
            _LOG.warning("Ray: an answer cannot be read: %s", error)
        finally:
            for asked, answer in self._answers.values():
                if asked is process and not answer.done():
                    answer.set_exception(ConnectionError("the way to Ray has ended"))
            # without a reader it is of no use
            if process is self._process:
                self._process = None
            await _end(process)

    def _take(self, said: dict[str, Any]) -> None:
        if "ended" in said:
            call = self._ended.pop(said["ended"], None)
            if call is not None:
                call(said.get("why"))
            return
        _, answer = self._answers.get(said.get("id", 0), (None, None))
        if answer is None or answer.done():
            return
        if "error" in said:
            _LOG.debug("Ray: %s", said["error"])
            answer.set_exception(UnavailableError(said["error"]))
        else:
            answer.set_result(said["ok"])


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let a process end, or kill it.

    Not killed at once: `kill` polls the process first, and then asyncio misses its exit code.
    """
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_FAREWELL):
            await process.wait()
    except BaseException as error:  # also on cancellation no process may be left
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if not isinstance(error, TimeoutError):
            raise
        await process.wait()


def _passed_on(given: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in given.items()
        if name in _PASSED_ON or name.startswith("RAY_")
    }


def ray_version(python: str = "", limit: float = 60.0) -> str:
    """The version of Ray that an interpreter has; no cluster is queried.

    Raises:
        ConfigError: There is no such interpreter, or it has no Ray.
        UnavailableError: It took too long, as the first import may.
    """
    DriverConnection("auto", python).check()
    program = python or sys.executable
    try:
        done = subprocess.run(
            [program, "-I", "-c", _VERSION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_passed_on(os.environ),
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{program} took more than {limit:g} s to import ray") from None
    except OSError as error:
        raise ConfigError("ray.python", f"{program} ({error.strerror})", _WANTED) from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        raise ConfigError("ray.python", f"{program} ({said[-300:]})", _WANTED)
    return done.stdout.decode("utf-8", "replace").strip()[-40:]
