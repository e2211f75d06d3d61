"""How long the command takes to start: CPU seconds of `themis --help` and of `import themis`.

python benchmarks/startup.py prints one JSON line; it exits 1 when `themis --help` is over the bar.
"""

import json
import resource
import statistics
import subprocess
import sys

RUNS = 9
BAR_SECONDS = 0.3
HELP = (sys.executable, "-m", "themis", "--help")
IMPORT = (sys.executable, "-c", "import themis")


def children_cpu_seconds() -> float:
    """CPU time, user and system, of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds(command: tuple[str, ...]) -> float:
    """CPU time of one run of `command`, which must succeed."""
    before = children_cpu_seconds()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return children_cpu_seconds() - before


def median_cpu_seconds(command: tuple[str, ...]) -> float:
    """The median over several runs, after one that fills the caches."""
    cpu_seconds(command)
    return statistics.median(cpu_seconds(command) for _ in range(RUNS))


def main() -> int:
    """Measure, print, and judge by the bar."""
    help_seconds = median_cpu_seconds(HELP)
    within = help_seconds <= BAR_SECONDS
    result = {
        "benchmark": "startup",
        "help_cpu_s": round(help_seconds, 4),
        "import_cpu_s": round(median_cpu_seconds(IMPORT), 4),
        "bar_cpu_s": BAR_SECONDS,
        "runs": RUNS,
        "within_bar": within,
    }
    print(json.dumps(result))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
