"""Certificates: made, read, checked, and used by real TLS on loopback."""

import socket
import ssl
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from themis.client.connection import tls_context
from themis.config.keys import Tls
from themis.errors import ConfigError, DeniedError, MissingFileError
from themis.security.certificate_authority import make_authority, make_client, make_server
from themis.security.tls import (
    check_files,
    check_peer,
    days_left,
    grpc_client,
    grpc_server,
    peer_of,
    uvicorn_options,
)
from themis.security.tokens import Identity, Role

NOW = 1_800_000_000.0
DAY = 86400.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server and a node, valid from about now on for real."""
    import time  # noqa: PLC0415 - only TLS itself looks at the clock

    made = tmp_path_factory.mktemp("certs")
    now = time.time()
    make_authority(made, now=now)
    make_server(made, ["localhost", "127.0.0.1"], now=now)
    make_client(made, Role.NODE, "gpu-07", now=now)
    make_client(made, Role.TENANT, "vision", now=now)
    return made


@pytest.fixture
def tls(folder: Path) -> Tls:
    return Tls(folder / "server.pem", folder / "server.key", folder / "ca.pem")


def test_keys_are_closed_to_others(folder: Path) -> None:
    keys = sorted(folder.glob("*.key"))
    assert len(keys) == 4
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_a_second_authority_does_not_replace_the_first(folder: Path) -> None:
    before = (folder / "ca.key").read_bytes(), (folder / "ca.pem").read_bytes()
    with pytest.raises(ConfigError, match="not taken yet"):
        make_authority(folder, now=NOW)
    assert ((folder / "ca.key").read_bytes(), (folder / "ca.pem").read_bytes()) == before


def test_without_an_authority_nothing_is_signed(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        make_server(tmp_path, ["localhost"], now=NOW)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a b", "a\0b", "x" * 300, "\u00e9.lab", "a/b", "http://x"])
def test_odd_names_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        make_server(folder, [name], now=NOW)
    with pytest.raises(ConfigError):
        make_client(folder, Role.NODE, name, now=NOW)


@pytest.mark.parametrize("days", [0.0, -1.0, float("nan"), 1e9, True])
def test_an_odd_lifetime_is_refused(tmp_path: Path, days: float) -> None:
    with pytest.raises(ConfigError, match="days"):
        make_authority(tmp_path, now=NOW, days=days)


def test_how_long_a_certificate_is_valid_is_known(tmp_path: Path) -> None:
    pair = make_authority(tmp_path, now=NOW, days=10.0)
    assert days_left(pair.cert, now=NOW + DAY) == pytest.approx(9.0, abs=1e-3)
    assert days_left(pair.cert, now=NOW + 11 * DAY) < 0.0


def test_a_certificate_names_its_node_or_owner_and_a_servers_names_none(folder: Path) -> None:
    assert peer_of((folder / "node-gpu-07.pem").read_bytes()) == (Role.NODE, "gpu-07")
    assert peer_of((folder / "owner-vision.pem").read_bytes()) == (Role.TENANT, "vision")
    assert peer_of((folder / "server.pem").read_bytes()) is None
    assert peer_of((folder / "ca.pem").read_bytes()) is None
    assert peer_of(b"hello") is None


def test_a_token_carried_to_another_machine_is_refused(folder: Path) -> None:
    pem = (folder / "node-gpu-07.pem").read_bytes()
    here, there = (Identity(Role.NODE, name, "0" * 12) for name in ("gpu-07", "gpu-08"))
    check_peer(here, pem, required=True)
    check_peer(there, None, required=False)
    with pytest.raises(DeniedError, match="that of node gpu-07"):
        check_peer(there, pem, required=False)
    with pytest.raises(DeniedError, match="missing"):
        check_peer(here, None, required=True)


def test_an_owner_and_a_node_of_one_name_are_two(folder: Path) -> None:
    node = (folder / "node-gpu-07.pem").read_bytes()
    owner = (folder / "owner-vision.pem").read_bytes()
    check_peer(Identity(Role.TENANT, "vision", "0" * 12), owner, required=True)
    with pytest.raises(DeniedError, match="that of node gpu-07"):
        check_peer(Identity(Role.TENANT, "gpu-07", "0" * 12), node, required=True)
    with pytest.raises(DeniedError, match="that of tenant vision"):
        check_peer(Identity(Role.NODE, "vision", "0" * 12), owner, required=True)


def test_admins_come_with_tokens_alone() -> None:
    check_peer(Identity(Role.ADMIN, "ops", "0" * 12), None, required=True)


def test_files_that_fit_pass(tls: Tls, folder: Path) -> None:
    left = days_left(folder / "server.pem", now=NOW)
    check_files(tls, now=NOW + (left - 1) * DAY)
    with pytest.raises(ConfigError, match="expired"):
        check_files(tls, now=NOW + (left + 1) * DAY)


def test_a_key_of_another_certificate_is_noticed(folder: Path) -> None:
    odd = Tls(folder / "server.pem", folder / "node-gpu-07.key")
    with pytest.raises(ConfigError, match=r"tls\.key"):
        check_files(odd, now=NOW - 10 * 365 * DAY)


def test_an_open_key_is_refused(tmp_path: Path, folder: Path) -> None:
    key = tmp_path / "server.key"
    key.write_bytes((folder / "server.key").read_bytes())
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        check_files(Tls(folder / "server.pem", key), now=NOW - 10 * 365 * DAY)


def test_invalid_certificate_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("hello")
    with pytest.raises(ConfigError, match="a certificate"):
        days_left(tmp_path / "a.pem", now=NOW)
    with pytest.raises(MissingFileError):
        days_left(tmp_path / "gone.pem", now=NOW)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """One TLS handshake over a pair of sockets; raises what the client sees."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as wrapped:
            wrapped.do_handshake()
    finally:
        ours.close()
        thread.join()


