"""What the durable store takes: commits a second, bytes a round, seconds to load. One JSON line.

python benchmarks/store.py --apps 100 --stored 10000
python benchmarks/store.py --url postgresql://me@/scratch    # a database without a store

`commits_per_s` is of batches with one small entry, each durable before the next. A round is what an
arbiter of 256 GPUs says and is told between two beats while so many apps compete, as one batch for
each instant, with the text of every app, lease and GPU it changes; agents answer at once and nodes
measure nothing, so heartbeats are not in it. `day_mb` is the log of 144 such rounds. Loading is
with 10,000 apps stored, of which `--since` changed after the last snapshot; the file is in the
cache. Exits 1 when opening and loading take more than 2 s.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import themis
from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import Arbiter, events
from themis.core.arbiter.commands import Command
from themis.core.model import GpuId
from themis.core.model.presets import preset
from themis.core.policies import policy
from themis.recording.codec import dumps
from themis.service.persistence.store import (
    Batch,
    EndedLease,
    LeaseRow,
    LeaseState,
    LogEntry,
    Store,
    open_store,
)

BAR_SECONDS = 2.0
BEAT = 600.0
DAY = 86400.0


def main() -> int:
    """Measure, print, and judge by the bar."""
    args = _arguments()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        url = args.url or f"sqlite:///{folder}/store.sqlite"
        line = {"benchmark": "store", "kind": url.partition(":")[0], "apps": args.apps}
        with closing(open_store(url)) as store:
            store.begin_epoch(themis.__version__, seed=0)
            line |= _small_commits(store, args.commits)
            line |= _rounds(store, args.apps, args.rounds)
            _store_apps(store, args.stored, args.since)
        line |= _loading(url, args.stored, args.since)
    print(json.dumps(line))
    return 0 if line["open_and_load_s"] <= BAR_SECONDS else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="of a store that is not there yet; a file of its own if not")
    parser.add_argument("--folder", help="where to put that file: on the disk to be measured")
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--apps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stored", type=int, default=10_000)
    parser.add_argument("--since", type=int, default=1000, help="apps changed after the snapshot")
    return parser.parse_args()


def _small_commits(store: Store, count: int) -> dict[str, object]:
    times = []
    for number in range(count):
        entry = LogEntry(0.0, '{"type":"woken","at":0.0}', {"clock": str(number)})
        times.append(_seconds(store, Batch(entries=(entry,))))
    return {
        "commits_per_s": round(count / sum(times), 1),
        "commit_ms": round(1e3 * statistics.median(times), 2),
        "commit_p99_ms": round(1e3 * sorted(times)[int(0.99 * (count - 1))], 2),
    }


def _seconds(store: Store, batch: Batch) -> float:
    began = time.perf_counter()
    store.commit(batch)
    return time.perf_counter() - began


# Rounds


@dataclass(slots=True)
class Recorder:
    """Turns what an arbiter does into batches, one for each instant."""

    first_token: int
    batches: list[Batch] = field(default_factory=list)
    at: float = 0.0
    _entries: list[LogEntry] = field(default_factory=list)
    _leases: dict[int, LeaseRow] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _bids: dict[str, events.BidReceived] = field(default_factory=dict)

    def __call__(self, arbiter: Arbiter, event: events.Event, commands: Sequence[Command]) -> None:
        """A hook of `ScriptedWorld`."""
        if event.at > self.at:
            self.flush(arbiter)
            self.at = event.at
        if isinstance(event, events.BidReceived):
            self._bids[event.app] = event
        body = dumps({"event": event, "commands": commands})
        self._entries.append(LogEntry(event.at, body))

    def flush(self, arbiter: Arbiter) -> None:
        """End the batch of this instant: all texts that changed in it go into its last entry."""
        if not self._entries:
            return
        texts = dict(self._present_texts(arbiter))
        changed = {name: text for name, text in texts.items() if self._texts.get(name) != text}
        gone = dict.fromkeys(self._texts.keys() - texts.keys())
        leases = {row.token: row for row in self._present_leases(arbiter)}
        last = self._entries.pop()
        self._entries.append(LogEntry(last.at, last.body, {**changed, **gone}))
        self.batches.append(
            Batch(
                tuple(self._entries),
                tuple(row for token, row in leases.items() if self._leases.get(token) != row),
                tuple(EndedLease(token, self.at) for token in self._leases.keys() - leases.keys()),
            )
        )
        self._entries, self._texts, self._leases = [], texts, leases

    def _present_texts(self, arbiter: Arbiter) -> Iterator[tuple[str, str]]:
        for name, app in arbiter.world.apps.items():
            yield f"app/{name}", dumps({"spec": app.spec, "bid": self._bids.get(name)})
        for gpu in range(len(arbiter.ledger)):
            yield f"gpu/{gpu}", dumps(arbiter.ledger.chain(GpuId(gpu)))

    def _present_leases(self, arbiter: Arbiter) -> Iterator[LeaseRow]:
        for gpu in range(len(arbiter.ledger)):
            state = LeaseState.FENCING if arbiter.ledger.is_leaving(GpuId(gpu)) else None
            for lease in arbiter.ledger.chain(GpuId(gpu)):
                token = self.first_token + lease.token
                now = state or LeaseState.ACTIVE
                yield LeaseRow(token, gpu, lease.app, now, lease.start, lease.end)
                state = LeaseState.PROMISED


def _rounds(store: Store, apps: int, rounds: int) -> dict[str, object]:
    recorder = Recorder(store.load().next_token)
    world = ScriptedWorld(preset("sim256"), policy("themis"), seed=1, on_event=[recorder])
    for number in range(apps):
        world.submit(simple_app(f"app-{number}", gpus=4, jobs=8, iterations=10**6))
    world.advance(2 * BEAT)
    recorder.flush(world.arbiter)
    for batch in recorder.batches:
        store.commit(batch)
    recorder.batches.clear()
    world.advance((2 + rounds) * BEAT)
    recorder.flush(world.arbiter)
    before = store.usage()
    times = [_seconds(store, batch) for batch in recorder.batches]
    after = store.usage()
    held = sum(
        len(entry.body) + sum(len(text or "") for text in entry.parts.values())
        for batch in recorder.batches
        for entry in batch.entries
    )
    log = after.log_bytes - before.log_bytes
    return {
        "round_batches": round(len(times) / rounds, 1),
        "round_entries": round(sum(len(b.entries) for b in recorder.batches) / rounds, 1),
        "round_text_bytes": held // rounds,
        "round_bytes": log // rounds,
        "round_ms": round(1e3 * sum(times) / rounds, 1),
        "day_mb": round(log / rounds * DAY / BEAT / 1e6, 1),
    }


# Loading


def _store_apps(store: Store, stored: int, since: int) -> None:
    bid = [
        {"level": level, "count": n, "seconds": 5400.0 / n}
        for level in range(4)
        for n in range(1, 9)
    ]

    def change(number: int, at: float) -> Batch:
        name = f"stored-{number}"
        text = json.dumps(
            {
                "spec": {"app": name, "jobs": [{"job": f"j{j}"} for j in range(8)]},
                "bid": bid,
                "at": at,
            }
        )
        entry = LogEntry(at, text, {f"app/{name}": text})
        return Batch(entries=(entry,), kept={f"command/{name}": '["python","train.py"]'})

    def together(numbers: range, at: float) -> Batch:
        batches = [change(number, at) for number in numbers]
        entries = tuple(entry for batch in batches for entry in batch.entries)
        return Batch(entries, kept={name: text for b in batches for name, text in b.kept.items()})

    for first in range(0, stored, 500):
        store.commit(together(range(first, min(stored, first + 500)), 10 * BEAT))
    store.snapshot()
    store.commit(together(range(min(stored, since)), 11 * BEAT))


def _loading(url: str, stored: int, since: int) -> dict[str, float | int]:
    began = time.perf_counter()
    with closing(open_store(url)) as store:
        opened = time.perf_counter()
        saved = store.load()
        loaded = time.perf_counter()
        store.begin_epoch(themis.__version__, seed=0)
        store.snapshot()
        folded = time.perf_counter()
        size = store.usage().bytes
    return {
        "stored": stored,
        "since_snapshot": since,
        "parts": len(saved.parts),
        "size_mb": round(size / 1e6, 1),
        "open_s": round(opened - began, 3),
        "load_s": round(loaded - opened, 3),
        "open_and_load_s": round(loaded - began, 3),
        "snapshot_s": round(folded - loaded, 3),
        "bar_s": BAR_SECONDS,
    }


if __name__ == "__main__":
    sys.exit(main())
