"""A small certificate authority: certificates for the service and its nodes.

    make_authority(folder, now=now)                              # ca.pem, ca.key
    make_server(folder, ["themis.lab", "10.0.0.5"], now=now)     # server.pem, server.key
    make_client(folder, Role.NODE, "gpu-07", now=now)            # node-gpu-07.pem, .key

Enough for a private cluster; certificates of an existing authority do as well. Keys are files of
mode 0600 that are never overwritten.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from themis.core.model.ids import check_name, check_number
from themis.errors import ConfigError
from themis.security.tls import PEER_NAMES, read_certificate, read_file
from themis.security.token_files import write_secret
from themis.security.tokens import Role, Secret

AUTHORITY_DAYS = 3650.0
DAYS = 398.0
"""The most that browsers accept."""

_BACKDATED = dt.timedelta(minutes=5)
"""For machines whose clocks are slow."""


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate and its private key, as files."""

    cert: Path
    key: Path


def make_authority(folder: Path, *, now: float, days: float = AUTHORITY_DAYS) -> CertificatePair:
    """A new authority. Its key can sign a certificate for any name.

    Raises:
        ConfigError: There is one in the folder, or the folder cannot be written to.
    """
    key, name = _new_key(), _name("Themis authority")
    builder = (
        _builder(name, name, key, _span(now, days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signing=True), critical=True)
    )
    return _written(folder, "ca", _pem(builder, key), _key_pem(key))


def make_server(
    folder: Path, names: Sequence[str], *, now: float, days: float = DAYS
) -> CertificatePair:
    """The service's certificate, for the names and addresses that it is called by.

    Raises:
        ConfigError: No names or invalid ones, no authority in the folder, or one is there already.
    """
    if not names:
        raise ConfigError("names", "none", "at least one name or address of the service")
    found = [_general_name(name) for name in names]
    return _issue(folder, "server", names[0], found, ExtendedKeyUsageOID.SERVER_AUTH, now, days)


def make_client(
    folder: Path, role: Role, name: str, *, now: float, days: float = DAYS
) -> CertificatePair:
    """A certificate for a node, or for an owner's agents, with the name in it.

    Raises:
        ConfigError: An invalid name, no authority in the folder, or one is there already.
    """
    check_name("name", name)
    prefix = PEER_NAMES[role]
    uri = x509.UniformResourceIdentifier(prefix + name)
    stem = prefix.removeprefix("themis://").replace("/", "-") + name
    return _issue(folder, stem, name, [uri], ExtendedKeyUsageOID.CLIENT_AUTH, now, days)


def _issue(
    folder: Path,
    stem: str,
    common: str,
    names: Sequence[x509.GeneralName],
    purpose: x509.ObjectIdentifier,
    now: float,
    days: float,
) -> CertificatePair:
    authority = read_certificate(folder / "ca.pem")
    signer = _load_key(read_file(folder / "ca.key", private=True))
    key = _new_key()
    builder = (
        _builder(_name(common), authority.subject, key, _span(now, days))
        .add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signing=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    return _written(folder, stem, _pem(builder, signer), _key_pem(key))


def _span(now: float, days: float) -> tuple[dt.datetime, dt.datetime]:
    check_number("days", days, above=True, high=36500.0)
    start = dt.datetime.fromtimestamp(now, dt.UTC)
    return start - _BACKDATED, start + dt.timedelta(days=days)


def _written(folder: Path, stem: str, cert: bytes, key: bytes) -> CertificatePair:
    pair = CertificatePair(folder / f"{stem}.pem", folder / f"{stem}.key")
    # The key first: writing it fails where there is one already.
    write_secret(pair.key, Secret(key.decode().rstrip("\n")))
    pair.cert.write_bytes(cert)
    return pair


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        raise ConfigError("ca.key", "something else", "a private key (PEM)") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("ca.key", "another kind", "a key that `themis cert ca` made")
    return key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    allowed = "a host name such as themis.lab, or an IP address"
    if not text or len(text) > 253 or not all(ch.isalnum() or ch in ".-*" for ch in text):
        raise ConfigError("name", text[:80], allowed)
    try:
        return x509.DNSName(text.lower())
    except ValueError:
        raise ConfigError("name", text[:80], allowed) from None


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    span: tuple[dt.datetime, dt.datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(span[0])
        .not_valid_after(span[1])
    )


def _usage(*, signing: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signing,
        key_cert_sign=signing,
        crl_sign=signing,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> bytes:
    # Strict verifiers want to know which key signed.
    key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    signed = builder.add_extension(key_id, critical=False).sign(signer, hashes.SHA256())
    return bytes(signed.public_bytes(serialization.Encoding.PEM))


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    none = serialization.NoEncryption()
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, none))
