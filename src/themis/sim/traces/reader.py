"""From a file to a trace, whatever its format.

trace = read_trace(Path("jobs.txt"))
trace.format, len(trace.jobs), trace.problem_counts, trace.dropped
"""

from pathlib import Path

from themis.errors import ConfigError, unknown_name
from themis.sim.traces.csv_tables import LAYOUTS, ColumnNames, layout_of, table_parser
from themis.sim.traces.philly import read_philly_log
from themis.sim.traces.sacct import COLUMNS, DELIMITER, sacct_parser
from themis.sim.traces.text_lines import BOM, OpenTextFile, Progress, numbered_lines, opened
from themis.sim.traces.trace import BadRowError, Tally, Trace, collector_paused

PHILLY_LOG = "philly-json"
SACCT = "sacct"
FORMATS = (PHILLY_LOG, *LAYOUTS, SACCT)
AUTO = "auto"


@collector_paused()
def read_trace(path: Path, format: str = AUTO, *, progress: Progress | None = None) -> Trace:  # noqa: A002 - as the flag is called
    """Read a trace; rows that cannot be understood are counted, never raised.

    Args:
        path: A file or a pipe.
        format: One of `FORMATS`, or `auto` to go by the first line.
        progress: Called now and then with bytes read and bytes in all.

    Raises:
        ConfigError: The file cannot be read, is empty, or is in no format known.
    """
    if format != AUTO and format not in FORMATS:
        raise unknown_name("format", format, (AUTO, *FORMATS))
    tally = Tally()
    with opened(path, progress) as source:
        if b'"themis_workload"' in source.head:
            allowed = f"a trace: run this one with --workload {path}"
            raise ConfigError("trace", "a workload file", allowed, str(path))
        kind = PHILLY_LOG if format == AUTO and _looks_like_json(source) else format
        if kind == PHILLY_LOG:
            read_philly_log(source, tally)
        else:
            kind = _read_rows(source, kind, tally)
        if progress is not None and source.size:
            progress(source.size, source.size)
    return tally.trace(kind, dated=kind not in LAYOUTS)


def _looks_like_json(source: OpenTextFile) -> bool:
    text = source.head.decode("utf-8", "replace").removeprefix(BOM).lstrip()
    return text.startswith(("[", "{"))


def _read_rows(source: OpenTextFile, kind: str, tally: Tally) -> str:
    lines = numbered_lines(source, tally)
    number, header = next(lines, (1, ""))
    where = f"{source.path}:{number}"
    if tally.problems:
        # The first line that is there cannot be read, and what follows it is no header.
        bad = tally.problems[0]
        raise ConfigError("first line", bad.reason, "a header", f"{source.path}:{bad.line}")
    if not header:
        raise ConfigError("trace", "nothing", "a header and at least one row", str(source.path))
    if kind == AUTO:
        kind = _kind_of(header, where)
    parse = sacct_parser(header, where) if kind == SACCT else table_parser(kind, header, where)
    take = tally.take
    for number, line in lines:
        try:
            take(parse(number, line))
        except BadRowError as error:
            tally.refuse(number, error)
    return kind


def _kind_of(line: str, where: str) -> str:
    names = ColumnNames(line, where, DELIMITER).names
    if "submit" in names and ("jobid" in names or "jobidraw" in names):
        return SACCT
    header = ColumnNames(line, where)
    kind = layout_of(header)
    if kind is None:
        _refuse_near_miss(header)
        known = [", ".join(layout.columns) for layout in LAYOUTS.values()]
        allowed = " | ".join((*known, ", ".join(COLUMNS) + " (sacct -P)", "a JSON list (Philly)"))
        raise ConfigError("first line", line[:80], f"a header with {allowed}", where)
    return kind


def _refuse_near_miss(header: ColumnNames) -> None:
    """Name the column that a header lacks, where it is clear which table is meant."""
    nearest = min(LAYOUTS.values(), key=lambda layout: len(header.missing(layout.columns)))
    if len(header.missing(nearest.columns)) == 1:
        header.check(nearest.columns)
