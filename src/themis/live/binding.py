"""Where the service may listen: on this machine only, or with TLS."""

from themis.errors import ConfigError
from themis.live.config import Address, Tls, is_loopback


def check_bind(key: str, address: Address, tls: Tls) -> None:
    """Let an address pass if nobody on the way can read along.

    Raises:
        ConfigError: Others could reach it, and there is no TLS. Says what to do.
    """
    if is_loopback(address.host) or (tls.cert and tls.key):
        return
    allowed = (
        f"127.0.0.1:{address.port} or [::1]:{address.port}, or any address with TLS: "
        "make certificates with `themis cert ca` and `themis cert server`, then set tls.cert and "
        "tls.key; or stay on loopback behind a proxy or an SSH tunnel"
    )
    raise ConfigError(key, str(address), allowed)