def test_a_client_trusts_the_service_by_its_name_only(tls: Tls, folder: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    options = uvicorn_options(tls)
    server.load_cert_chain(options["ssl_certfile"], options["ssl_keyfile"])
    handshake(server, tls_context(folder / "ca.pem"), "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, tls_context(folder / "ca.pem"), "elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, tls_context(None), "localhost")


def test_a_node_shows_its_certificate_to_the_service(tls: Tls, folder: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem", folder / "server.key")
    server.load_verify_locations(folder / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = tls_context(folder / "ca.pem")
    client.load_cert_chain(folder / "node-gpu-07.pem", folder / "node-gpu-07.key")
    handshake(server, client, "localhost")


def test_a_nodes_certificate_does_not_pass_for_the_service(folder: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "node-gpu-07.pem", folder / "node-gpu-07.key")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, tls_context(folder / "ca.pem"), "localhost")


def test_without_certificates_there_is_no_tls() -> None:
    assert uvicorn_options(Tls()) == {}


def test_grpc_takes_the_files(tls: Tls, folder: Path) -> None:
    assert grpc_server(Tls()) is None
    assert grpc_server(tls) is not None
    node = folder / "node-gpu-07.pem", folder / "node-gpu-07.key"
    assert grpc_client(folder / "ca.pem", *node) is not None


def test_service_identifies_grpc_callers(folder: Path) -> None:
    def tell(message: bytes, context: Any) -> bytes:
        (pem,) = context.auth_context()["x509_pem_cert"]
        return repr(peer_of(pem)).encode()

    methods = {"call": grpc.unary_unary_rpc_method_handler(tell)}
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("any", methods)])
    files = Tls(folder / "server.pem", folder / "server.key", folder / "ca.pem", True)
    port = server.add_secure_port("127.0.0.1:0", grpc_server(files))
    server.start()
    node = folder / "node-gpu-07.pem", folder / "node-gpu-07.key"
    try:
        with grpc.secure_channel(f"localhost:{port}", grpc_client(folder / "ca.pem", *node)) as one:
            told = one.unary_unary("/any/call")(b"", timeout=30)
        with (
            grpc.secure_channel(f"localhost:{port}", grpc_client(folder / "ca.pem")) as other,
            pytest.raises(grpc.RpcError) as caught,
        ):
            other.unary_unary("/any/call")(b"", timeout=30)
    finally:
        server.stop(None).wait()
    assert told == repr((Role.NODE, "gpu-07")).encode()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
