"""Small records that two processes share through a file, and that a full disk cannot stop.

    create_page(path, {"end": 12.0})
    write_page(path, {"end": 24.0})
    read_page(path)                 # {"end": 24.0}, or None if it is damaged

A page is allocated once and overwritten in place by a single write, with a checksum in front. The
usual way, a new file renamed over the old one, needs free space: on a full disk renewals would fail
and healthy training would be killed at the end of its lease.
"""

import binascii
import json
import os
import time

PAGE = 4096
_TRIES = 5


class PageTooLongError(ValueError):
    """A record that does not fit; the writer has to shorten it."""


def create_page(path: str, body: dict[str, object]) -> None:
    """Make the file, readable by its owner alone. There must be none yet."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write(fd, body)
    finally:
        os.close(fd)


def write_page(path: str, body: dict[str, object]) -> None:
    """Replace the record. Readers see the old one or the new one."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _write(fd, body)
    finally:
        os.close(fd)


def read_page(path: str) -> dict[str, object] | None:
    """The record, or None if there is no whole one."""
    for attempt in range(_TRIES):
        try:
            with open(path, "rb") as file:
                body = _decode(file.read(PAGE))
        except OSError:
            return None
        if body is not None:
            return body
        # A write may be under way. It takes microseconds.
        time.sleep(0.001 * attempt)
    return None


def _write(fd: int, body: dict[str, object]) -> None:
    text = json.dumps(body, separators=(",", ":")).encode()
    if len(text) > PAGE - 10:
        raise PageTooLongError(len(text))
    padded = text.ljust(PAGE - 10) + b"\n"
    os.pwrite(fd, b"%08x " % binascii.crc32(padded) + padded, 0)


def _decode(page: bytes) -> dict[str, object] | None:
    if len(page) != PAGE or page[8:9] != b" ":
        return None
    try:
        if int(page[:8], 16) != binascii.crc32(page[9:]):
            return None
        body = json.loads(page[9:])
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
