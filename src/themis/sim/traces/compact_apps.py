"""Apps of one phase, as short as they can be written: what each line of a workload file holds.

{"app":"line-2","owner":"ann","arrival":0.0,"model":"GNMT","gpus":[4,4],"gpu_seconds":[7200,90]}

Each job may use up to as many GPUs as it had, and as few as one. An iteration takes a second on
one GPU, so the iterations are the GPU-seconds.
"""

import hashlib
import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted

from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.model.zoo import CATEGORY_SHARES, models_of_category, slowdown_of
from themis.errors import ConfigError, InvariantError
from themis.sim.workloads import SimApp


@dataclass(frozen=True, slots=True)
class CompactApp:
    """One app: its jobs by the GPUs they may use and the GPU-seconds they need."""

    app: AppId
    owner: OwnerId
    arrival: float
    model: str
    gpus: tuple[int, ...]
    gpu_seconds: tuple[int, ...]

    def to_json(self) -> str:
        """What `dumps` gives, in a third of the time: a long trace has a million apps.

        Raises:
            InvariantError: The arrival is not a finite number.
        """
        if not math.isfinite(self.arrival):
            raise InvariantError(f"{self.app} cannot be written down: it arrives at {self.arrival}")
        return (
            f'{{"app":{quoted(self.app)},"owner":{quoted(self.owner)},"arrival":{self.arrival!r},'
            f'"model":{quoted(self.model)},"gpus":[{",".join(map(str, self.gpus))}],'
            f'"gpu_seconds":[{",".join(map(str, self.gpu_seconds))}]}}'
        )


def app_from(line: CompactApp, seed: int, hardware: str) -> SimApp:
    """The app for the simulator; the seed draws which of its jobs are good.

    Raises:
        ConfigError: Something in it is out of range.
    """
    if not line.gpus or len(line.gpus) != len(line.gpu_seconds):
        raise ConfigError(
            f"gpu_seconds of {line.app}", len(line.gpu_seconds), "one for each entry of gpus"
        )
    jobs = tuple(_job(i, gpus, line.model, hardware) for i, gpus in enumerate(line.gpus))
    phase = Phase(len(jobs), max(line.gpu_seconds), line.gpu_seconds)
    qualities = tuple(draw(seed, "quality", line.app, index) for index in range(len(jobs)))
    spec = AppSpec(line.app, line.owner, jobs, (phase,))
    return SimApp(spec, line.arrival, line.model, qualities)


# The iterations are in the app's phase, so jobs of many apps are equal.
@lru_cache(maxsize=65_536)
def _job(index: int, gpus: int, model: str, hardware: str) -> JobSpec:
    return JobSpec(JobId(f"j{index:02d}"), 1.0, gpus, slowdown=slowdown_of(model, hardware))


def draw_model(seed: int, app: str) -> str:
    """A model by the paper's mix of categories, equal inside a category."""
    # The shares may sum to a hair below one.
    return _MODELS[min(bisect_right(_ENDS, _share(f"{seed}/model/{app}")), len(_MODELS) - 1)]


def _mix() -> tuple[list[str], list[float]]:
    models, ends, total = [], [], 0.0
    for category, share in CATEGORY_SHARES.items():
        names = models_of_category(category)
        for name in names:
            total += share / len(names)
            models.append(name)
            ends.append(total)
    return models, ends


_MODELS, _ENDS = _mix()


def draw(*parts: object) -> float:
    """A number in [0, 1) that depends on its name alone: windows and limits change no other app.

    A hash, because seeding a generator for each of a million apps would take longer than all else.
    """
    return _share("/".join(map(str, parts)))


def _share(name: str) -> float:
    return int.from_bytes(digest(name)[:6]) / 2**48


def digest(text: str) -> bytes:
    """Eight bytes that stand for a text, the same everywhere."""
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest()
