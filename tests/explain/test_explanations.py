"""Every reason in three lines, whatever is known."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from themis.explain import WORDS, Bidding, Facts, Ranking, explain
from themis.explain.lines import length
from themis.model.reasons import Reason

KNOWN = Facts(
    app="sweep",
    reason=Reason.SERVED,
    now=1000.0,
    held=2,
    demand=8,
    least=4,
    waiting_since=700.0,
    cluster=64,
    usable=16,
    wanted="V100 with 32 GB of memory or more",
    quota=3,
    owner_held=3,
    ranking=Ranking(12, 940.0, 9, 3, 16, 7, 1.31, "no answer in time"),
    bidding=Bidding(8, 4, 1, 12, 2),
    next_round=1120.0,
    next_expiry=1600.0,
    lease_ends=1400.0,
    agent_seen=880.0,
    quiet=600.0,
    idle_after=120.0,
    phase=1,
    phases=4,
    running=2,
    outcome="failed: it exited with 3",
    ended=400.0,
    trouble="the file is not there",
)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_three_lines_with_all_facts_and_with_none(reason: Reason) -> None:
    for facts in (replace(KNOWN, reason=reason), Facts("sweep", reason, 10.0)):
        said = explain(facts)
        assert said.reason is reason
        assert said.what == f"sweep: {WORDS[reason]}"
        for line in said.lines:
            assert line
            assert "\n" not in line
            assert not re.search(r"None|nan|inf\b|\{|is is", line), line


@pytest.mark.parametrize(
    ("reason", "why", "then"),
    [
        (Reason.NOT_IN_AUCTION, "number 7 of 9", "2 minutes"),
        (Reason.NOT_IN_AUCTION, "3 were asked to bid", ""),
        (Reason.OUTBID, "up to 8 GPUs, and 12 GPUs went to 2 apps", ""),
        (Reason.HIDDEN_PAYMENT, "won 4 and paid 1", ""),
        (Reason.NO_FREE_GPUS, "it has waited for 5 minutes", "in 10 minutes"),
        (Reason.DEMAND_EXCEEDS_CLUSTER, "4 GPUs, the cluster has 64", "per_job_min"),
        (Reason.DEMAND_EXCEEDS_QUOTA, "the quota of its owner is 3", "themis quota"),
        (Reason.NO_MATCHING_GPU, "V100 with 32 GB of memory or more; of 64 GPUs 16", "nodes"),
        (Reason.QUOTA_REACHED, "hold 3 GPUs of 3", ""),
        (Reason.AGENT_UNREACHABLE, "2 minutes ago", ""),
        (Reason.NO_METRICS, "for 10 minutes: the file is not there", "metric.source"),
        (Reason.WAITING_PHASE, "phase 2 of 4; 2 of its jobs", ""),
        (Reason.ROUND_FAILED, "round 12 could not be settled: no answer in time", "lost"),
        (Reason.PAUSED_BY_USER, "holds 2 GPUs", "themis resume sweep"),
        (Reason.FAILED, "10 minutes ago: failed: it exited with 3", "themis retry sweep"),
    ],
)
def test_the_numbers_are_in_it(reason: Reason, why: str, then: str) -> None:
    said = explain(replace(KNOWN, reason=reason))
    assert why in said.why
    assert then in said.then


def test_a_time_that_never_comes_is_not_told() -> None:
    said = explain(replace(KNOWN, reason=Reason.SERVED, lease_ends=math.inf))
    assert said.then == "nothing to do"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "less than a second"),
        (1.0, "1 second"),
        (119.0, "1 minute"),
        (7300.0, "2 hours"),
        (90000.0, "1 day"),
    ],
)
def test_times_are_told_in_words(seconds: float, words: str) -> None:
    assert length(seconds) == words


def test_the_guide_lists_all_reasons_in_their_order() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "sweeps.md"
    listed = re.findall(
        r"`([A-Z_]{5,})`", guide.read_text(encoding="utf-8").split("what comes first")[1]
    )
    assert listed == [str(reason) for reason in Reason]
