"""The models that generated workloads train: how much each dislikes distance.

slowdown_of("VGG16")               # P100: (1.0, 1.05, 1.29, 1.44)
slowdown_of("vgg16", "k80")        # slower GPUs wait less for the network: nearly 1
entry("LanguageModel").category    # "nlp"

The figures are priors for four GPUs. The value within a rack comes from the source that `status`
names; the values within a slot, within a machine and across racks are always assumed.
"""

from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from themis.core.model.slowdown import Slowdown
from themis.core.model.topology import RACK
from themis.errors import unknown_name


class Status(StrEnum):
    """Where the value within a rack comes from."""

    MEASURED = "measured"
    RECALLED = "recalled"
    """The paper's own table, from memory and unverified."""
    SET_BY_AUTHORS = "set_by_authors"
    """A constant in the code of another simulator, not a published measurement."""
    SCALED = "scaled"
    """From a sibling, by parameter size."""
    ASSUMED = "assumed"


class IntensityGroup(StrEnum):
    """Which side of the network-intensity sweep a model is on."""

    NETWORK = "network"
    COMPUTE = "compute"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """One model: its category, P100 slowdown per level, and what that rests on."""

    name: str
    category: str
    group: IntensityGroup
    levels: tuple[float, float, float, float]
    status: Status
    source: str


CATEGORY_SHARES = {"cv": 0.10, "nlp": 0.60, "speech": 0.30}
"""Share of apps per category (the paper's mix); equal inside a category."""

ZOO = (
    ZooEntry(
        "Inceptionv3",
        "cv",
        IntensityGroup.COMPUTE,
        (1.00, 1.00, 1.02, 1.03),
        Status.RECALLED,
        "Themis arXiv v1, 242 against 243 images/s on 4 P100 in one or two servers",
    ),
    ZooEntry(
        "AlexNet",
        "cv",
        IntensityGroup.NETWORK,
        (1.00, 1.10, 1.67, 2.00),
        Status.SET_BY_AUTHORS,
        "Blox/Synergy placement penalty 0.6",
    ),
    ZooEntry(
        "ResNet50",
        "cv",
        IntensityGroup.COMPUTE,
        (1.00, 1.02, 1.12, 1.18),
        Status.MEASURED,
        "Gavel P100, 4 GPUs, median",
    ),
    ZooEntry(
        "VGG16",
        "cv",
        IntensityGroup.NETWORK,
        (1.00, 1.05, 1.29, 1.44),
        Status.RECALLED,
        "Themis arXiv v1, 103.6 against 80.4 images/s on 4 P100 in one or two servers",
    ),
    ZooEntry(
        "VGG19",
        "cv",
        IntensityGroup.NETWORK,
        (1.00, 1.05, 1.30, 1.45),
        Status.SCALED,
        "VGG16's excess, by parameter size 547.1/526.8",
    ),
    ZooEntry(
        "Bi-Att-Flow",
        "nlp",
        IntensityGroup.COMPUTE,
        (1.00, 1.02, 1.10, 1.15),
        Status.ASSUMED,
        "no public measurement found",
    ),
    ZooEntry(
        "LanguageModel",
        "nlp",
        IntensityGroup.NETWORK,
        (1.00, 1.20, 2.14, 2.70),
        Status.MEASURED,
        "Gavel LM (LSTM) P100, 4 GPUs, median",
    ),
    ZooEntry(
        "GNMT",
        "nlp",
        IntensityGroup.NEITHER,
        (1.00, 1.05, 1.30, 1.45),
        Status.ASSUMED,
        "no measurement found; the Blox constant 0.9 would give 1.11",
    ),
    ZooEntry(
        "Transformer",
        "nlp",
        IntensityGroup.NETWORK,
        (1.00, 1.10, 1.48, 1.72),
        Status.MEASURED,
        "Gavel Transformer P100, 4 GPUs, median",
    ),
    ZooEntry(
        "WaveNet",
        "speech",
        IntensityGroup.COMPUTE,
        (1.00, 1.01, 1.05, 1.08),
        Status.ASSUMED,
        "no public measurement found",
    ),
    ZooEntry(
        "DeepSpeech",
        "speech",
        IntensityGroup.COMPUTE,
        (1.00, 1.03, 1.15, 1.22),
        Status.MEASURED,
        "Pollux DeepSpeech2 on 4 T4: 1.07 (four nodes) to 1.22 (two nodes)",
    ),
)

HARDWARE = ("p100", "k80")

K80_RACK = {"LanguageModel": 1.191, "ResNet50": 0.848, "Transformer": 1.055}
"""Spread against consolidated on 4 K80: medians over batch sizes of Gavel's throughputs."""

_BY_NAME = {item.name.lower(): item for item in ZOO}


def entry(model: str) -> ZooEntry:
    """The model of this name, upper or lower case.

    Raises:
        ConfigError: There is none.
    """
    found = _BY_NAME.get(model.lower())
    if found is None:
        raise unknown_name("model", model, (item.name for item in ZOO))
    return found


def slowdown_of(model: str, hardware: str = "p100") -> Slowdown:
    """The prior slowdown of a model.

    Raises:
        ConfigError: Unknown model or hardware.
    """
    found = entry(model)
    if hardware not in HARDWARE:
        raise unknown_name("hardware", hardware, HARDWARE)
    if hardware == "p100":
        return Slowdown(found.levels)
    slot, machine, rack, cluster = found.levels
    ratio = _k80_ratio(found)
    return Slowdown(
        (
            1.0 + ratio * (slot - 1.0),
            1.0 + ratio * (machine - 1.0),
            1.0 + ratio * (rack - 1.0),
            1.0 + ratio * (cluster - 1.0),
        )
    )


def models_of_category(category: str) -> tuple[str, ...]:
    """The models of a category, in the table's order."""
    if category not in CATEGORY_SHARES:
        raise unknown_name("category", category, CATEGORY_SHARES)
    return tuple(item.name for item in ZOO if item.category == category)


def models_of_group(group: IntensityGroup) -> tuple[str, ...]:
    """The models on one side of the network-intensity sweep, in the table's order."""
    return tuple(item.name for item in ZOO if item.group is group)


def _k80_ratio(found: ZooEntry) -> float:
    """What is left on a K80 of the P100's excess over one.

    Measured models use their own ratio for all levels (only the rack's was measured), the others
    the median of the measured ones.
    """
    if found.name in K80_RACK:
        return _measured_ratio(found)
    return median(_measured_ratio(entry(name)) for name in K80_RACK)


def _measured_ratio(found: ZooEntry) -> float:
    # ResNet50 ran faster spread out on K80s than together; a prior never promises that.
    excess = max(0.0, K80_RACK[found.name] - 1.0)
    return excess / (found.levels[RACK] - 1.0)
