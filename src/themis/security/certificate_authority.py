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
from typing import TYPE_CHECKING

from themis.core.model.ids import check_name, check_number
from themis.errors import ConfigError
from themis.security.tls import PEER_NAMES, cryptography_x509, read_certificate, read_file
from themis.security.token_files import write_secret
from themis.security.tokens import Role, Secret

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

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
    crypto = _Crypto()
    key, name = crypto.new_key(), crypto.name("Themis authority")
    builder = crypto.builder(name, name, key, _span(now, days))
    x509 = crypto.x509
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(crypto.usage(signing=True), critical=True)
    return _written(folder, "ca", crypto.pem(builder, key), crypto.key_pem(key))


def make_server(
    folder: Path, names: Sequence[str], *, now: float, days: float = DAYS
) -> CertificatePair:
    """The service's certificate, for the names and addresses that it is called by.

    Raises:
        ConfigError: No names or invalid ones, no authority in the folder, or one is there already.
    """
    if not names:
        raise ConfigError("names", "none", "at least one name or address of the service")
    crypto = _Crypto()
    found = [crypto.general_name(name) for name in names]
    return _issue(folder, "server", names[0], found, "server", now, days)


def make_client(
    folder: Path, role: Role, name: str, *, now: float, days: float = DAYS
) -> CertificatePair:
    """A certificate for a node, or for an owner's agents, with the name in it.

    Raises:
        ConfigError: An invalid name, no authority in the folder, or one is there already.
    """
    check_name("name", name)
    crypto = _Crypto()
    prefix = PEER_NAMES[role]
    uri = crypto.x509.UniformResourceIdentifier(prefix + name)
    stem = prefix.removeprefix("themis://").replace("/", "-") + name
    return _issue(folder, stem, name, [uri], "client", now, days)


def _issue(
    folder: Path,
    stem: str,
    common: str,
    names: "Sequence[x509.GeneralName]",
    purpose: str,
    now: float,
    days: float,
) -> CertificatePair:
    crypto = _Crypto()
    authority = read_certificate(folder / "ca.pem")
    signer = crypto.load_key(read_file(folder / "ca.key", private=True))
    key = crypto.new_key()
    builder = crypto.builder(crypto.name(common), authority.subject, key, _span(now, days))
    for extension, critical in crypto.leaf(names, purpose):
        builder = builder.add_extension(extension, critical=critical)
    return _written(folder, stem, crypto.pem(builder, signer), crypto.key_pem(key))


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


class _Crypto:
    """The parts of `cryptography` that are used, imported late: it is slow to import."""

    def __init__(self) -> None:
        self.x509 = cryptography_x509()

    def new_key(self) -> "EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - see above

        return ec.generate_private_key(ec.SECP256R1())

    def load_key(self, pem: bytes) -> "EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - see above
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - see above
            load_pem_private_key,
        )

        try:
            key = load_pem_private_key(pem, None)
        except (ValueError, TypeError):
            raise ConfigError("ca.key", "something else", "a private key (PEM)") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError("ca.key", "another kind", "a key that `themis cert ca` made")
        return key

    def name(self, common: str) -> "x509.Name":
        kind = self.x509.oid.NameOID.COMMON_NAME
        return self.x509.Name([self.x509.NameAttribute(kind, common[:64])])

    def general_name(self, text: str) -> "x509.GeneralName":
        try:
            return self.x509.IPAddress(ip_address(text))
        except ValueError:
            pass
        allowed = "a host name such as themis.lab, or an IP address"
        if not text or len(text) > 253 or not all(ch.isalnum() or ch in ".-*" for ch in text):
            raise ConfigError("name", text[:80], allowed)
        try:
            return self.x509.DNSName(text.lower())
        except ValueError:
            raise ConfigError("name", text[:80], allowed) from None

    def builder(
        self,
        subject: "x509.Name",
        issuer: "x509.Name",
        key: "EllipticCurvePrivateKey",
        span: tuple[dt.datetime, dt.datetime],
    ) -> "x509.CertificateBuilder":
        return (
            self.x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(self.x509.random_serial_number())
            .not_valid_before(span[0])
            .not_valid_after(span[1])
        )

    def leaf(
        self, names: "Sequence[x509.GeneralName]", purpose: str
    ) -> "list[tuple[x509.ExtensionType, bool]]":
        kinds = self.x509.oid.ExtendedKeyUsageOID
        use = kinds.SERVER_AUTH if purpose == "server" else kinds.CLIENT_AUTH
        return [
            (self.x509.SubjectAlternativeName(list(names)), False),
            (self.x509.BasicConstraints(ca=False, path_length=None), True),
            (self.usage(signing=False), True),
            (self.x509.ExtendedKeyUsage([use]), False),
        ]

    def usage(self, *, signing: bool) -> "x509.KeyUsage":
        return self.x509.KeyUsage(
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

    def pem(self, builder: "x509.CertificateBuilder", signer: "EllipticCurvePrivateKey") -> bytes:
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - see above
        from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - see above

        # Strict verifiers want to know which key signed.
        key_id = self.x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = builder.add_extension(key_id, critical=False)
        return bytes(builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM))

    def key_pem(self, key: "EllipticCurvePrivateKey") -> bytes:
        from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415 - see above

        none = form.NoEncryption()
        return bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, none))
