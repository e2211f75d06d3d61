"""TLS for the service and its callers, from files.

    check_files(config.tls, now=now)                 # finds mistakes before anything listens
    uvicorn.Config(app, **uvicorn_options(config.tls))
    server.add_secure_port(str(config.grpc), grpc_server(config.tls))

`themis.security.certificate_authority` makes such files.
"""

import os
import ssl
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509

from themis.config.keys import Tls
from themis.errors import ConfigError, DeniedError, MissingFileError
from themis.security.tokens import Identity, Role

PEER_NAMES = {Role.NODE: "themis://node/", Role.TENANT: "themis://owner/"}
"""URIs by which certificates name nodes and owners."""
WARN_DAYS = 30.0
"""The doctor warns of a certificate that is valid for less than this."""

_MAX_BYTES = 1_000_000


def check_files(tls: Tls, *, now: float) -> None:
    """Check the service's files before it listens.

    Raises:
        ConfigError: A file is missing, invalid or has expired, or key and certificate do not match.
    """
    for key, path in (("tls.cert", tls.cert), ("tls.ca", tls.ca)):
        if path is not None and days_left(path, now=now) <= 0.0:
            raise ConfigError(key, "a certificate that has expired", "a valid one", str(path))
    if tls.cert is not None and tls.key is not None:
        read_file(tls.key, private=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
        except ssl.SSLError as error:
            given = error.reason or "something else"
            raise ConfigError("tls.key", given, f"the key of {tls.cert}", str(tls.key)) from None


def uvicorn_options(tls: Tls) -> dict[str, Any]:
    """Keyword arguments for `uvicorn.Config`; empty without certificates."""
    if tls.cert is None or tls.key is None:
        return {}
    return {"ssl_certfile": str(tls.cert), "ssl_keyfile": str(tls.key)}


def grpc_server(tls: Tls) -> grpc.ServerCredentials | None:
    """Credentials of a gRPC server; None without certificates (loopback only)."""
    if tls.cert is None or tls.key is None:
        return None
    pair = (read_file(tls.key, private=True), read_file(tls.cert))
    roots = read_file(tls.ca) if tls.ca else None
    return grpc.ssl_server_credentials([pair], roots, tls.require_client)


def grpc_client(
    ca: Path | None, cert: Path | None = None, key: Path | None = None
) -> grpc.ChannelCredentials:
    """Credentials of a gRPC client; `cert` and `key` are its own certificate."""
    return grpc.ssl_channel_credentials(
        read_file(ca) if ca else None,
        read_file(key, private=True) if key else None,
        read_file(cert) if cert else None,
    )


def peer_of(pem: bytes) -> tuple[Role, str] | None:
    """Role and name in a certificate that TLS has checked; None if it has neither."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return None
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        for role, prefix in PEER_NAMES.items():
            if uri.startswith(prefix):
                return role, uri.removeprefix(prefix)
    return None


def check_peer(identity: Identity, pem: bytes | None, *, required: bool) -> None:
    """Refuse a call of a node or an agent whose certificate and token do not agree.

    Args:
        identity: The identity of the token.
        pem: The certificate that TLS has checked; None if the caller presented none.
        required: Whether it must present one (`tls.require_client`).

    Raises:
        DeniedError: They do not agree: the token may have been copied to another machine.
    """
    if identity.role not in PEER_NAMES or (pem is None and not required):
        return
    named = peer_of(pem) if pem is not None else None
    if named != (identity.role, identity.subject):
        shown = f"that of {named[0]} {named[1]}" if named else "missing, or without a name"
        who = f"{identity.role} {identity.subject}"
        raise DeniedError(who, f"the certificate is {shown}")


def days_left(path: Path, *, now: float) -> float:
    """How long a certificate is still valid, in days; negative after it has expired.

    Raises:
        ConfigError: It cannot be read.
    """
    certificate = read_certificate(path)
    return float(certificate.not_valid_after_utc.timestamp() - now) / 86400.0


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate in a file.

    Raises:
        ConfigError: There is none.
    """
    try:
        return x509.load_pem_x509_certificate(read_file(path))
    except ValueError:
        raise ConfigError("file", "something else", "a certificate (PEM)", str(path)) from None


def read_file(path: Path, *, private: bool = False) -> bytes:
    """The bytes of a file; a private one must not be readable by others.

    Raises:
        ConfigError: It cannot be read, or others can read it.
    """
    try:
        with path.open("rb") as handle:
            mode = os.fstat(handle.fileno()).st_mode & 0o777
            raw = handle.read(_MAX_BYTES)
    except FileNotFoundError:
        raise MissingFileError("file", str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("file", reason, "a readable file", str(path)) from None
    if private and mode & 0o007:
        allowed = f"no access for others: chmod 600 {path}"
        raise ConfigError("mode of the key", f"{mode:04o}", allowed, str(path))
    return raw
