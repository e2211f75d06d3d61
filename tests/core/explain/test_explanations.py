"""Every reason in three lines, whatever is known."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from themis.core.explain import WORDS, Bidding, Facts, Ranking, explain
from themis.core.explain.lines import length
from themis.core.model.reasons import Reason

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
        (Reason.NOT_IN_AUCTION, "ranked 7 of 9", "2 minutes"),
        (Reason.NOT_IN_AUCTION, "3 were invited to bid", ""),
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
        (Reason.ROUND_FAILED, "round 12 could not be settled: no answer in time", "renewed"),
        (Reason.PAUSED_BY_USER, "holds 2 GPUs", "themis resume sweep"),
        (Reason.FAILED, "10 minutes ago: failed: it exited with 3", "themis retry sweep"),
    ],
)
def test_the_numbers_are_in_it(reason: Reason, why: str, then: str) -> None:
    said = explain(replace(KNOWN, reason=reason))
    assert why in said.why
    assert then in said.then


def test_infinite_time_is_not_shown() -> None:
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
def test_times_are_written_in_words(seconds: float, words: str) -> None:
    assert length(seconds) == words


def test_the_guide_lists_all_reasons_in_their_order() -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "sweeps.md"
    listed = re.findall(
        r"`([A-Z_]{5,})`", guide.read_text(encoding="utf-8").split("the first that applies")[1]
    )
    assert listed == [str(reason) for reason in Reason]


@pytest.mark.parametrize(
    ("facts", "why", "then"),
    [
        ({"quota": 3, "owner_held": 3}, "all apps of its owner hold 3 of 3 allowed", "quota"),
        ({"usable": 4, "closed": 2}, "it may use 4 in all, 2 of them on cordoned", "uncordoned"),
        ({"usable": 2}, "it may use 2 in all", "machines"),
        ({"usable": 16}, "of 8 that it wants; in round 12", "the next lease"),
        ({"usable": 16, "closed": 4}, "it may use 16 in all, 4 of them", "the next lease"),
    ],
)
def test_app_with_a_part_sees_the_reason_for_the_rest(
    facts: dict[str, int], why: str, then: str
) -> None:
    known = replace(KNOWN, reason=Reason.PARTLY_SERVED, quota=None, owner_held=2, held=2)
    said = explain(replace(known, **facts))  # type: ignore[arg-type]
    assert why in said.why
    assert then in said.then
    assert ("in round 12" in said.why) == ("next lease" in said.then)


def test_satisfied_app_gets_no_explanation_of_a_lack() -> None:
    said = explain(replace(KNOWN, reason=Reason.PARTLY_SERVED, held=3, demand=3))
    assert "it holds 3 GPUs, all that it wants now" in said.why
    assert "SERVED" in said.then


def test_one_app_was_asked_and_several_were() -> None:
    told = Ranking(12, 940.0, 2, 1, 16, 2, 1.31)
    facts = replace(KNOWN, reason=Reason.NOT_IN_AUCTION, ranking=told)
    assert "; 1 was invited to bid" in explain(facts).why


@pytest.mark.parametrize(
    ("rho", "then"),
    [(1.31, "it rises in the ranking as it waits"), (0.41, "it has slack")],
)
def test_app_with_slack_is_not_promised_a_better_rank(rho: float, then: str) -> None:
    facts = replace(KNOWN, reason=Reason.NOT_IN_AUCTION, ranking=Ranking(12, 940, 9, 3, 16, 7, rho))
    said = explain(facts)
    assert f"with rho {rho}" in said.why
    assert said.then.startswith(f"{then}")


@pytest.mark.parametrize(
    ("bidding", "why"),
    [
        (None, "; its bid did not arrive in time"),
        (Bidding(refused="it asks for 9 of 4 GPUs"), "; its bid was refused: it asks for 9 of 4"),
    ],
)
def test_loser_without_a_bid_sees_that_reason(bidding: Bidding | None, why: str) -> None:
    assert why in explain(replace(KNOWN, reason=Reason.OUTBID, bidding=bidding)).why
