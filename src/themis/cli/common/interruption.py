"""Ends long work early, by Ctrl-C or SIGTERM: what is finished is kept, and how to resume is said.

with ending_alike():
    ...             # SIGTERM, as `timeout` and systemd send it, ends it as Ctrl-C does
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_alike() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, too; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
