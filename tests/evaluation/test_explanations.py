"""The Markdown beside the experiments: each claim finds its explanation, and none is left over."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from themis.evaluation.experiment import Experiment, Results, Scope
from themis.evaluation.explanations import ExperimentNotes, explanation
from themis.evaluation.registry import EXPERIMENTS
from themis.sim.runs.result_cache import ResultCache

ONLY_WITH_DATA = {"Measured values"}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda item: item.id)
def test_claims_and_explanations_name_each_other(experiment: Experiment, tmp_path: Path) -> None:
    quick = replace(experiment, plan=lambda _: ())
    claims = quick.study(Results(Scope(quick=True), ResultCache(tmp_path))).claims
    named = {claim.why for claim in claims if claim.why}
    headings = {heading for heading, _ in experiment.explanation.sections}
    assert named <= headings
    assert headings - named <= ONLY_WITH_DATA
    assert len({claim.id for claim in claims}) == len(claims)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda item: item.id)
def test_explanations_are_plain_text_with_code(experiment: Experiment) -> None:
    text = experiment.explanation
    for part in (*text.notes, *(body for _, body in text.sections)):
        assert part.endswith((".", ")"))
        assert not re.search(r"[*<>\[\]#|]|^- ", re.sub("`[^`]+`", "", part))


def test_an_experiment_of_another_package_has_no_explanation() -> None:
    assert explanation("") == explanation("mine.e99") == ExperimentNotes()
