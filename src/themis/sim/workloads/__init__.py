"""What a simulated cluster is asked to train: seeded workloads with the published distributions.

w2 = generate_w2(seed=1)                      # 85 apps over 14 days for 64 GPUs, load about 0.91
w1 = workload("w1", seed=1, apps=20, load=0.5)
true_phases(w2.apps[0])                       # what really runs, phase by phase
"""

from themis.sim.workloads.base import SimApp, SimJob, Workload, realised_load, true_phases
from themis.sim.workloads.distributions import (
    APP_GPU_SECONDS,
    TRACE_JOBS,
    W1_GPUS_PER_JOB,
    W1_JOBS,
    W2_GPUS_PER_JOB,
    W2_JOBS,
    Table,
    quantile,
)
from themis.sim.workloads.identical_apps import TRUTH_APPS, TRUTH_VERSION, generate_truth
from themis.sim.workloads.registry import GENERATORS, workload
from themis.sim.workloads.rivals import RIVALS, RIVALS_VERSION, contender, generate_rivals
from themis.sim.workloads.sampling import REFERENCE_APPS, REFERENCE_GPUS, REFERENCE_HORIZON
from themis.sim.workloads.trace_study import TRACE_STUDY_VERSION, generate_trace_study
from themis.sim.workloads.w1 import W1_VERSION, generate_w1
from themis.sim.workloads.w2 import W2_VERSION, generate_w2

__all__ = [
    "APP_GPU_SECONDS",
    "GENERATORS",
    "REFERENCE_APPS",
    "REFERENCE_GPUS",
    "REFERENCE_HORIZON",
    "RIVALS",
    "RIVALS_VERSION",
    "TRACE_JOBS",
    "TRACE_STUDY_VERSION",
    "TRUTH_APPS",
    "TRUTH_VERSION",
    "W1_GPUS_PER_JOB",
    "W1_JOBS",
    "W1_VERSION",
    "W2_GPUS_PER_JOB",
    "W2_JOBS",
    "W2_VERSION",
    "SimApp",
    "SimJob",
    "Table",
    "Workload",
    "contender",
    "generate_rivals",
    "generate_trace_study",
    "generate_truth",
    "generate_w1",
    "generate_w2",
    "quantile",
    "realised_load",
    "true_phases",
    "workload",
]
