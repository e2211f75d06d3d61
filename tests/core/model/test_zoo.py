import csv
import statistics
from pathlib import Path

import pytest

from themis.core.model import CLUSTER, RACK
from themis.core.model.zoo import (
    CATEGORY_SHARES,
    HARDWARE,
    K80_RACK,
    ZOO,
    IntensityGroup,
    entry,
    models_of_category,
    models_of_group,
    slowdown_of,
)
from themis.errors import ConfigError


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def test_the_table_is_the_one_of_the_measurements(themis_data: Path) -> None:
    given = {
        row["model"]: (
            row["category"].lower(),
            tuple(float(row[f"s_{level}"]) for level in ("slot", "machine", "rack", "cluster")),
            row["s_rack_status"],
        )
        for row in rows(themis_data / "themis_models.csv")
    }
    ours = {item.name: (item.category, item.levels, str(item.status)) for item in ZOO}
    assert ours == given


def test_category_shares_are_those_of_the_measurements(themis_data: Path) -> None:
    for row in rows(themis_data / "themis_models.csv"):
        assert CATEGORY_SHARES[row["category"].lower()] == float(row["category_share"])


@pytest.mark.parametrize(
    ("model", "gavel"),
    [("LanguageModel", "LM"), ("ResNet50", "ResNet-50"), ("Transformer", "Transformer")],
)
def test_k80_figures_are_medians_of_the_measurements(
    themis_data: Path, model: str, gavel: str
) -> None:
    found = [
        float(row["slowdown"])
        for row in rows(themis_data / "placement_slowdowns.csv")
        if (row["source"], row["model"], row["gpu"], row["ngpus"]) == ("gavel", gavel, "k80", "4")
    ]
    assert statistics.median(found) == pytest.approx(K80_RACK[model], abs=5e-4)


def test_shares_of_the_categories_sum_to_one_and_none_is_empty() -> None:
    assert sum(CATEGORY_SHARES.values()) == pytest.approx(1.0)
    named = [model for category in CATEGORY_SHARES for model in models_of_category(category)]
    assert sorted(named) == sorted(item.name for item in ZOO)
    assert all(models_of_category(category) for category in CATEGORY_SHARES)


def test_sweep_groups_are_those_of_the_evaluation() -> None:
    assert set(models_of_group(IntensityGroup.NETWORK)) == {
        "VGG16",
        "VGG19",
        "AlexNet",
        "LanguageModel",
        "Transformer",
    }
    assert set(models_of_group(IntensityGroup.COMPUTE)) == {
        "Inceptionv3",
        "ResNet50",
        "Bi-Att-Flow",
        "WaveNet",
        "DeepSpeech",
    }
    assert models_of_group(IntensityGroup.NEITHER) == ("GNMT",)


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("model", [item.name for item in ZOO])
def test_distance_never_helps_a_prior(model: str, hardware: str) -> None:
    levels = slowdown_of(model, hardware).levels
    assert levels[0] == 1.0
    assert list(levels) == sorted(levels)


@pytest.mark.parametrize("model", [item.name for item in ZOO])
def test_a_k80_minds_distance_less_than_a_p100(model: str) -> None:
    k80, p100 = slowdown_of(model, "k80"), slowdown_of(model)
    assert k80.at(CLUSTER, 4) < p100.at(CLUSTER, 4)
    assert k80.at(CLUSTER, 4) < 1.3


def test_measured_k80_values_stand_and_one_below_one_becomes_one() -> None:
    assert slowdown_of("LanguageModel", "k80").at(RACK, 4) == pytest.approx(1.191)
    assert slowdown_of("Transformer", "k80").at(RACK, 4) == pytest.approx(1.055)
    assert slowdown_of("ResNet50", "k80").at(RACK, 4) == 1.0


def test_unmeasured_k80_values_scale_by_the_median_ratio() -> None:
    # Ratios of the excess: LanguageModel 0.191/1.14, Transformer 0.055/0.48, ResNet50 0.
    expected = 1.0 + 0.29 * (0.055 / 0.48)
    assert slowdown_of("VGG16", "k80").at(RACK, 4) == pytest.approx(expected)


def test_upper_and_lower_case_do_not_matter() -> None:
    assert slowdown_of("vgg16") == slowdown_of("VGG16")
    assert entry("BI-ATT-FLOW").name == "Bi-Att-Flow"


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ResNet50'"):
        slowdown_of("ResNet5")
    with pytest.raises(ConfigError, match="did you mean 'p100'"):
        slowdown_of("VGG16", "p10")
    with pytest.raises(ConfigError, match="category"):
        models_of_category("vision")
