"""What systemd hears of the service and of a node: a socket of the test's own stands in for it."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from themis.ops.systemd import READY, STOPPING, notify
from themis.security.token_files import write_secret
from themis.security.tokens import Secret


@pytest.fixture
def folder() -> Iterator[Path]:
    # Names of sockets are short, and jobs must be able to pass through to their folders.
    with tempfile.TemporaryDirectory(prefix="themis-notify-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


def listening(address: str) -> socket.socket:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(address.replace("@", "\0"))
    heard.settimeout(60.0)
    return heard


@pytest.mark.parametrize("abstract", [False, True], ids=["in a folder", "abstract"])
def test_notification_arrives(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, abstract: bool
) -> None:
    address = f"@themis-{os.getpid()}" if abstract else str(folder / "socket")
    with closing(listening(address)) as heard:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        notify(READY)
        assert heard.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/no/such/socket", "vsock:2:1", "@" + "x" * 200])
def test_missing_notification_socket_is_no_trouble(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify(STOPPING)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["serve", "node"])
def test_a_process_says_when_it_is_ready_and_when_it_stops(folder: Path, verb: str) -> None:
    write_secret(folder / "token", Secret(f"themis_{'0' * 12}_{'a' * 43}"))
    flags = {
        "serve": ["--state-dir", folder / "state", "--grpc", "127.0.0.1:0", "--http",
                  "127.0.0.1:0"],
        "node": ["--name", "m0", "--pretend", "1", "--trust-tenants", "--server", "127.0.0.1:9",
                 "--token-file", folder / "token", "--state", folder / "m0"],
    }  # fmt: skip
    env = os.environ | {"NOTIFY_SOCKET": str(folder / "socket"), "PYTHONPATH": ":".join(sys.path)}
    with closing(listening(str(folder / "socket"))) as heard:
        command = [sys.executable, "-m", "themis", verb, *map(str, flags[verb])]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)
        try:
            assert heard.recv(100) == b"READY=1"
            process.terminate()
            assert heard.recv(100) == b"STOPPING=1"
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
