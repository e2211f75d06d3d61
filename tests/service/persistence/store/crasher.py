"""A bare process that writes to a store and says what is durable, to be killed at any moment.

python crasher.py SRC FOLDER SEED SCENARIO [FAULT]

Prints `begin N` before and `ack N` after each batch is committed, `done WHAT` after other steps. A
FAULT breaks a promise on purpose, so that the checker can show that it notices. It loads little,
because it is started hundreds of times.
"""

import os
import random
import sys
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])

from themis.security.audit import AuditRow
from themis.service.persistence.store.base import (
    Batch,
    EndedLease,
    LeaseRow,
    LeaseState,
    LogEntry,
)
from themis.service.persistence.store.sqlite import SqliteStore

BATCHES = 16
GPUS = 4
RESERVE = 64 * 1024
NOON = 1_800_000_000.0


def batches(seed: int) -> list[Batch]:
    """The same ones for the same seed: GPUs change hands, parts change, some large, some go."""
    rng = random.Random(seed)
    made = []
    token, held = 0, dict[int, LeaseRow]()
    for number in range(1, BATCHES + 1):
        ended = []
        leases = []
        for gpu in range(GPUS):
            kind = rng.choice(("renew", "grant", "leave"))
            if kind == "leave" or (kind == "renew" and gpu not in held):
                continue
            if kind == "renew":
                held[gpu] = replace(held[gpu], ends=held[gpu].ends + 600.0)
            else:
                if gpu in held:
                    ended.append(EndedLease(held[gpu].token, float(number), "vacated"))
                token += 1
                held[gpu] = LeaseRow(
                    token, gpu, f"app-{number}", LeaseState.ACTIVE, float(number), 600.0
                )
            leases.append(held[gpu])
        text = "".join(rng.choices("abcdefgh", k=rng.choice((10, 200, 6000))))
        audit = (AuditRow(float(number), "ann", "submit", f"app-{number}", "allowed"),)
        kept = {f"command/{rng.randrange(4)}": text, "last": str(number)}
        entries = tuple(_entry(number, text, rng) for _ in range(rng.randrange(1, 4)))
        made.append(Batch(entries, tuple(leases), tuple(ended), audit, kept))
    return made


def _entry(number: int, text: str, rng: random.Random) -> LogEntry:
    first, second = rng.sample(range(6), 2)
    parts = {
        f"app/{first}": f"[{number}]",
        f"app/{second}": None if rng.random() < 0.3 else text,
        "clock": str(number),
    }
    return LogEntry(float(number), f'{{"n":{number},"text":"{text}"}}', parts)


def say(line: str) -> None:
    """At once, and by one system call."""
    os.write(1, f"{line}\n".encode())


class Torn(SqliteStore):
    """Broken on purpose: two transactions for one batch."""

    def commit(self, batch: Batch) -> int:
        super().commit(Batch(entries=batch.entries, audit=batch.audit))
        return super().commit(replace(batch, entries=(), audit=()))


def committed(store: SqliteStore) -> int:
    """How many batches an earlier process brought in; each leaves its number behind."""
    return int(store.load().kept.get("last", "0"))


def write(folder: Path, seed: int, fault: str) -> None:
    """Commit what is missing, with everything in between that a service does with a store."""
    kind = Torn if fault == "torn" else SqliteStore
    path = folder / "store.sqlite"
    with kind(path, reserve_bytes=RESERVE) as store:
        say("done open")
        made = batches(seed)
        start = committed(store)
        store.begin_epoch("1.0", seed)
        for number, batch in enumerate(made[start:], start=start + 1):
            say(f"begin {number}")
            if fault == "hasty":
                say(f"ack {number}")
            store.commit(batch)
            if fault != "hasty":
                say(f"ack {number}")
            if number % 5 == 0:
                store.snapshot()
            if number % 7 == 0:
                store.prune(keep_bytes=2000)
        store.backup(folder / "backup")
        say("done backup")
    say("done close")


def restore(folder: Path) -> None:
    """Make a store of the backup in the folder."""
    from themis.service.persistence.store.backup import restore_sqlite  # noqa: PLC0415 -- only here

    restore_sqlite(folder / "backup", folder / "restored.sqlite", NOON)
    say("done restore")


def main() -> None:
    """See above."""
    folder, seed, scenario = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    fault = sys.argv[5] if len(sys.argv) > 5 else ""
    match scenario:
        case "write":
            write(folder, seed, fault)
        case "restore":
            restore(folder)
        case "open":
            with SqliteStore(folder / "store.sqlite", reserve_bytes=RESERVE):
                say("done open")
        case _:
            raise SystemExit(f"no scenario {scenario!r}")


if __name__ == "__main__":
    main()
