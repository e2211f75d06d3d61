"""Results as rows, and as pandas tables for notebooks. pandas is imported when one is made.

frame(app_rows(result.apps))
"""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from themis.errors import ConfigError
from themis.sim.metrics import HOUR, AppResult


def app_rows(apps: Iterable[AppResult]) -> list[dict[str, Any]]:
    """One flat row for each app, times in hours."""
    rows = []
    for app in apps:
        row: dict[str, Any] = {
            "app": str(app.app),
            "arrival_h": app.arrival / HOUR,
            "end_h": app.end / HOUR,
            "completion_h": app.completion / HOUR,
            "gpu_hours": app.gpu_seconds / HOUR,
        }
        for name, values in (("rho", app.rho), ("rho_ref", app.rho_ref)):
            row |= {f"{name}_{convention}": value for convention, value in values.items()}
        rows.append(row)
    return rows


def frame(rows: Sequence[dict[str, Any]]) -> Any:
    """A pandas DataFrame of rows.

    Raises:
        ConfigError: pandas is missing.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise ConfigError("dataframe", "pandas is missing", "pip install pandas") from error
    return pandas.DataFrame(list(rows))
