"""Tells systemd the state of a service: one datagram to the socket that systemd names.

notify(READY)           # for units with Type=notify: units that wait for this one may start
"""

import os
import socket
from contextlib import suppress

READY, STOPPING = "READY=1", "STOPPING=1"


def notify(text: str) -> None:
    """Tell systemd, if it named a socket; a failure is ignored."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    with suppress(OSError), socket.socket(socket.AF_UNIX, flags) as sender:
        sender.sendto(text.encode(), address)
