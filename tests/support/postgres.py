"""A PostgreSQL server of one's own, for tests: in a temporary folder, on a socket, without TCP.

    with temporary_server(find_binaries()) as server:
        url = server.new_database()

It runs as an unprivileged user and ends with the test, or with the process that started it.
"""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.requirements import missing

_PACKAGED = Path("/usr/lib/postgresql")
"""Where Debian puts the programs, by version and not on the PATH."""
_READY = "ready to accept connections"


def require_postgres() -> Path:
    """The folder of the server's programs; a test that wants them is skipped where there are none.

    Where tools are required, it fails instead.
    """
    try:
        import psycopg  # noqa: F401, PLC0415 -- whether it is there
    except ImportError:
        missing("psycopg is not installed (extra postgres)")
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(os.path.realpath(on_path)).parent
    packaged = sorted(_PACKAGED.glob("*/bin/initdb"), key=_version)
    if not packaged:
        missing("initdb and postgres are not installed (Debian package postgresql)")
    return packaged[-1].parent


def _version(program: Path) -> float:
    try:
        return float(program.parent.parent.name)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class Server:
    """One that is running."""

    binaries: Path
    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_database(self) -> str:
        """The URL of a database with nothing in it."""
        name = f"test{next(self.numbers)}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def emptied(self, name: str = "emptied") -> str:
        """The URL of one database that is used again and again; quicker than a new one."""
        if not self.run("postgres", f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):
            self.run("postgres", f"CREATE DATABASE {name}")
        self.run(name, "SET client_min_messages = error; DROP SCHEMA IF EXISTS themis CASCADE")
        return self.url(name)

    def url(self, database: str) -> str:
        """Of a database on this server."""
        return f"postgresql://themis@/{database}?host={self.folder}"

    def run(self, database: str, sql: str) -> str:
        """Run SQL by the server's own client; what it prints."""
        command = [str(self.binaries / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", str(self.folder), "-U", "themis", "-d", database]
        done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()


@contextmanager
def temporary_server(binaries: Path) -> Iterator[Server]:
    """A server that is ready; it is gone afterwards, with all that was in it."""
    # Not below a test's own folder: the name of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="themis-pg-"))
    user = _unprivileged_user()
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        _create(binaries, folder, user)
        process = _start(binaries, folder, user)
        try:
            yield Server(binaries, folder)
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown
            process.wait(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Whom to run as, because the server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _as_user(user: pwd.struct_passwd | None) -> list[str]:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        missing("setpriv is not installed (Debian package util-linux)")
    command = [setpriv, "--pdeathsig", "INT"]
    if user is not None:
        command += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return command


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def _create(binaries: Path, folder: Path, user: pwd.struct_passwd | None) -> None:
    command = [*_as_user(user), str(binaries / "initdb"), "-D", str(folder / "data")]
    command += ["-U", "themis", "-A", "trust", "-E", "UTF8", "--no-sync"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=_environment()
    )
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stderr}")


def _start(binaries: Path, folder: Path, user: pwd.struct_passwd | None) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "fsync": "off",
        "max_connections": "20",
        "shared_buffers": "16MB",
        "logging_collector": "off",
    }
    command = [*_as_user(user), str(binaries / "postgres"), "-D", str(folder / "data")]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8", errors="replace") as lines:
        try:
            process = subprocess.Popen(
                command, cwd=folder, stderr=writing, stdin=subprocess.DEVNULL, env=_environment()
            )
        finally:
            os.close(writing)
        seen = []
        for line in lines:
            seen.append(line)
            if _READY in line:
                break
        else:
            raise RuntimeError(f"postgres did not start: {''.join(seen)}")
    return process
