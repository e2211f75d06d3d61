"""E13: throughput by placement is that of the zoo, beside what others measured."""

from pathlib import Path

import pytest

from themis.core.model import CLUSTER, LEVELS, MACHINE, RACK
from themis.core.model.zoo import ZOO
from themis.errors import ConfigError
from themis.evaluation.claims import Verdict
from themis.evaluation.experiment import Findings, Results, Scope
from themis.evaluation.experiments import e13_placement_sensitivity as e13
from themis.evaluation.published_measurements import read_measurements, same_table
from themis.sim.runs.result_cache import ResultCache


def found(tmp_path: Path, data: Path | None = None) -> Findings:
    return e13.study(Results(Scope(data=data), ResultCache(tmp_path)))


def test_vgg16_loses_a_fifth_beyond_its_machine_and_resnet50_does_not() -> None:
    assert e13.throughput("VGG16", MACHINE) > 0.95
    assert e13.throughput("VGG16", RACK) == pytest.approx(80.4 / 103.6, abs=0.01)
    assert e13.throughput("ResNet50", RACK) > 0.88
    assert e13.throughput("ResNet50", RACK, "k80") == 1.0


def test_distance_never_helps() -> None:
    for item in ZOO:
        for hardware in ("p100", "k80"):
            values = [e13.throughput(item.name, level, hardware) for level in LEVELS]
            assert values == sorted(values, reverse=True)
            assert values[0] == 1.0


def test_the_paper_s_claims(tmp_path: Path) -> None:
    vgg, resnet, order = found(tmp_path).claims
    assert vgg.verdict is Verdict.BY_CONSTRUCTION
    assert resnet.verdict is Verdict.PARTLY  # measured, it is not quite indifferent
    assert order.verdict is Verdict.HOLDS


def test_the_table_has_every_model_on_both_kinds_of_gpu(tmp_path: Path) -> None:
    (table,) = found(tmp_path).tables
    assert len(table.rows) == 2 * len(ZOO)
    cell = {(row[0], row[2]): row[6] for row in table.rows}
    assert cell["LanguageModel", "p100"] == pytest.approx(1 / 2.70)
    assert e13.throughput("LanguageModel", CLUSTER) == cell["LanguageModel", "p100"]


def test_measurements_are_medians_of_the_files(tmp_path: Path, themis_data: Path) -> None:
    measured = {(one.model, one.source, one.gpu): one for one in read_measurements(themis_data)}
    assert 1 / measured["LanguageModel", "Gavel", "p100"].median == pytest.approx(2.139, abs=2e-3)
    assert len(measured["LanguageModel", "Gavel", "p100"].values) == 5
    assert measured["ResNet50", "Gavel", "k80"].median > 1.0  # faster apart
    assert ("DeepSpeech", "Pollux", "t4") in measured
    claims = found(tmp_path, themis_data).claims
    assert len(claims) == 9
    assert {claim.verdict for claim in claims[3:]} == {Verdict.BY_CONSTRUCTION}
    assert same_table(themis_data) == len(ZOO)


def test_a_folder_without_the_files_gives_nothing(tmp_path: Path) -> None:
    assert read_measurements(tmp_path) == []
    assert same_table(tmp_path) is None


@pytest.mark.parametrize("value", ["", "fast", "-1", "nan"])
def test_bad_row_is_reported_with_its_line(tmp_path: Path, value: str) -> None:
    file = tmp_path / "gavel_throughputs.csv"
    head = "model,batch,gpu,ngpus,placement,steps_per_s\n"
    file.write_text(head + f"LM,5,p100,4,consolidated,{value}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"gavel_throughputs\.csv:2.*positive number"):
        read_measurements(tmp_path)


def test_missing_column_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gavel_throughputs.csv").write_text("model,batch\nLM,5\n", "utf-8")
    with pytest.raises(ConfigError, match="ngpus"):
        read_measurements(tmp_path)
