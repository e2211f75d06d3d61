"""Tells systemd how a service is, by its protocol: one datagram to the socket that it names.

notify(READY)           # for units with Type=notify: what waits for us may start now
"""

import os
import socket
from contextlib import suppress

READY, STOPPING = "READY=1", "STOPPING=1"


def notify(text: str) -> None:
    """Tell systemd, where it has asked to be told; never a reason to fail."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    with suppress(OSError), socket.socket(socket.AF_UNIX, flags) as sender:
        sender.sendto(text.encode(), address)
