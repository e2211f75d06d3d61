"""What `themis reproduce --quick` costs: minutes, memory, silence. A second call must run nothing.

python benchmarks/reproduce.py                # all experiments: about ten minutes on two cores
python benchmarks/reproduce.py E12 E13        # some of them

Prints one JSON line and exits 1 when a bar is missed: 15 minutes on two cores, 1 GB (the sum of the
private memory of the command and its workers, with shared memory counted once), two seconds without
output, and no run made twice.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

BAR_SECONDS, BAR_MB, BAR_SILENCE_S = 900.0, 1000.0, 2.0
LOOK_SECONDS = 0.5


@dataclass
class Call:
    """One call of the command, as a waiting user sees it."""

    code: int = 0
    seconds: float = 0.0
    silence_s: float = 0.0
    """The longest time without output."""
    before: str = ""
    """The output before that."""
    peak_mb: float = 0.0


def children(pid: int) -> list[int]:
    """The descendants of a process."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    except OSError:
        return []
    found = [int(word) for word in text.split()]
    return found + [each for child in found for each in children(child)]


def memory_mb(pid: int) -> float:
    """Proportional memory of a process: shared memory counts once in the sum."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0.0  # It has just ended.
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024.0


def listen(command: list[str]) -> Call:
    """Run a command to its end."""
    call, over = Call(), threading.Event()
    began = last = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:  # fmt: skip

        def look() -> None:
            while not over.wait(LOOK_SECONDS):
                together = sum(map(memory_mb, [process.pid, *children(process.pid)]))
                call.peak_mb = max(call.peak_mb, together)

        watcher = threading.Thread(target=look)
        watcher.start()
        said = "nothing"
        assert process.stdout is not None
        while chunk := os.read(process.stdout.fileno(), 65536):
            now = time.monotonic()
            if now - last > call.silence_s:
                call.silence_s, call.before = now - last, said
            last = now
            said = chunk.decode("utf-8", "replace").rstrip().rsplit("\n", 1)[-1] or said
        call.code = process.wait()
        over.set()
        watcher.join()
    call.seconds = time.monotonic() - began
    return call


def runs_in(out: Path) -> dict[str, int]:
    """The finished runs of a folder, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "runs").glob("*.json")}


def main() -> int:
    """Measure, print, and judge by the bars."""
    parser = argparse.ArgumentParser(description="What `themis reproduce --quick` costs.")
    parser.add_argument("names", nargs="*", default=["all"], help="experiments; all unless said")
    names = parser.parse_args().names
    with tempfile.TemporaryDirectory(prefix="themis-bench-") as folder:
        out = Path(folder)
        command = [sys.executable, "-m", "themis", "reproduce", *names, "--quick", "--out", folder]
        first = listen(command)
        made = runs_in(out)
        again = listen(command)
        twice = sum(made.get(name) != written for name, written in runs_in(out).items())
    within = (
        first.code == again.code == 0
        and first.seconds <= BAR_SECONDS
        and max(first.peak_mb, again.peak_mb) <= BAR_MB
        and max(first.silence_s, again.silence_s) <= BAR_SILENCE_S
        and twice == 0
    )
    result = {
        "benchmark": "reproduce",
        "experiments": names,
        "cores": len(os.sched_getaffinity(0)),
        "wall_s": round(first.seconds, 1),
        "peak_mb": round(max(first.peak_mb, again.peak_mb)),
        "silence_s": round(max(first.silence_s, again.silence_s), 2),
        "silent_after": max(first, again, key=lambda call: call.silence_s).before[:80],
        "runs": len(made),
        "again_wall_s": round(again.seconds, 1),
        "made_twice": twice,
        "codes": [first.code, again.code],
        "within_bar": within,
    }
    print(json.dumps(result))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
