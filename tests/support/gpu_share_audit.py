"""Whether GPUs were ever shared, from files that the jobs themselves wrote.

    program = Program(("/bin/sh", "-c", TRAIN), (("AUDIT", str(folder)),))
    audit(folder)               # what is wrong, in words; nothing if nothing is

A job appends a line to one file per GPU when it starts, again and again while it is alive, and when
it was asked to save. Lines are appended whole, so their order is the order of what happened, and
neither the service nor a node has a say in it: a GPU is shared where the lines of two starts
alternate, and a lease that was over was used where a smaller token comes after a larger one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

_SAY = """
node=${THEMIS_METRICS#*-nodes/}; node=${node%%/*}; n=0
say() {
    read -r now _ < /proc/uptime; left=$THEMIS_LEASES
    for gpu in $(echo "$THEMIS_GPUS" | tr , ' '); do
        echo "$1 ${left%%,*} $THEMIS_RUN $THEMIS_JOB_ID $now" >> "$AUDIT/$node.$gpu"
        left=${left#*,}
    done
}
umask 0
"""
TRAIN = f"""{_SAY}
trap 'say stop; exit 75' TERM
say start
while [ "${{MOST:-0}}" -eq 0 ] || [ "$n" -lt "$MOST" ]; do
    n=$((n + 1)); echo "{{\\"it\\": $n}}" >> "$THEMIS_METRICS"; sleep 0.1 & wait $!; say beat
done
"""
"""A job for /bin/sh. AUDIT names the folder of the files, MOST how many iterations it does."""
SWEEP = f"""{_SAY}
save() {{ echo "$n" > .n && mv .n n; }}
cd "$THEMIS_CHECKPOINT_DIR"; n=$(cat n 2>/dev/null || echo 0)
trap 'save; say stop; exit 75' TERM
say start; echo "$THEMIS_JOB_ID $node $n" >> "$RESUMED"
while [ "$n" -lt "$THEMIS_MAX_ITERATIONS" ]; do
    sleep 0.1 & wait $!
    n=$((n + 1)); save; say beat
    echo "{{\\"it\\": $n, \\"loss\\": $(($1 * 1000 / n))}}" >> "$THEMIS_METRICS"
done
"""
"""One of a sweep, that saves at each iteration. Its loss tells how good its parameter is; RESUMED
names a file of all starts: the job, its machine, and the iteration that it began with."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a job wrote about itself and one of its GPUs."""

    what: str
    """start, beat or stop."""
    token: int
    """Of the job's lease on this GPU."""
    run: str
    """Different for every start of a process."""
    job: str
    at: float
    """Seconds since the machine was started."""


def read_lines(folder: Path) -> dict[str, tuple[Line, ...]]:
    """What was written about each GPU so far."""
    found = {}
    for file in sorted(folder.iterdir()):
        # The last line may be under way.
        whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
        found[file.name] = tuple(map(_line, whole.splitlines()))
    return found


def _line(text: str) -> Line:
    what, token, run, job, at = text.split()
    return Line(what, int(token), run, job, float(at))


def audit(folder: Path, *, chosen: bool = True) -> list[str]:
    """What the files say went wrong; `chosen` as in `objections`."""
    return objections(read_lines(folder), chosen=chosen)


def objections(lines: Mapping[str, Iterable[Line]], *, chosen: bool = True) -> list[str]:
    """What is wrong with these lines, by GPU.

    Args:
        lines: What was written.
        chosen: Whether leases name the GPUs that their jobs get. Where another scheduler chooses,
            a job with an older lease may rightly get a GPU that a younger one had.
    """
    found = []
    for gpu, written in lines.items():
        seen: set[str] = set()
        highest = 0
        for run, group in groupby(written, key=lambda line: line.run):
            line = next(group)
            if run in seen:
                found.append(f"GPU {gpu}: {line.job} wrote while another job had it")
            elif chosen and line.token < highest:
                found.append(f"GPU {gpu}: {line.job} with token {line.token} after {highest}")
            seen.add(run)
            highest = max(highest, line.token)
    return found


def starts(lines: Mapping[str, Iterable[Line]]) -> dict[str, str]:
    """Every start of a process that was ever seen, and its job."""
    return {line.run: line.job for written in lines.values() for line in written}


def overlapping(lines: Mapping[str, Iterable[Line]]) -> list[str]:
    """Jobs of which two starts were alive at a time, wherever: of jobs on one machine each."""
    spans: dict[str, dict[str, tuple[float, float]]] = {}
    for written in lines.values():
        for line in written:
            runs = spans.setdefault(line.job, {})
            first, last = runs.get(line.run, (line.at, line.at))
            runs[line.run] = (min(first, line.at), max(last, line.at))
    found = []
    for job, runs in spans.items():
        ends = sorted(runs.values())
        for (_, over), (begun, _) in pairwise(ends):
            if begun < over:
                found.append(f"{job} was started again {over - begun:.2f} s before it was over")
    return found
