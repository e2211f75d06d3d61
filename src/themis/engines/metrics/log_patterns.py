r"""Patterns over lines of a job's log.

    matcher("tensorflow").match("INFO:tensorflow:loss = 1.23, step = 100 (0.5 sec)")
    matcher(r"batch (?P<it>\d+): error (?P<error>\S+)", metric="error")

Three have names, and users write their own. Those are matched by RE2 only, whose time
is bounded by the length of a line, as that of Python's `re` is not; those here are written so that
it is.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from themis.engines.metrics.points import LONGEST_NAME, MetricSample, number, parsed, sample
from themis.errors import ConfigError

MOST_PATTERN = 2048
MOST_MEMORY = 1 << 20
"""Of a compiled pattern: the larger it is, the slower."""
ITERATION, TIME = "it", "t"
"""The groups that are no values."""

# Possessive, and only from the beginnings of words: no character is tried again and again.
_NUMBER = r"[-+]?+(?:(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][-+]?+[0-9]++)?+|(?:nan|NaN|inf)\b)"
_WORD = r"(?<![\w/.-])"
_PAIR = re.compile(rf"{_WORD}([A-Za-z_][\w/.-]{{0,63}}+) ?+[=:] ?+({_NUMBER})", re.ASCII)
_ASSIGNED = re.compile(rf"{_WORD}([A-Za-z_][\w/.-]{{0,63}}+) = ({_NUMBER})", re.ASCII)
_SPOKEN = re.compile(rf"{_WORD}(loss|accuracy|acc|error|perplexity|ppl) ({_NUMBER})", re.ASCII)
_COUNTED = re.compile(
    rf"{_WORD}(?:global[_ ]?+)?+(?:step|iteration|iter)s?+(?: ?+[=:#] ?+| )"
    r"([0-9]{1,15}+)(?![\w%]|\.[0-9])",
    re.ASCII | re.IGNORECASE,
)
_ENTRY = re.compile(rf"['\"]([^'\"]{{1,64}}+)['\"]: ?+['\"]?+({_NUMBER})['\"]?+(?=[,}}])", re.ASCII)
_SECONDS = re.compile(r"\(([0-9]{1,9}+(?:\.[0-9]{1,9}+)?+) sec\)")
_RATE = re.compile(rf"{_WORD}global_step/sec: ({_NUMBER})", re.ASCII)
_STEPS = ("step", "global_step", "it", "iteration", "iter")


class Matcher(Protocol):
    """Finds samples in lines, one after the other."""

    def match(self, line: str) -> MetricSample | None:
        """The sample in a line, if there is one."""

    def recall(self, lines: Sequence[str]) -> None:
        """Know what these lines told, which were matched before, and nothing else."""


class TensorFlow:
    """`loss = 1.23, step = 100 (0.5 sec)`, and `global_step/sec: 12.3` of the step before it.

    The seconds in brackets are the value `sec`, the rate is the value `global_step/sec`.
    """

    def __init__(self, metric: str = "loss") -> None:
        self._metric = metric
        self._step: float | None = None

    def recall(self, lines: Sequence[str]) -> None:
        """Know the last step."""
        self._step = None
        for line in reversed(lines):
            if self._step is None:
                self.match(line)

    def match(self, line: str) -> MetricSample | None:
        """The sample in a line, if there is one."""
        if (rate := _RATE.search(line)) is not None:
            values = [("global_step/sec", parsed(rate[1]))]
            return sample(self._step, None, values, self._metric)
        if "step = " not in line:
            return None
        found = dict(_pairs(line, _ASSIGNED))
        step = _taken(found)
        if step is None:
            return None
        self._step = step
        if (seconds := _SECONDS.search(line)) is not None:
            found["sec"] = parsed(seconds[1])
        return sample(step, None, found.items(), self._metric)


class HuggingFace:
    """`{'loss': 0.5, 'learning_rate': 5e-05, 'step': 100}`: the output of a `Trainer` with steps.

    It prints none by itself. `ThemisCallback` of `themis.integrations` reports without any of this.
    """

    def __init__(self, metric: str = "loss") -> None:
        self._metric = metric

    def recall(self, lines: Sequence[str]) -> None:
        """There is nothing to know."""

    def match(self, line: str) -> MetricSample | None:
        """The sample in a line, if there is one."""
        start = line.find("{")
        if start < 0:
            return None
        found = dict(_pairs(line[start:], _ENTRY))
        return sample(_taken(found), None, found.items(), self._metric)


class Generic:
    """`step 100: loss: 0.5, accuracy = 0.9`, and most of what looks like it."""

    def __init__(self, metric: str = "loss") -> None:
        self._metric = metric

    def recall(self, lines: Sequence[str]) -> None:
        """There is nothing to know."""

    def match(self, line: str) -> MetricSample | None:
        """The sample in a line, if there is one."""
        counted = _COUNTED.search(line)
        if counted is None:
            return None
        found = dict(_pairs(line, _PAIR))
        for name, value in _pairs(line, _SPOKEN):
            found.setdefault(name, value)
        values = [
            (name, value)
            for name, value in found.items()
            if not _COUNTED.fullmatch(f"{name} 1") and name.lower() != "epoch"
        ]
        # A step without any number beside it is as likely to be prose.
        return sample(parsed(counted[1]), None, values, self._metric) if values else None


class Several:
    """The first of several that finds something."""

    def __init__(self, *matchers: Matcher) -> None:
        self._matchers = matchers

    def recall(self, lines: Sequence[str]) -> None:
        """Know what these lines told."""
        for each in self._matchers:
            each.recall(lines)

    def match(self, line: str) -> MetricSample | None:
        """The sample in a line, if there is one."""
        for each in self._matchers:
            if (found := each.match(line)) is not None:
                return found
        return None


class Written:
    """A user's own pattern."""

    def __init__(self, compiled: Any, metric: str) -> None:
        self._compiled = compiled
        self._metric = metric
        groups: Mapping[str, int] = compiled.groupindex
        self._values = [
            (group, metric if group == group_of(metric) else group)
            for group in sorted(groups, key=groups.__getitem__)
            if group not in {ITERATION, TIME}
        ]
        self._has_time = TIME in groups

    def recall(self, lines: Sequence[str]) -> None:
        """There is nothing to know."""

    def match(self, line: str) -> MetricSample | None:
        """The sample in a line, if there is one."""
        match = self._compiled.search(line)
        if match is None:
            return None
        values = [(name, parsed(match[group])) for group, name in self._values]
        time = parsed(match[TIME]) if self._has_time else None
        return sample(parsed(match[ITERATION]), time, values, self._metric)


