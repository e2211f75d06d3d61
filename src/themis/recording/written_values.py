"""Values as people write them, in files and on command lines.

seconds("10m", "lease")      # 600.0
parse_value("0.5")           # a number, true, false, or a word
"""

import re
from typing import Any

from themis.core.model.ids import check_number
from themis.errors import ConfigError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([smhd]?)\Z")


def seconds(value: object, key: str) -> float:
    """Seconds from a number or from 90s, 10m, 1.5h, 2d.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return check_number(key, value, high=1e18)
    text = value.strip() if isinstance(value, str) else ""
    match = _DURATION.match(text)
    if match is None:
        forms = "seconds, or a number with s, m, h or d: 90s, 10m, 1.5h, 2d"
        negative = text.startswith("-") and _DURATION.match(text[1:])
        raise ConfigError(key, value, f"a positive time: {forms}" if negative else forms)
    return float(match[1]) * _UNITS[match[2]]


def parse_value(text: str) -> Any:
    """A value as written on a command line: a number, true, false, or a word."""
    lowered = text.strip().lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()
