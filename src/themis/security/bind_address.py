"""Where the service may listen: on this machine only, or with TLS."""

import errno
import socket

from themis.config.addresses import Address, is_loopback
from themis.config.keys import Tls
from themis.errors import ConfigError


def check_bind(key: str, address: Address, tls: Tls) -> None:
    """Refuse an address that other machines could read along with.

    Raises:
        ConfigError: Other machines could reach it, and there is no TLS. Says what to do.
    """
    if is_loopback(address.host) or (tls.cert and tls.key):
        return
    allowed = (
        f"127.0.0.1:{address.port} or [::1]:{address.port}, or any address with TLS: "
        "make certificates with `themis cert ca` and `themis cert server`, then set tls.cert and "
        "tls.key; or stay on loopback behind a proxy or an SSH tunnel"
    )
    raise ConfigError(key, str(address), allowed)


def listen(key: str, address: Address) -> socket.socket:
    """A socket that is bound to an address.

    Raises:
        ConfigError: It is in use, or not of this machine. Says what to do.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With IPPROTO_TCP: asyncio sets TCP_NODELAY, which keeps small answers quick, only on sockets
    # that say so.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address.host, address.port))
    except OSError as error:
        bound.close()
        raise ConfigError(key, str(address), _instead(key, address, error)) from None
    return bound


def _instead(key: str, address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"an address that is free: something listens on port {address.port} already, perhaps "
            f"another service; stop it, or choose another port with --{key}"
        )
    if error.errno == errno.EACCES:
        return "a port from 1024 on, unless the service is root"
    return f"an address of this machine ({error.strerror or error})"
