"""A service run as operators run it: processes, signals, crashes, files, certificates."""

import json
import signal
import socket
import ssl
import tempfile
import time
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from themis.client import Client
from themis.errors import UnavailableError, UnknownCallerError

DOORS = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")


def test_service_starts_issues_tokens_and_stops_on_request(place: Any) -> None:
    service = place.serve("--log-format", "json")
    assert f"THEMIS_TOKEN_FILE={service.token_file} themis whoami" in "".join(service.words)
    assert service.token_file.stat().st_mode & 0o777 == 0o600
    assert service.themis("whoami").out.startswith("admin admin on http://127.0.0.1:")
    made = service.themis(
        "token", "create", "--role", "tenant", "--subject", "vision", "--out", "vision.token"
    )
    assert made.code == 0, made.err
    file = place.home / "vision.token"
    assert file.stat().st_mode & 0o777 == 0o600
    secret = file.read_text().strip()
    assert secret not in made.out + made.err
    told = service.themis("quota", "vision", "9", THEMIS_TOKEN_FILE=file)
    assert (told.code, "admin" in told.err) == (5, True)
    number = secret.split("_")[1]
    # The whole token in place of its id is understood, and not repeated.
    ended = service.themis("token", "revoke", secret)
    assert (ended.code, number in ended.out, secret in ended.out) == (0, True, False)
    told = service.themis("whoami", THEMIS_TOKEN_FILE=file)
    assert told.code == 5
    assert "revoked" in told.err
    assert "themis token create" in told.err
    began = time.monotonic()
    assert service.end() == 0
    assert time.monotonic() - began < 30.0  # a hang guard: ten seconds are promised
    lines = [json.loads(line) for line in service.log().splitlines()]
    assert all({"at", "level", "from", "what"} <= line.keys() for line in lines)
    assert secret not in service.log()


def test_unfinished_calls_do_not_keep_the_service_from_stopping(place: Any) -> None:
    service = place.serve()
    host, _, port = service.server.removeprefix("http://").partition(":")
    with ExitStack() as stack:
        for text in (b"", b"GET /v1/ap", b"POST /v1/apps HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"):
            caller = stack.enter_context(socket.create_connection((host, int(port))))
            caller.sendall(text)
        assert service.client().about()["epoch"] == 1
        assert service.end() == 0
    assert "Traceback" not in service.log()


@pytest.mark.slow
def test_changes_survive_a_crash(place: Any, read_json: Any) -> None:
    service = place.serve()
    assert service.themis("quota", "vision", "3").code == 0
    assert service.themis("weight", "vision", "2.5").code == 0
    made = read_json(
        service.themis("token", "create", "--role", "viewer", "--subject", "eve", "--json")
    )
    service.end(signal.SIGKILL)
    again = place.serve()
    owners = again.client().owners()["owners"]
    assert owners == [{"owner": "vision", "quota": 3, "weight": 2.5}]
    assert Client(again.server, made["token"]).whoami()["subject"] == "eve"
    verbs = [row["verb"] for row in again.client().audit()["rows"]]
    assert verbs == ["quota set", "weight set", "token create"]
    told = again.themis("replay", place.store)
    assert (told.code, "every command as in the log" in told.out) == (0, True)


@pytest.mark.slow
def test_users_see_the_trouble_of_an_engine(place: Any, read_json: Any) -> None:
    with tempfile.TemporaryDirectory() as shared:
        Path(shared).chmod(0o755)
        # A bridge that ends by itself: nothing is left behind.
        flags = ("--engine", "ray", "--ray-python", "/no/such/python", "--shared-dir", shared)
        service = place.serve(*flags, "--trust-tenants")
        deadline = time.monotonic() + 120.0
        while not (told := read_json(service.themis("nodes", "--json"))["trouble"]):
            assert time.monotonic() < deadline, service.log()
        assert "ray.python: got '/no/such/python'" in told
        assert told in service.themis("nodes").out
        assert f"engine ray: {told} (log: " in service.log()
        assert service.end() == 0


