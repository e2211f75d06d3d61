"""The real trace as a workload of the bar: 85 apps of Microsoft's Philly clusters, two weeks.

for_seed(results, "0.91", seed=101)      # a run whose workload is a file in the output folder

The trace is not part of the project: without the folder of measured data there are no such runs.
The seed draws models and qualities of jobs; what was measured stays as it is.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from themis.evaluation.experiment import QUICK_APPS, Results
from themis.recording.atomic_files import writable
from themis.sim.config import RunConfig
from themis.sim.traces import ImportOptions, Trace, plan_workload, read_trace, write_workload

FILE = "philly_85apps_2weeks.csv"
SCALES: Mapping[str, float] = {"0.91": 0.83, "1.10": 1.0}
"""Factors on all durations, by the load that they give on 64 GPUs."""


def at_hand(results: Results) -> bool:
    """Whether the file of the trace exists."""
    data = results.scope.data
    return data is not None and (data / FILE).is_file()


def for_seed(results: Results, load: str, seed: int) -> RunConfig:
    """The run of one load and seed; writes its workload file if it is missing.

    Raises:
        ConfigError: The trace is damaged, or the file cannot be written.
    """
    scope = results.scope
    assert scope.data is not None
    path = scope.data / FILE
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    limit = scope.apps or (QUICK_APPS if scope.quick else None)
    # The name has everything that the file is made from, so an existing file is the right one.
    some = f"-first{limit}" if limit else ""
    folder = results.store.folder.parent / "workloads"
    file = folder / f"philly-{digest[:8]}-x{SCALES[load]:g}{some}-seed{seed}.jsonl"
    if not file.is_file():
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
        options = ImportOptions(duration_scale=SCALES[load], limit_apps=limit, seed=seed)
        plan = plan_workload(_trace(path, digest), f"philly-{load}", options)
        write_workload(file, plan.header, plan.lines())
    base = replace(scope.base("w2"), apps=RunConfig().apps)
    return replace(base, workload=str(file), seed=seed)


@lru_cache(maxsize=1)
def _trace(path: Path, _digest: str) -> Trace:
    return read_trace(path)
