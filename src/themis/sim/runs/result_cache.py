"""Finished runs as files: found again by what was asked for, never half of one.

store = Store(Path("out/runs"))
store.save(record_of(run(config)))          # what a comparison keeps of a run
store.load(config)                          # None until it is there

The name of a file is a hash of the configuration, of the files it names and of the version, so that
a second call of the same comparison finds what the first one finished.
"""

import gzip
import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from themis import __version__
from themis.core.model import AppId, GpuId, LeaseSource
from themis.errors import ConfigError, RefusedError
from themis.recording.atomic_files import writable, write_whole
from themis.recording.codec import decode, dumps, loads
from themis.sim.config import RunConfig
from themis.sim.metrics import HOUR, AppResult
from themis.sim.run import RunResult, Segment
from themis.sim.runs.run_timing import Timing

MAX_STEPS = 500
SCORE_DIGITS = 3


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """GPUs held on average in steps of time of the same length."""

    step: float
    gpus: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CachedRun:
    """What a comparison keeps of a run: results, and enough for every figure but the timeline."""

    themis: str
    config: RunConfig
    summary: Mapping[str, Any]
    apps: tuple[AppResult, ...]
    scores: tuple[tuple[float, float], ...]
    """Placement scores in order, with the GPU seconds that had them."""
    usage: GpuUsage


@dataclass(frozen=True, slots=True)
class Stored:
    """A run in the bytes of its files, as a worker hands it over."""

    record: bytes
    segments: bytes
    timing: bytes = b""
    """What it cost; the one file that no two runs have alike."""


@dataclass(frozen=True, slots=True)
class ResultCache:
    """A folder of finished runs."""

    folder: Path
    commit: str = ""
    """Of the code that adds runs to it, where somebody knows."""
    _keys: dict[str, str] = field(default_factory=dict, compare=False)

    def make(self) -> None:
        """Create the folder.

        Raises:
            ConfigError: It cannot be.
        """
        with writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def load(self, config: RunConfig) -> CachedRun | None:
        """The run of this configuration, if there is a whole and readable one."""
        try:
            text = self._path(config).read_text("utf-8")
            return decode(CachedRun, loads(text))
        except (OSError, UnicodeDecodeError, RefusedError):
            return None

    def has(self, config: RunConfig) -> bool:
        """Whether there is a whole run, without reading it."""
        try:
            with self._path(config).open("rb") as file:
                file.seek(-2, os.SEEK_END)
                return file.read() == b"}\n"
        except OSError:
            return False

    def timing(self, config: RunConfig) -> Timing | None:
        """What a run cost, if that is known."""
        return _timing(self._timing_path(config))

    def timings(self) -> Iterator[Timing]:
        """What the runs in the folder cost, of those where it is known."""
        for path in sorted(self.folder.glob("*.timing")):
            found = _timing(path)
            if found is not None:
                yield found

    def segments(self, config: RunConfig) -> tuple[Segment, ...]:
        """Who held which GPU when in a run that is there.

        Raises:
            ConfigError: Its file is gone or damaged.
        """
        path = self._segments_path(config)
        try:
            lines = gzip.decompress(path.read_bytes()).decode("ascii").splitlines()
            return tuple(_segment(line) for line in lines)
        except (OSError, EOFError, ValueError) as error:
            raise ConfigError("file", str(error), "a readable file", str(path)) from error

    def save(self, config: RunConfig, stored: Stored) -> None:
        """Keep a run. Its record comes last, so a record always has its segments beside it."""
        write_whole(self._segments_path(config), stored.segments)
        if stored.timing:
            write_whole(self._timing_path(config), stored.timing)
        write_whole(self._path(config), stored.record)

    def _path(self, config: RunConfig) -> Path:
        return self.folder / f"{self._name(config)}.json"

    def _segments_path(self, config: RunConfig) -> Path:
        return self.folder / f"{self._name(config)}.segments.gz"

    def _timing_path(self, config: RunConfig) -> Path:
        return self.folder / f"{self._name(config)}.timing"

    def _name(self, config: RunConfig) -> str:
        known = repr(config)
        if known not in self._keys:
            self._keys[known] = run_key(config)
        return self._keys[known]


def run_key(config: RunConfig) -> str:
    """A short hash of everything a run follows from: what is in its files, not where they are."""
    files = {
        key: hashlib.sha256(Path(name).read_bytes()).hexdigest()
        for key, name in (("cluster", config.cluster), ("workload", config.workload))
        if os.path.isfile(name)  # false, and no error, for names that cannot be paths
    }
    told = {"themis": __version__, "config": {**asdict(config), **files}, "files": sorted(files)}
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stored(result: RunResult, timing: Timing | None = None) -> Stored:
    """A result in the bytes of its files; the same run gives the same bytes, but for its timing."""
    held = merged(result.segments)
    record = CachedRun(
        themis=__version__,
        config=result.prepared.config,
        summary=_finite(result.summary),
        apps=result.apps,
        scores=score_shares(result.outcome.scores),
        usage=usage_of(held),
    )
    lines = "".join(
        f"{item.gpu},{item.app},{item.start!r},{item.end!r},{item.source}\n" for item in held
    )
    return Stored(
        (dumps(record) + "\n").encode(),
        # Without the time of writing, which gzip would put in.
        gzip.compress(lines.encode("ascii"), mtime=0),
        b"" if timing is None else (dumps(timing) + "\n").encode(),
    )


def merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Segments in order of GPU and time, those that follow each other as one."""
    result: list[Segment] = []
    for item in sorted(segments, key=lambda item: (item.gpu, item.start, item.end)):
        last = result[-1] if result else None
        if last and (last.gpu, last.app, last.end) == (item.gpu, item.app, item.start):
            result[-1] = Segment(last.gpu, last.app, last.start, item.end, last.source)
        else:
            result.append(item)
    return tuple(result)


def score_shares(
    scores: Iterable[tuple[float, float]] | Mapping[float, float],
) -> tuple[tuple[float, float], ...]:
    """GPU seconds by placement score, rounded so that a long run takes no more room."""
    seconds: defaultdict[float, float] = defaultdict(float)
    for score, weight in scores.items() if isinstance(scores, Mapping) else scores:
        seconds[round(score, SCORE_DIGITS)] += weight
    return tuple(sorted(seconds.items()))


def usage_of(segments: Sequence[Segment]) -> GpuUsage:
    """GPUs held over time, in hours or in as many hours as it takes for a few hundred steps."""
    end = max((item.end for item in segments), default=0.0)
    step = HOUR
    while end / step > MAX_STEPS:
        step *= 2
    seconds = [0.0] * max(1, math.ceil(end / step))
    for item in segments:
        for index in range(int(item.start // step), min(len(seconds), math.ceil(item.end / step))):
            seconds[index] += min(item.end, (index + 1) * step) - max(item.start, index * step)
    return GpuUsage(step, tuple(value / step for value in seconds))


def _timing(path: Path) -> Timing | None:
    try:
        return decode(Timing, loads(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, RefusedError):
        return None


def _segment(line: str) -> Segment:
    gpu, app, start, end, source = line.split(",")
    return Segment(GpuId(int(gpu)), AppId(app), float(start), float(end), LeaseSource(source))


def _finite(value: Any) -> Any:
    """Plain data without NaN and infinities, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    return value