BUILT_IN: dict[str, Callable[[str], Matcher]] = {
    "tensorflow": TensorFlow,
    "hf": HuggingFace,
    "generic": Generic,
}


def matcher(pattern: str = "", metric: str = "loss") -> Matcher:
    """What finds samples in the lines of a log.

    Args:
        pattern: The name of a built-in one, or an RE2 pattern with the named groups `it`, those of
            values, and perhaps `t`, seconds; empty for all built-in ones, one after the other.
        metric: The value that matters.

    Raises:
        ConfigError: The pattern cannot be, or google-re2 is not installed.
    """
    if not pattern:
        return Several(*(kind(metric) for kind in BUILT_IN.values()))
    if pattern in BUILT_IN:
        return BUILT_IN[pattern](metric)
    return Written(_compiled(pattern, metric), metric)


def is_able() -> bool:
    """Whether patterns that people write can be read here: google-re2 is installed."""
    try:
        import re2  # noqa: F401, PLC0415 - only users' own patterns need it
    except ImportError:
        return False
    return True


def group_of(metric: str) -> str:
    """The group of a metric; its name may have characters that a group name cannot."""
    return re.sub(r"\W", "_", metric, flags=re.ASCII)


def _compiled(pattern: str, metric: str) -> Any:
    key = "metric.pattern"
    if len(pattern) > MOST_PATTERN:
        raise ConfigError(key, f"{pattern[:40]}...", f"at most {MOST_PATTERN} characters")
    try:
        import re2  # noqa: PLC0415 - only users' own patterns need it
    except ImportError:
        raise ConfigError(
            key,
            pattern,
            f"{', '.join(BUILT_IN)}; for patterns of your own install google-re2:"
            " pip install 'themis-scheduler[patterns]'",
        ) from None
    options = re2.Options()
    options.max_mem = MOST_MEMORY
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        reason = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        allowed = f"a pattern that RE2 takes ({reason})"
        raise ConfigError(key, pattern, allowed) from None
    _check_groups(pattern, metric, compiled.groupindex)
    return compiled


def _check_groups(pattern: str, metric: str, groups: Mapping[str, int]) -> None:
    key = "metric.pattern"
    if ITERATION not in groups:
        raise ConfigError(key, pattern, r"one with a group `it`, such as step (?P<it>\d+)")
    if group_of(metric) not in groups:
        allowed = f"one with a group for the metric, such as (?P<{group_of(metric)}>[0-9.]+)"
        raise ConfigError(key, pattern, allowed)
    if any(len(name) > LONGEST_NAME for name in groups):
        raise ConfigError(key, pattern, f"groups with names of at most {LONGEST_NAME} characters")


def _pairs(line: str, kind: re.Pattern[str]) -> Iterator[tuple[str, float | None]]:
    """Names with numbers, each name once."""
    seen: dict[str, float | None] = {}
    for match in kind.finditer(line):
        seen.setdefault(match[1], parsed(match[2]))
    yield from seen.items()


def _taken(found: dict[str, float | None]) -> float | None:
    """The iteration among values, which is then none of them."""
    step = None
    for name in _STEPS:
        value = number(found.pop(name, None))
        step = value if step is None else step
    return step
