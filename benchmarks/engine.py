"""How quickly the local engine changes jobs: wall-clock ms, medians, one JSON line per control.

python benchmarks/engine.py --rounds 20

start_ms      from `start` to `ProgramStarted`: the job's program runs
kill_ms       from `kill` to `ProgramExited`: all of it was seen dead
change_ms     both, one after the other on the same GPU: a lease that goes to somebody else
supervisor_cpu_ms, supervisor_rss_mb     of one supervisor that has just started its job

Exits 1 when the median change takes longer than the bar.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from themis.engines.base import ProgramExited, ProgramStarted
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.supervisor.process_control import CONTROLS
from themis.engines.task import Task
from themis.errors import UnavailableError

BAR_MS = 300.0


async def measure(state: Path, control: str, rounds: int) -> dict[str, object]:
    """Start and kill a job so often."""
    owners = Owners.trusting("nobody")
    engine = await LocalEngine.open(state, PretendGpus("m0"), owners, control=control)
    events = engine.watch()
    starts, kills, cpu, rss = [], [], [], []
    for token in range(1, rounds + 1):
        task = Task("job-1", "ann", token, (0,), ("sleep", "600"), end=boottime.now() + 60)
        began = time.perf_counter()
        await engine.start(task)
        event = await anext(events)
        assert isinstance(event, ProgramStarted), event
        starts.append(time.perf_counter() - began)
        used = resources(engine._starts.find("job-1", token).pid)
        cpu.append(used[0])
        rss.append(used[1])
        began = time.perf_counter()
        await engine.kill(task.job, token)
        ended = await anext(events)
        assert isinstance(ended, ProgramExited), ended
        kills.append(time.perf_counter() - began)
    await engine.close()
    changes = [kill + start for kill, start in zip(kills, starts[1:], strict=False)]
    return {
        "benchmark": "engine",
        "control": control,
        "rounds": rounds,
        "start_ms": median_ms(starts),
        "kill_ms": median_ms(kills),
        "change_ms": median_ms(changes),
        "change_worst_ms": round(max(changes) * 1000, 1),
        "supervisor_cpu_ms": median_ms(cpu),
        "supervisor_rss_mb": round(statistics.median(rss), 1),
        "bar_ms": BAR_MS,
        "load": round(os.getloadavg()[0], 1),
    }


def resources(pid: int) -> tuple[float, float]:
    """CPU seconds and resident MB of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    fields = stat[stat.rindex(")") + 2 :].split()
    ticks = int(fields[11]) + int(fields[12])
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return ticks / os.sysconf("SC_CLK_TCK"), int(resident.split()[1]) / 1024


def median_ms(seconds: list[float]) -> float:
    """In milliseconds, with a tenth."""
    return round(statistics.median(seconds) * 1000, 1)


def main() -> int:
    """Measure each control that works here."""
    parser = argparse.ArgumentParser(description="How quickly the local engine changes jobs.")
    parser.add_argument("--rounds", type=int, default=10)
    rounds = max(2, parser.parse_args().rounds)
    slow = False
    for control in CONTROLS:
        place = Path(tempfile.mkdtemp(prefix="themis-bench-"))
        place.chmod(0o755)
        try:
            line = asyncio.run(measure(place / "state", control, rounds))
        except UnavailableError as error:
            line = {"benchmark": "engine", "control": control, "skipped": str(error)}
        finally:
            shutil.rmtree(place, ignore_errors=True)
        print(json.dumps(line), flush=True)
        took = line.get("change_ms", 0.0)
        slow = slow or (isinstance(took, float) and took > BAR_MS)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
