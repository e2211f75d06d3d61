"""Plans are the same whatever order Python's hashes give to sets of strings."""

import os
import subprocess
import sys

PRINT_PLANS = """
from themis.core.policies import POLICIES, policy
from themis.testing.policy_fakes import drive
from themis.testing.policies import random_view

for name in POLICIES:
    for seed in range(40):
        print(drive(policy(name), random_view(seed, 4, 5)))
for seed in range(10):
    print(drive(policy("themis", payment="lottery-pf", f=0.0), random_view(seed, 4, 5)))
"""


def _plans(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    result = subprocess.run(
        [sys.executable, "-c", PRINT_PLANS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return result.stdout


def test_two_hash_seeds_give_the_same_plans() -> None:
    first = _plans("1")
    assert first.count("Plan(") > 200
    assert first == _plans("2")
