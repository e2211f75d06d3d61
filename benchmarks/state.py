"""What it costs to write down what an event changed: CPU microseconds, one JSON line.

python benchmarks/state.py --apps 100 1000

Apps of ten jobs fight for a cluster; then events about one app at a time are handled: progress of
its jobs, a start, a stop, a weight. `handle_us` is what the arbiter takes for such an event,
`changed_us` what taking the changed parts adds, `text_us` what writing them as JSON adds, and
`bytes` how long that is; medians. `beat` is the same for one whole round at a beat, in
milliseconds, and `all` for the whole state at once, with the time to restore it from text. Exits 1
when taking the changed parts of one event costs more than twice as much with the most apps as with
the fewest.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tests.support.scripted_world import ScriptedWorld, simple_app
from themis.core.arbiter import Arbiter, Settings, events
from themis.core.arbiter.saved_state import arbiter_from, parts, take_changed
from themis.core.arbiter.state_parts import Part
from themis.core.model import JobId, Topology
from themis.core.model.presets import preset
from themis.core.policies import policy
from themis.recording.codec import dumps, loads, part_from

JOBS = 10
MOST_GROWTH = 2.0
"""The bar."""

_Value = TypeVar("_Value")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--apps", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--cluster", default="sim256")
    parser.add_argument("--policy", default="equal-share")
    args = parser.parse_args()
    by_apps = {
        str(count): measure(count, args.events, preset(args.cluster), args.policy)
        for count in args.apps
    }
    costs = [by_apps[str(count)]["changed_us"] for count in sorted(args.apps)]
    growth = round(costs[-1] / costs[0], 2)
    line = {
        "benchmark": "state",
        "cluster": args.cluster,
        "policy": args.policy,
        "events": args.events,
        "apps": by_apps,
        "growth": growth,
        "met": growth <= MOST_GROWTH,
    }
    print(json.dumps(line), flush=True)
    return 0 if line["met"] else 1


def measure(apps: int, count: int, topology: Topology, rule: str) -> dict[str, float]:
    """The cost of one event, of a beat and of a snapshot, with this many apps."""
    world = ScriptedWorld(topology, policy(rule), Settings())
    for number in range(apps):
        world.submit(simple_app(f"a{number}", jobs=JOBS, gpus=2, iterations=100_000))
        world.now += 0.01
    world.advance(700.0)
    arbiter = world.arbiter
    take_changed(arbiter)
    samples = [_one(arbiter, event) for event in _events(world, count)]
    median = [statistics.median(column) for column in zip(*samples, strict=True)]
    names = ("handle_us", "changed_us", "text_us", "bytes")
    line = {name: round(value, 1) for name, value in zip(names, median, strict=True)}
    return {**line, **_beat(world), **_whole(arbiter, rule)}


def _events(world: ScriptedWorld, count: int) -> Iterator[events.Event]:
    rng = random.Random(1)
    names = sorted(world.arbiter.world.apps)
    holders = [name for name in names if world.held(name)]
    at = world.now
    for number in range(count):
        at += 0.001
        app = rng.choice(names)
        if number % 8 == 0:
            yield events.WeightChanged(at, rng.choice((0.5, 2.0)), app=app)
        elif number % 8 == 1:
            app = rng.choice(holders)
            yield events.JobStopped(at, app, JobId("j0"), world.held(app)[:1])
        elif number % 8 == 2:
            app = rng.choice(holders)
            yield events.JobStarted(at, app, JobId("j0"), world.held(app)[:1])
        else:
            samples = (events.ProgressSample(JobId(f"j{i}"), number + i, 1.0) for i in range(JOBS))
            yield events.ProgressMeasured(at, app, tuple(samples))


def _one(arbiter: Arbiter, event: events.Event) -> tuple[float, float, float, int]:
    handled, _ = _timed(lambda: arbiter.handle(event))
    taken, changed = _timed(lambda: take_changed(arbiter))
    written, text = _timed(lambda: _text(changed))
    return 1e6 * handled, 1e6 * taken, 1e6 * written, sum(map(len, text.values()))


def _beat(world: ScriptedWorld) -> dict[str, float]:
    """A round at a beat touches what it deals with, and everybody's standing."""
    take_changed(world.arbiter)
    handled, _ = _timed(lambda: world.advance(1300.0))
    taken, changed = _timed(lambda: take_changed(world.arbiter))
    written, text = _timed(lambda: _text(changed))
    return {
        "beat_handle_ms": round(1e3 * handled, 2),
        "beat_changed_ms": round(1e3 * taken, 2),
        "beat_text_ms": round(1e3 * written, 2),
        "beat_bytes": sum(map(len, text.values())),
    }


def _whole(arbiter: Arbiter, rule: str) -> dict[str, float]:
    taken, kept = _timed(lambda: parts(arbiter))
    written, text = _timed(lambda: _text(kept))
    back, _ = _timed(lambda: _restored(text, rule))
    return {
        "all_parts": len(kept),
        "all_ms": round(1e3 * taken, 2),
        "all_text_ms": round(1e3 * written, 2),
        "all_bytes": sum(map(len, text.values())),
        "restore_ms": round(1e3 * back, 2),
    }


def _text(changed: Mapping[str, Part | None]) -> dict[str, str]:
    return {key: "" if part is None else dumps(part) for key, part in changed.items()}


def _restored(text: Mapping[str, str], rule: str) -> Arbiter:
    kept = {key: part_from(key, loads(line)) for key, line in text.items()}
    return arbiter_from(kept, policy(rule), seed=0)


def _timed(work: Callable[[], _Value]) -> tuple[float, _Value]:
    started = time.process_time()
    value = work()
    return time.process_time() - started, value


if __name__ == "__main__":
    sys.exit(main())
