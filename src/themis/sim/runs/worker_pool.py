"""Many runs on all cores: the same results for any number of workers, and none is done twice.

records = run_all([RunConfig(seed=seed) for seed in range(1, 6)], Store(Path("out/runs")))

A run is kept as soon as it is finished. Whoever interrupts loses only what was under way.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue

from themis.errors import InvariantError, ThemisError, UnavailableError
from themis.sim.config import RunConfig, allowed_keys, prepare
from themis.sim.gc_tuning import spare_memory_checks
from themis.sim.run import run
from themis.sim.runs.result_cache import CachedRun, ResultCache, Stored, stored
from themis.sim.runs.run_timing import UNKNOWN, Stopwatch

POLL_S = 0.2
"""How long to wait before the news of the workers are looked at again."""

_ROUNDING = 1e-6
_ENDINGS = (signal.SIGINT, signal.SIGTERM)
"""What people and machines end a whole group of processes with."""

Progress = Callable[[int, int, str], None]
"""Called with what is done, with all there is to do (apps, or parts of the work where it is known
what runs cost), and with a word on it."""
PARTS = 100_000
"""In this many parts is work cut that is counted by its cost."""


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(
    configs: Sequence[RunConfig],
    store: ResultCache,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> list[CachedRun]:
    """The runs of these configurations, in their order; those in the store are not run again.

    Arguments and errors as in `finish_all`.
    """
    finish_all(configs, store, workers=workers, progress=progress, fresh=fresh)
    return [found(store, config) for config in configs]


def finish_all(
    configs: Sequence[RunConfig],
    store: ResultCache,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
    stop: Callable[[], bool] = lambda: False,
    cost: Mapping[str, float] | None = None,
) -> int:
    """See to it that all these runs are in the store, without keeping any of them in memory.

    Args:
        configs: What to run; what stands there twice is run once.
        store: Where finished runs go.
        workers: Processes at the same time; all cores unless said. One works in this process.
        progress: Hears how far it is.
        fresh: Run also what is there already.
        stop: Once it says so, no other run begins.
        cost: What runs will take, by their `repr`. Progress then counts that, so that the time left
            is right also when the slow ones come last; without it, apps.

    Returns:
        How many runs were not begun.

    Raises:
        ConfigError: A configuration that cannot be; nothing was run.
        ThemisError: A run failed; those that finished are kept.
    """
    distinct = {repr(config): config for config in configs}
    store.make()
    apps = _app_counts(distinct.values(), progress)
    todo = [config for config in distinct.values() if fresh or not store.has(config)]
    # Only what is run now tells how long the rest takes.
    counter = _Counter(
        {repr(config): apps[repr(config)] for config in todo},
        progress,
        len(distinct) - len(todo),
        cost or {},
    )
    counter.show()
    workers = min(workers or cores(), len(todo))
    if workers > 1:
        return _in_processes(todo, store, workers, counter, stop)
    for place, config in enumerate(todo):
        if stop():
            return len(todo) - place
        store.save(config, _simulate(config, store.commit, counter.reached))
        counter.finished(repr(config))
    return 0


def found(store: ResultCache, config: RunConfig) -> CachedRun:
    """A run that was finished.

    Raises:
        UnavailableError: It is not there any more.
    """
    record = store.load(config)
    if record is None:
        raise UnavailableError(f"the run of {_label(config)} vanished from {store.folder}")
    return record


def _label(config: RunConfig) -> str:
    return f"{config.policy}, seed {config.seed}"


def _app_counts(configs: Iterable[RunConfig], progress: Progress | None) -> dict[str, int]:
    """How many apps each run has. Checks everything that a seed does not change.

    Every workload and every policy with its options is made once, not every pair of them.
    """
    counts: dict[str, int] = {}
    apps: dict[str, int] = {}
    checked: set[str] = set()
    for config in configs:
        options = sorted(config.options.items())
        whose = repr((config.policy, options))
        known = allowed_keys(config.policy, config.workload)
        own = [item for item in options if known.get(item[0]) in {"workload", "beliefs"}]
        what = repr((config.cluster, config.contention, config.workload, config.apps,
                     config.load, own))  # fmt: skip
        if what not in apps or whose not in checked:
            apps[what] = len(prepare(config).workload.apps)
            checked.add(whose)
            if progress is not None:
                kinds = "workload" if len(apps) == 1 else "workloads"
                progress(0, 1, f"checking what to run: {len(apps)} {kinds}")
        counts[repr(config)] = apps[what]
    return counts


@dataclass(slots=True)
class _Counter:
    """What is finished of all runs of this call together: apps, or their cost where it is known."""

    apps: dict[str, int]
    progress: Progress | None
    there: int = 0
    """Runs that were there before."""
    cost: Mapping[str, float] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    so_far: float = 0.0
    total: float = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self._worth(name, count) for name, count in self.apps.items())

    def _worth(self, name: str, apps: int) -> float:
        """This many apps of a run, in what is counted."""
        if not self.cost:
            return apps
        return self.cost.get(name, 0.0) * apps / self.apps[name]

    def reached(self, name: str, done: int) -> None:
        """A run has got so far; its last app counts once the run is kept, and is told with it."""
        self._count(name, min(done, self.apps[name] - 1))

    def finished(self, name: str) -> None:
        self.runs += 1
        self._count(name, self.apps[name])

    def _count(self, name: str, now: int) -> None:
        self.so_far += self._worth(name, now - self.done.get(name, 0))
        self.done[name] = now
        self.show()

    def show(self) -> None:
        if self.progress is not None:
            text = f"{self.there + self.runs} of {self.there + len(self.apps)} runs"
            if not self.apps:
                self.progress(1, 1, f"{text} were there")
                return
            total = PARTS if self.cost else round(self.total)
            over = self.runs == len(self.apps)
            share = self.so_far / self.total if self.total else 0.0
            done = total if over else min(total - 1, int(total * share + _ROUNDING))
            what = "what was missing" if self.there else "the work"
            self.progress(done, total, f"{text}, {100 * done // total} % of {what}")


def _simulate(config: RunConfig, commit: str, report: Callable[[str, int], None]) -> Stored:
    name = repr(config)
    watch = Stopwatch()
    try:
        result = run(config, progress=lambda done, _: report(name, done), watch=watch)
        return stored(result, watch.timing(config, commit or UNKNOWN))
    except ThemisError as error:
        raise InvariantError(f"{_label(config)}: {error}") from error


# In other processes

_News = SimpleQueue[tuple[str, int]]
_news: list["_News"] = []


def _start_worker(news: "_News") -> None:
    # Whoever presses Ctrl-C, or ends the whole group, means the comparison; it ends the workers.
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    spare_memory_checks()
    _news.append(news)


def _follow_parent() -> None:
    """End this worker when the process that asked for it is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(config: RunConfig, commit: str) -> Stored | str:
    last = 0

    def tell(name: str, done: int) -> None:
        nonlocal last
        if done > last:  # The others know that we work; only this is news.
            last = done
            _news[0].put((name, done))

    try:
        return _simulate(config, commit, tell)
    except ThemisError as error:
        return str(error)


