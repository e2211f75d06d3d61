"""Addresses of servers, as configurations and flags write them.

check_address("0.0.0.0:7421")      # Address(host="0.0.0.0", port=7421)
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address

from themis.errors import ConfigError
from themis.recording.yaml_documents import shown

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. Port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_address(value: object, key: str = "address") -> Address:
    """An address from HOST:PORT.

    Raises:
        ConfigError: It is none.
    """
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    known = _IPV6.match(bare) if bracketed else _HOST.match(host)
    if not colon or not known or not _PORT.match(port) or int(port) > 65535:
        allowed = "HOST:PORT, such as 127.0.0.1:7421 or [::1]:7421"
        raise ConfigError(key, shown(value), allowed)
    return Address(bare, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. Names other than localhost may move."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
