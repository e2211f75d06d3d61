"""A bare process on a disk that fills up or fails; prints what a store does about it.

python faulty.py SRC FOLDER full|restart|sync
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])

from themis.errors import FatalStoreError, StoreFullError
from themis.service.persistence.store.base import Batch, LogEntry
from themis.service.persistence.store.sqlite import SqliteStore

RESERVE = 4 * 2**20
ROUND = 40_000


def text(size: int) -> str:
    """That cannot be packed."""
    return os.urandom(size // 2).hex()


def batch(number: int, size: int, *, essential: bool = True) -> Batch:
    """One entry with a part of its own for each essential one."""
    parts = {f"app/{number % 5}": str(number)}
    return Batch(entries=(LogEntry(float(number), text(size), parts),), essential=essential)


def take_the_rest(folder: Path) -> Path:
    """Somebody else fills the disk."""
    hog = folder / "hog"
    with hog.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            print("others got", error.strerror, flush=True)
    return hog


def restart(folder: Path) -> None:
    """A service is killed on a full disk and starts again on it."""
    if os.fork() == 0:
        store = SqliteStore(folder / "store.sqlite", reserve_bytes=RESERVE)
        store.begin_epoch("1.0", seed=1)
        for number in range(1, 20):
            store.commit(batch(number, ROUND))
        take_the_rest(folder)
        os._exit(0)  # as if killed: the log is not in the file yet
    os.wait()
    with SqliteStore(folder / "store.sqlite", reserve_bytes=RESERVE) as store:
        print("reserve", store.usage().reserve, flush=True)
        store.begin_epoch("1.0", seed=2)
        print("last", store.commit(batch(20, 2000)), flush=True)


def fill(folder: Path) -> None:
    """New work until the disk is nearly full; then only what is essential goes on."""
    old = folder / "old"
    old.write_bytes(bytes(2 * RESERVE))
    with SqliteStore(folder / "store.sqlite", reserve_bytes=RESERVE) as store:
        store.begin_epoch("1.0", seed=1)
        number = 0
        while True:
            try:
                number = store.commit(batch(number + 1, ROUND, essential=False))
            except StoreFullError as error:
                print("new work refused:", error, flush=True)
                break
        print("reserve", store.usage().reserve, flush=True)
        hog = take_the_rest(folder)
        renewals = 0
        for _ in range(100):
            number = store.commit(batch(number + 1, 2000))
            renewals += 1
        print("renewals", renewals, "reserve", store.usage().reserve, flush=True)
        try:
            store.commit(batch(number + 1, 10, essential=False))
        except StoreFullError:
            print("new work still refused", flush=True)
        try:
            while True:
                number = store.commit(batch(number + 1, ROUND))
        except StoreFullError as error:
            print("the end:", error, flush=True)
        # Somebody tidies up.
        old.unlink()
        hog.unlink()
        number = store.commit(batch(number + 1, ROUND, essential=False))
        print("room again; reserve", store.usage().reserve, flush=True)
        print("last", number, flush=True)
    with SqliteStore(folder / "store.sqlite", reserve_bytes=RESERVE) as store:
        store.check()
        print("stored", store.load().next_entry - 1, flush=True)


def fail(folder: Path) -> None:
    """Commits until the disk fails; says what was acknowledged."""
    store = SqliteStore(folder / "store.sqlite", reserve_bytes=0)
    store.begin_epoch("1.0", seed=1)
    print("open", flush=True)
    for number in range(1, 20):
        try:
            store.commit(batch(number, 100))
        except FatalStoreError as error:
            print("fatal:", error, flush=True)
            try:
                store.commit(batch(number, 100))
            except FatalStoreError:
                print("stays fatal", flush=True)
            os._exit(3)
        print("ack", number, flush=True)


if __name__ == "__main__":
    {"full": fill, "restart": restart, "sync": fail}[sys.argv[3]](Path(sys.argv[2]))
