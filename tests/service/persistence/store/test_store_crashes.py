"""kill -9 at exact system calls: what was acknowledged is there, and every batch is whole."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import themis
from tests.support.requirements import CHAOS
from tests.support.syscall_faults import Point, Run, run_into, spread, writes_of
from themis.service.persistence.store import Batch, open_store, restore
from themis.service.persistence.store.sqlite import SqliteStore
from themis.testing.store_model import StoreModel, holders_twice

HERE = Path(__file__).parent
SRC = Path(themis.__file__).parents[1]
SEEDS = range(8 if CHAOS else 1)
POINTS = (
    {"new": 180, "killed before": 55, "creation": 250, "restore": 250}
    if CHAOS
    else {"new": 120, "killed before": 40, "creation": 25, "restore": 15}
)
"""For each seed: 200 in all; 2,000 in `make chaos`, with all there are of creation and restore."""
PARTS = 4
"""Tests per scenario, so that several workers share the points."""

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


def _crasher() -> ModuleType:
    spec = importlib.util.spec_from_file_location("store_crasher", HERE / "crasher.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crasher = _crasher()


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to start Python quickly: isolated, without `site`, everything compiled."""
    cache = tmp_path_factory.mktemp("compiled")
    python = [sys.executable, "-I", "-S", "-X", f"pycache_prefix={cache}"]
    folder = tmp_path_factory.mktemp("first")
    for scenario in ("write", "restore"):
        arguments = [str(HERE / "crasher.py"), str(SRC), str(folder), "0", scenario]
        subprocess.run([*python, *arguments], check=True, stdout=subprocess.DEVNULL)
    return [*python, "-B"]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a process said before it was killed."""

    last: int
    begun: int
    done: frozenset[str]

    @classmethod
    def by(cls, lines: Sequence[str], before: "Acknowledged | None" = None) -> "Acknowledged":
        pairs = [line.split() for line in lines]
        acks = [int(what) for verb, what in pairs if verb == "ack"]
        begun = [int(what) for verb, what in pairs if verb == "begin"]
        last = max([*acks, before.last if before else 0])
        done = frozenset(what for verb, what in pairs if verb == "done")
        return cls(last, max([*begun, last, before.begun if before else 0]), done)


def problems(folder: Path, said: Acknowledged, batches: Sequence[Batch]) -> list[str]:
    """What is wrong with the store that a killed process left; empty if nothing is."""
    path = folder / "store.sqlite"
    with SqliteStore(path, reserve_bytes=crasher.RESERVE) as store:
        store.check()
        saved = store.load()
        # At most the one batch under way may be there without having been acknowledged.
        there = min(max(int(saved.kept.get("last", "0")), said.last), said.begun)
        found = StoreModel.after(batches[:there]).differences(store)
        highest = max((row.token for batch in batches[:there] for row in batch.leases), default=0)
        if saved.next_token <= highest:
            found.append(f"token {saved.next_token} would be given again")
        if not found:
            # And it goes on as if nothing had been.
            store.begin_epoch("1.0", seed=0)
            for batch in batches[there:]:
                store.commit(batch)
            found = StoreModel.after(batches).differences(store)
    return found + _problems_of_backup(folder / "backup", said, batches)


def _problems_of_backup(path: Path, said: Acknowledged, batches: Sequence[Batch]) -> list[str]:
    if not path.exists():
        return ["there is no backup"] if "backup" in said.done else []
    with SqliteStore(path, read_only=True) as copy:
        return StoreModel.after(batches).differences(copy)


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """In memory where that is possible: a killed process loses nothing that was written."""
    memory = Path("/dev/shm")
    writable = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(dir=memory if writable else None) as name:
        yield Path(name)


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a scenario that is killed."""

    python: list[str]
    folder: Path
    seed: int
    scenario: str
    prepared: Path | None = None
    fault: str = ""

    def points(self, wanted: int) -> list[Point]:
        self.fresh()
        counts = writes_of(self.command)
        points = spread(counts, wanted)
        assert len(set(points)) == min(wanted, counts.total())
        return points

    @property
    def command(self) -> list[str]:
        arguments = [str(HERE / "crasher.py"), str(SRC), str(self.folder), str(self.seed)]
        return [*self.python, *arguments, self.scenario, *([self.fault] if self.fault else [])]

    def fresh(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.prepared is None:
            self.folder.mkdir()
        else:
            shutil.copytree(self.prepared, self.folder)

    def kill_at(self, point: Point) -> Run:
        self.fresh()
        run = run_into(point, self.command)
        assert run.killed, f"{point} was not reached: {run.errors}"
        return run


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_store_loses_nothing(
    compiled: list[str], quick_folder: Path, seed: int, part: int
) -> None:
    case = Case(compiled, quick_folder / "case", seed, "write")
    batches = crasher.batches(seed)
    for point in case.points(POINTS["new"])[part::PARTS]:
        run = case.kill_at(point)
        assert problems(case.folder, Acknowledged.by(run.printed), batches) == [], point


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_was_killed_before_loses_nothing(
    compiled: list[str], quick_folder: Path, seed: int, part: int
) -> None:
    first = Case(compiled, quick_folder / "first", seed, "write")
    # Somewhere in the middle, with a log that is not yet in the file.
    before = Acknowledged.by(first.kill_at(Point("fdatasync", 26)).printed)
    assert 0 < before.last < crasher.BATCHES
    case = Case(compiled, quick_folder / "case", seed, "write", prepared=first.folder)
    batches = crasher.batches(seed)
    for point in case.points(POINTS["killed before"])[part::PARTS]:
        run = case.kill_at(point)
        assert problems(case.folder, Acknowledged.by(run.printed, before), batches) == [], point


@pytest.mark.parametrize("part", range(2))
def test_a_new_store_is_made_or_not_made(
    compiled: list[str], quick_folder: Path, part: int
) -> None:
    case = Case(compiled, quick_folder / "case", 0, "open")
    for point in case.points(POINTS["creation"])[part::2]:
        case.kill_at(point)
        with SqliteStore(case.folder / "store.sqlite", reserve_bytes=0) as store:
            assert StoreModel.after([]).differences(store) == [], point
            store.check()
            assert store.begin_epoch("2.0", seed=1).number == 1


@pytest.mark.parametrize("part", range(2))
def test_a_restore_is_made_or_not_made(compiled: list[str], quick_folder: Path, part: int) -> None:
    made = quick_folder / "made"
    made.mkdir()
    batches = crasher.batches(1)
    with SqliteStore(made / "store.sqlite", reserve_bytes=0) as store:
        store.begin_epoch("1.0", seed=1)
        for batch in batches:
            store.commit(batch)
        store.backup(made / "backup")
    case = Case(compiled, quick_folder / "case", 0, "restore", prepared=made)
    url = f"sqlite:///{case.folder}/restored.sqlite"
    for point in case.points(POINTS["restore"])[part::2]:
        case.kill_at(point)
        if not (case.folder / "restored.sqlite").exists():
            restore(case.folder / "backup", url, now=crasher.NOON)
        with open_store(url, reserve_bytes=0) as store:
            found = StoreModel.after(batches).differences(store)
            assert [text.partition(":")[0] for text in found] == ["audit"], point
            assert store.begin_epoch("2.0", seed=1).number == crasher.NOON + 2


# The checker notices


@pytest.mark.parametrize("fault", ["hasty", "torn"])
def test_a_broken_store_is_noticed(compiled: list[str], quick_folder: Path, fault: str) -> None:
    case = Case(compiled, quick_folder / "case", 0, "write", fault=fault)
    batches = crasher.batches(0)
    case.fresh()
    writes = writes_of(case.command)["pwrite64"]
    found = []
    for number in range(writes // 3, writes // 2, 7):
        run = case.kill_at(Point("pwrite64", number))
        found += problems(case.folder, Acknowledged.by(run.printed), batches)
    assert found


def test_two_holders_of_a_gpu_are_noticed() -> None:
    rows = crasher.batches(0)[-1].leases or crasher.batches(0)[-2].leases
    assert holders_twice([*rows, *rows])
