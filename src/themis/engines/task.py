"""One start of one job, from the node that asks for it to the supervisor that runs it.

    task = Task("job-1", "ann", 7, (0, 1), ("python", "train.py"), end=now() + 600)
    started = task.replace(run=uuid4().hex, ...)    # by the engine: all that a supervisor needs
    started.write(folder / "task.json")
    read_task(folder / "task.json")                 # by the supervisor, and by a later engine

Plain classes, because every start of a job waits for this import: `dataclasses` and `typing` would
add half as much again to what a supervisor takes to start.
"""

import json
import os
from collections.abc import Iterable, Mapping

JSONL, TENSORBOARD, REGEX = "jsonl", "tensorboard", "regex"
FILE = "task.json"


class SourceSpec:
    """Where to read a job's samples, and the value that they must have."""

    def __init__(
        self, name: str = "loss", kind: str = JSONL, path: str = "", pattern: str = ""
    ) -> None:
        self.name = name
        self.kind = kind
        self.path = path
        """Of the folder with event files, below the checkpoint folder."""
        self.pattern = pattern
        """Over lines of the log: a built-in one's name, or RE2 with named groups."""


class Task:
    """One start of one job under one set of leases."""

    def __init__(  # noqa: PLR0915 - a line for each field
        self,
        job: str,
        owner: str,
        token: int,
        gpus: Iterable[int],
        argv: Iterable[str],
        end: float,
        grace: float = 30.0,
        *,
        env: Mapping[str, str] | None = None,
        workdir: str = "",
        checkpoint_dir: str = "",
        place: str = "",
        max_iterations: int | None = None,
        rank: int = 0,
        world: int = 1,
        rendezvous: str = "",
        tokens: Iterable[int] = (),
        source: SourceSpec | Mapping[str, str] | None = None,
        tag: str = "",
        number: int = 0,
        run: str = "",
        account: Iterable[int] | None = None,
        metrics: str = "",
        since: float = 0.0,
        fence: str = "",
        control: str = "",
        group: str = "",
        log_limit: int = 32 << 20,
        metrics_limit: int = 16 << 20,
        patience: float = 5.0,
        gpu_variables: Iterable[str] = (),
        look_every: float = 0.25,
        beat_every: float = 0.0,
        boot: str = "",
        lease_wait: float = 0.0,
    ) -> None:
        self.job = job
        self.owner = owner
        self.token = token
        """The highest of its leases' tokens."""
        self.gpus = tuple(gpus)
        self.argv = tuple(argv)
        self.end = end
        """When its first lease ends, on the clock of leases (`host.boottime.now`)."""
        self.grace = grace
        self.env = dict(env or {})
        self.workdir = workdir
        """Empty: its checkpoint folder."""
        self.checkpoint_dir = checkpoint_dir
        """Empty: one of the engine's own, on the storage that it was opened with."""
        self.place = place
        """The way to its checkpoint folder below its owner's; empty: the job's name."""
        self.max_iterations = max_iterations
        self.rank = rank
        """Its place among the parts of its job."""
        self.world = world
        self.rendezvous = rendezvous
        """host:port where the parts of a job on several machines meet."""
        self.tokens = tuple(tokens)
        """Of the lease of each of `gpus`; empty: `token` for all of them."""
        given = source or SourceSpec()
        self.source = given if isinstance(given, SourceSpec) else SourceSpec(**given)
        """Where its samples are read from."""
        self.tag = tag
        """What its caller calls this start, if its log is to be found by that."""
        self.number = number
        """Of this start, the same on all its machines and larger than before; 0: it has none."""

        # From here on the engine's part; callers leave it out.
        self.run = run
        """The name of this start: of its folders, and in the environment of its processes."""
        self.account = None if account is None else tuple(account)
        """User, group, further groups; None: the user of the engine."""
        self.metrics = metrics
        """The file that it reports to."""
        self.since = since
        """When it began, on the clock of its checkpoints' storage; for event files only."""
        self.fence = fence
        """The folder with the highest token of each GPU."""
        self.control = control
        """How its processes are held,"""
        self.group = group
        """and in which control group, where that is one."""
        self.log_limit = log_limit
        self.metrics_limit = metrics_limit
        self.patience = patience
        """Seconds from SIGKILL until a process counts as unkillable."""
        self.gpu_variables = tuple(gpu_variables)
        """Variables that tell which GPUs the engine's own scheduler chose, the first one set
        counts; empty: those are the ones that its leases name."""
        self.look_every = look_every
        """Seconds between looks at its lease."""
        self.beat_every = beat_every
        """Seconds between signs of life in its status; 0: none are wanted."""
        self.boot = boot
        """Which machine's clock `end` is on, since which of its boots; empty: the reader's own."""
        self.lease_wait = lease_wait
        """Seconds that its supervisor waits for a lease on its own machine's clock."""

    @property
    def user(self) -> tuple[int, int] | None:
        """User and group that it runs as; None for the engine's own."""
        return (self.account[0], self.account[1]) if self.account else None

    def replace(self, **changes: object) -> "Task":
        """The same task with other values of some fields."""
        return Task(**(vars(self) | changes))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write it into a new file, readable by this user alone."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(self, file, default=vars)


def read_task(path: str | os.PathLike[str]) -> Task:
    """What `write` has written.

    Raises:
        OSError: There is none.
        ValueError: It is damaged,
        TypeError: or of something else.
    """
    with open(path, encoding="utf-8") as file:
        return Task(**json.load(file))