def test_a_second_service_on_the_same_store_is_refused_in_one_sentence(place: Any) -> None:
    service = place.serve()
    done = place.themis("serve", "--state-dir", place.state, *DOORS)
    assert (done.code, done.out) == (4, "")
    assert done.err.count("\n") == 1
    assert f"in use by process {service.process.pid}" in done.err
    assert service.client().about()["epoch"] == 1


def test_port_in_use_and_open_address_are_refused_with_advice(place: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = place.themis(
            "serve", "--state-dir", place.state, *DOORS, "--http", f"127.0.0.1:{port}"
        )
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "choose another port with --http" in done.err
        done = place.themis(
            "serve", "--state-dir", place.state, *DOORS, "--grpc", f"127.0.0.1:{port}"
        )
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "choose another port with --grpc" in done.err
    done = place.themis("serve", "--state-dir", place.state, *DOORS, "--http", "0.0.0.0:0")
    assert done.code == 2
    assert "themis cert" in done.err


@pytest.mark.slow
def test_damaged_store_is_refused_and_backup_restored_in_a_later_epoch(
    place: Any, read_json: Any
) -> None:
    service = place.serve()
    assert service.themis("quota", "vision", "3").code == 0
    backup = place.home / "backup.db"
    flags = ("--state-dir", place.state)
    assert read_json(place.themis("backup", backup, *flags, "--json"))["epoch"] == 1
    assert place.themis("backup", backup, *flags).code == 2  # never over another
    assert place.themis("restore", backup, *flags).code == 4  # the service has the store
    service.end()
    assert place.themis("restore", backup, *flags).code == 2  # never over a store
    raw = bytearray(place.store.read_bytes())
    for offset in range(4096, len(raw), 64):
        raw[offset] ^= 0xFF
    place.store.write_bytes(raw)
    done = place.themis("serve", *flags, *DOORS)
    assert done.code == 1
    assert "themis restore" in done.err
    assert place.store.read_bytes() == raw  # left as it is
    for file in place.state.glob("themis.db*"):
        if not file.name.endswith(".lock"):
            file.rename(place.home / f"damaged-{file.name}")
    done = place.themis("restore", backup, *flags)
    assert done.code == 0, done.err
    assert "fencing tokens" in done.err
    again = place.serve()
    assert again.client().about()["epoch"] > 1_000_000
    assert again.client().owners()["owners"][0]["quota"] == 3


def test_sighup_and_the_verb_read_the_configuration_again(place: Any, read_json: Any) -> None:
    file = place.home / "themis.yaml"
    file.write_text("session: 1h\n")
    service = place.serve("--config", file)
    file.write_text("session: 2h\n")
    assert service.themis("config", "reload").out == "read again; changed: session\n"
    # The port was chosen at the start; browsers are still known under it.
    assert _browser_is_known(service)
    file.write_text("session: 3h\n")
    service.send(signal.SIGHUP)
    client = service.client()
    until = time.monotonic() + 30.0
    while client.config()["session"]["value"] != 10800.0 and time.monotonic() < until:
        pass
    assert client.config()["session"]["value"] == 10800.0
    # One key that cannot change: nothing does, and it is said why.
    file.write_text("session: 4h\nseed: 7\n")
    told = service.themis("config", "reload")
    assert (told.code, "seed" in told.err) == (2, True)
    assert client.config()["session"]["value"] == 10800.0


@pytest.mark.slow
def test_with_certificates_the_token_is_sent_only_to_the_right_service(place: Any) -> None:
    certs = place.home / "certs"
    assert place.themis("cert", "ca", "--dir", certs).code == 0
    assert place.themis("cert", "server", "127.0.0.1", "localhost", "--dir", certs).code == 0
    service = place.serve("--tls-cert", certs / "server.pem", "--tls-key", certs / "server.key")
    assert service.server.startswith("https://")
    ca = certs / "ca.pem"
    assert service.themis("whoami", "--ca", ca).code == 0
    assert service.themis("whoami", THEMIS_CA=ca).code == 0
    stranger = service.themis("whoami")
    assert (stranger.code, "certificate is not trusted" in stranger.err) == (4, True)
    with pytest.raises(UnavailableError, match="certificate is not trusted"):
        service.client(tries=1).whoami()
    cookie, page = _logged_in(service.client(ca=ca).login_link(), ca)
    assert page == 303
    assert cookie.startswith("__Host-")
    assert {"Secure", "HttpOnly", "SameSite=Strict"} <= {part.strip() for part in cookie.split(";")}
    with pytest.raises(UnknownCallerError):
        Client(service.server, None, ca).whoami()


@pytest.mark.slow
def test_app_runs_to_its_end_with_mutual_certificates(place: Any) -> None:
    certs = place.home / "certs"
    # As in the guide: the service is called by names, none of which is this machine's own.
    for words in (("ca",), ("server", "localhost", "127.0.0.1"), ("node", "m0")):
        assert place.themis("cert", *words, "--dir", certs).code == 0
    service = place.serve(
        *("--grpc", "0.0.0.0:0", "--tls-require-client", "--tls-ca", certs / "ca.pem"),
        *("--tls-cert", certs / "server.pem", "--tls-key", certs / "server.key"),
        *("--set", "heartbeat=1s", "--set", "bid_deadline=1s"),
    )
    trust = {"THEMIS_CA": certs / "ca.pem"}
    made = ("token", "create", "--role", "node", "--subject", "m0", "--out", "m0.token")
    assert service.themis(*made, **trust).code == 0
    door = next(line for line in service.words if line.startswith("nodes and agents: "))
    with tempfile.TemporaryDirectory(prefix="themis-node-") as folder:
        Path(folder).chmod(0o755)  # Jobs run as somebody else where this is root.
        node = place.start(
            *("node", "--server", f"127.0.0.1:{door.rpartition(':')[2]}", "--name", "m0"),
            *("--token-file", "m0.token", "--ca", certs / "ca.pem"),
            *("--cert", certs / "node-m0.pem", "--key", certs / "node-m0.key"),
            *("--pretend", "1", "--trust-tenants", "--state", Path(folder) / "m0"),
        )
        try:
            until = time.monotonic() + 60.0
            while not service.client(ca=certs / "ca.pem").nodes()["nodes"]:
                assert time.monotonic() < until, "the node is not let in"
            app = ("run", "--name", "one", "--workdir", "/", "--", "echo", "trained")
            done = service.themis(*app, **trust)
        finally:
            node.terminate()
            node.wait()
    assert (done.code, "trained" in done.out) == (0, True), done.out + done.err


def _browser_is_known(service: Any) -> bool:
    host, _, path = service.client().login_link().removeprefix("http://").partition("/")
    browser = HTTPConnection(host, timeout=30.0)
    try:
        browser.request("GET", f"/{path}")
        entered = browser.getresponse()
        entered.read()
        cookie = str(entered.getheader("Set-Cookie")).partition(";")[0]
        browser.request("GET", "/v1/whoami", headers={"Cookie": cookie})
        return browser.getresponse().status == 200
    finally:
        browser.close()


def _logged_in(link: str, ca: Path) -> tuple[str, int]:
    """The cookie that a browser gets for a login link."""
    host, _, path = link.removeprefix("https://").partition("/")
    context = ssl.create_default_context(cafile=str(ca))
    connection = HTTPSConnection(host, timeout=30.0, context=context)
    try:
        connection.request("GET", f"/{path}")
        answer = connection.getresponse()
        answer.read()
        return str(answer.getheader("Set-Cookie")), answer.status
    finally:
        connection.close()