def _in_processes(
    todo: Sequence[RunConfig],
    store: ResultCache,
    workers: int,
    counter: _Counter,
    stop: Callable[[], bool],
) -> int:
    # Spawned, not forked: a fork copies locks of threads that it does not copy.
    context = multiprocessing.get_context("spawn")
    news: _News = context.SimpleQueue()
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, context, _start_worker, (news,))
    running: dict[Future[Stored | str], RunConfig] = {}
    waiting = deque(todo)
    try:
        while running or (waiting and not stop()):
            while waiting and len(running) < workers and not stop():
                config = waiting.popleft()
                with _interrupts_held():
                    running[pool.submit(_work, config, store.commit)] = config
            wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
            while not news.empty():
                counter.reached(*news.get())
            counter.show()  # Also when there are no news: people should see that it works.
            _collect(running, store, counter)
        pool.shutdown()
        return len(waiting)
    except BrokenProcessPool as error:
        reason = "a worker ended before its run did (out of memory?); finished runs are kept"
        raise UnavailableError(reason) from error
    except KeyboardInterrupt:
        with _interrupts_held():
            _collect({one: running[one] for one in running if _whole(one)}, store, counter)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.kill()  # They mind nothing else, and write no files.
        news.close()


def _whole(future: Future[Stored | str]) -> bool:
    """Whether its worker got to the end: whoever ended us may have ended that one before."""
    return future.done() and not isinstance(future.exception(), BrokenProcessPool)


def _collect(
    running: dict[Future[Stored | str], RunConfig], store: ResultCache, counter: _Counter
) -> None:
    """Keep what is finished. Forgets its bytes, so that many runs need no more memory than few."""
    for future in [future for future in running if future.done()]:
        config = running.pop(future)
        result = future.result()
        if isinstance(result, str):
            raise InvariantError(result)
        store.save(config, result)
        counter.finished(repr(config))


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Put Ctrl-C and its like off; processes that start meanwhile never see one."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
