"""The course of a demo: tenants submit one after the other, and the observer looks twice a second.

observer = DemoObserver(stage, cast)
observer.run(show)          # until every app has ended; `show` gets each observation
observer.looks              # the holder of each GPU and the state of every app, over time
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from themis.client import Answer
from themis.demo.tenants import Tenant
from themis.errors import UnavailableError

INTERVAL = 0.5
LIMIT = 900.0
"""Seconds after which the demo has failed."""

Sheet = Mapping[str, Any]


class ServiceCalls(Protocol):
    """The calls to the service, as `Client` has them."""

    def nodes(self) -> Answer:
        """Machines and the holders of their GPUs."""

    def status(self, app: str) -> Answer:
        """One app."""

    def results(self, app: str) -> Answer:
        """The results of its trials."""


class DemoStage(Protocol):
    """The cluster, as `DemoCluster`."""

    @property
    def admin(self) -> ServiceCalls:
        """The service."""

    def submit(self, owner: str, app: Answer, seed: int) -> str:
        """Submit an app for an owner; returns its name."""

    def check(self) -> None:
        """Raise if the service is gone."""


@dataclass(frozen=True, slots=True)
class ObservedGpu:
    """One GPU of the cluster; they sort by rack and machine."""

    rack: str
    node: str
    index: int


@dataclass(frozen=True, slots=True)
class Observation:
    """The cluster at one moment, in seconds since the beginning."""

    at: float
    holders: Mapping[ObservedGpu, str]
    """The app of each GPU; empty for a free one."""
    sheets: Mapping[str, Sheet]
    """The service's status of each submitted app."""


@dataclass(slots=True)
class DemoObserver:
    """Submits apps when their time comes, and records observations."""

    stage: DemoStage
    cast: Sequence[Tenant]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    looks: list[Observation] = field(default_factory=list)
    apps: dict[str, Tenant] = field(default_factory=dict)
    """Those that were submitted, by name."""

    def run(
        self, show: Callable[[Observation], None] = lambda _: None, limit: float = LIMIT
    ) -> None:
        """Run until every app has ended.

        Raises:
            UnavailableError: Apps still run after `limit` seconds.
            ThemisError: The service is gone.
        """
        began = self.clock()
        while not self.over:
            at = self.clock() - began
            if at > limit:
                raise UnavailableError(f"the demo did not end within {limit:.0f} s")
            self._submit(at)
            self.stage.check()
            self.looks.append(self._look(at))
            show(self.looks[-1])
            self.sleep(max(0.0, began + at + INTERVAL - self.clock()))

    @property
    def over(self) -> bool:
        """Whether all apps were submitted and have ended."""
        if len(self.apps) < len(self.cast) or not self.looks:
            return False
        sheets = self.looks[-1].sheets
        return all("outcome" in sheets.get(app, {}) for app in self.apps)

    def results(self) -> dict[str, Answer]:
        """The results of each app's trials."""
        return {app: self.stage.admin.results(app) for app in self.apps}

    def _submit(self, at: float) -> None:
        for tenant in self.cast[len(self.apps) :]:
            if tenant.after > at:
                return
            app = self.stage.submit(tenant.owner, dict(tenant.app), tenant.seed)
            self.apps[app] = tenant

    def _look(self, at: float) -> Observation:
        last = self.looks[-1].sheets if self.looks else {}
        admin = self.stage.admin
        sheets: dict[str, Sheet] = {}
        for app in self.apps:
            before = last.get(app, {})
            sheets[app] = before if "outcome" in before else admin.status(app)
        return Observation(at, holders(admin.nodes()), sheets)


def holders(nodes: Answer) -> dict[ObservedGpu, str]:
    """The app that holds each GPU, from the service's list of machines."""
    found = {
        ObservedGpu(str(node["rack"]), str(node["node"]), int(gpu["index"])): str(
            gpu.get("app") or ""
        )
        for node in nodes["nodes"]
        for gpu in node["gpus"]
    }
    return dict(sorted(found.items(), key=lambda item: (item[0].rack, item[0].node, item[0].index)))
