"""What others measured of models that ours are priors for, where the files are at hand.

read_measurements(Path(os.environ["THEMIS_DATA"]))
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from themis.core.model.zoo import ZOO
from themis.errors import ConfigError

COUNT = 4
"""The GPUs that all of this is about."""

# What the model is called by those who measured it. Gavel: apart against together; Pollux: two
# nodes of two GPUs each against one of four.
GAVEL = {"LanguageModel": "LM", "ResNet50": "ResNet-50", "Transformer": "Transformer"}
POLLUX = {"DeepSpeech": "DeepSpeech2", "ResNet50": "ResNet50-ImageNet"}
POLLUX_SPREAD = ("pollux_t4", str(COUNT), "nodes=2+2_vs_1node")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured throughput of 4 GPUs apart, relative to together, over batch sizes."""

    model: str
    source: str
    gpu: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one; of slowdowns, so that it is the zoo's."""
        return 1.0 / median(1.0 / value for value in self.values)


def read_measurements(folder: Path) -> list[Measurement]:
    """What Gavel's and Pollux's authors measured of models in the zoo.

    Raises:
        ConfigError: A file in the folder cannot be understood.
    """
    found: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    together: dict[tuple[str, str, str], float] = {}
    for row in _rows(folder / "gavel_throughputs.csv"):
        for ours, theirs in GAVEL.items():
            if (row["model"], row["ngpus"]) == (theirs, str(COUNT)):
                speed, key = row.number("steps_per_s"), (ours, row["gpu"], row["batch"])
                if row["placement"] == "consolidated":
                    together[key] = speed
                elif key in together:
                    found[ours, "Gavel", row["gpu"]].append(speed / together[key])
    for row in _rows(folder / "placement_slowdowns.csv"):
        if (row["source"], row["ngpus"], row["comparison"]) == POLLUX_SPREAD:
            for ours, theirs in POLLUX.items():
                if row["model"] == theirs:
                    found[ours, "Pollux", row["gpu"]].append(1.0 / row.number("slowdown"))
    return [Measurement(*key, tuple(values)) for key, values in sorted(found.items())]


def same_table(folder: Path) -> int | None:
    """How many models of the zoo are as in the table that it was taken from; None without it."""
    levels = ("s_slot", "s_machine", "s_rack", "s_cluster")
    given = {
        row["model"]: (*(row.number(level) for level in levels), row["s_rack_status"])
        for row in _rows(folder / "themis_models.csv")
    }
    if not given:
        return None
    return sum(given.get(item.name) == (*item.levels, str(item.status)) for item in ZOO)


def _rows(path: Path) -> Iterator["_Row"]:
    """The rows of a file, if it exists; an error names the line."""
    if not path.is_file():
        return
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), start=2):
                yield _Row(row, f"{path}:{number}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError("file", str(error), "a readable CSV file", str(path)) from error


class _Row:
    """A row that knows its line, for errors."""

    def __init__(self, values: dict[str, str | None], where: str) -> None:
        self._values = values
        self._where = where

    def __getitem__(self, key: str) -> str:
        value = self._values.get(key)
        if value is None:
            raise ConfigError(key, None, "a value in every row", self._where)
        return value

    def number(self, key: str) -> float:
        """A positive number.

        Raises:
            ConfigError: The value is not a positive number.
        """
        try:
            value = float(self[key])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(key, self[key], "a positive number", self._where)
        return value
