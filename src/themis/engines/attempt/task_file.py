"""The file that tells a supervisor what to run. Written by engines, mode 0600."""

import json
import os


class TaskFile:
    """One start of one job, as its engine wrote it."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            body = json.load(file)
        self.folder = os.path.dirname(os.path.abspath(path))
        self.job: str = body["job"]
        self.token: int = body["token"]
        self.run: str = body["run"]
        self.argv: list[str] = body["argv"]
        self.env: dict[str, str] = body["env"]
        self.workdir: str = body["workdir"]
        self.checkpoint: str = body["checkpoint"]
        self.account: list[int] | None = body["account"]
        """User, group, further groups."""
        self.gpus: list[int] = body["gpus"] or []
        """The GPUs that its leases name."""
        self.found_in: list[str] = body.get("found_in", [])
        """Variables that tell which GPUs the engine's own scheduler chose, the first one set
        counts; empty: those are the ones that its leases name."""
        self.look: float = body.get("look", 0.25)
        """Seconds between looks at its lease."""
        self.beat: float = body.get("beat", 0.0)
        """Seconds between signs of life in its status; 0: none are wanted."""
        self.hello: float = body.get("hello", 0.0)
        """Seconds that it waits for a lease on its own machine's clock."""
        self.tokens: list[int] = body.get("tokens", [])
        """Of each GPU's lease; empty: `token` for all."""
        self.fence: str = body["fence"]
        self.control: str = body["control"]
        self.group: str = body["group"]
        self.log_limit: int = body["log_limit"]
        self.metrics: str = body["metrics"]
        self.metrics_limit: int = body["metrics_limit"]
        self.patience: float = body["patience"]
        self.tag: str = body.get("tag", "")
        self.rank: int = body.get("rank", 0)
        self.source: dict[str, str] = body.get("source", {})
        """Where what it reports is read from."""

    def path(self, name: str) -> str:
        """A file beside the task."""
        return os.path.join(self.folder, name)
