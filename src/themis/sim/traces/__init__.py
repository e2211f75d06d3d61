"""Real traces: what a cluster was asked for in the past, as a workload for the simulator.

trace = read_trace(Path("philly_jobs.csv"))            # format found by content
plan = plan_workload(trace, "philly", ImportOptions(drop_owners=("11cb48",), limit_apps=50))
write_workload(Path("philly.jsonl"), plan.header, plan.lines())

Every row is accounted for: it is a job, a problem with line and reason, or dropped with a reason.
"""

from themis.sim.traces.app_grouping import TraceApp, group_apps, select
from themis.sim.traces.compact_apps import CompactApp
from themis.sim.traces.reader import FORMATS, read_trace
from themis.sim.traces.statistics import trace_stats
from themis.sim.traces.trace import BadRow, Dropped, Trace, TraceJob
from themis.sim.traces.trace_workload import ImportOptions, NoJobsError, TracePlan, plan_workload
from themis.sim.traces.workload_files import (
    WorkloadHeader,
    header_of,
    is_workload_file,
    read_workload,
    write_workload,
)

__all__ = [
    "FORMATS",
    "BadRow",
    "CompactApp",
    "Dropped",
    "ImportOptions",
    "NoJobsError",
    "Trace",
    "TraceApp",
    "TraceJob",
    "TracePlan",
    "WorkloadHeader",
    "group_apps",
    "header_of",
    "is_workload_file",
    "plan_workload",
    "read_trace",
    "read_workload",
    "select",
    "trace_stats",
    "write_workload",
]
