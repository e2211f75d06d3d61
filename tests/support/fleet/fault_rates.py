"""The faults of a simulated cluster, and how often they happen."""

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Weather:
    """Chances are per message or process, rates per second and machine (or service)."""

    loss: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0
    """The share of messages that take seconds."""
    very_late: float = 0.0
    """The share of messages that arrive when both sides have long gone on."""
    malice: float = 0.0
    """The chance that a node is cut off just after late orders arrived or as a service comes up,
    and that such a service is sent old reports."""
    partitions: float = 0.0
    pauses: float = 0.0
    node_crashes: float = 0.0
    reboots: float = 0.0
    wiped_disks: float = 0.0
    """The share of reboots after which a node's disk is new."""
    service_crashes: float = 0.0
    outage: float = 12.0
    """The longest that a crashed service is down."""
    zombies: float = 0.0
    """The share of crashes after which the old service goes on for a moment."""
    service_stalls: float = 0.0
    gpu_failures: float = 0.0
    torn: float = 0.0
    """The chance of a crash between two commands of a node, or around a commit of the service."""
    drift: float = 0.01
    """How much faster or slower clocks may go."""
    deaf: float = 0.3
    """The share of processes that ignore SIGTERM."""
    undead: float = 0.0
    """The share of processes that take seconds to die of SIGKILL."""

    @property
    def links_hold(self) -> bool:
        """Whether only the service fails, and messages arrive in time."""
        others = (
            self.loss,
            self.slow,
            self.very_late,
            self.malice,
            self.partitions,
            self.pauses,
            self.node_crashes,
            self.reboots,
            self.service_stalls,
            self.torn,
            self.zombies,
        )
        return not any(others)

    def cleared(self) -> "Weather":
        """The same cluster without faults."""
        return replace(Weather(), drift=self.drift, deaf=self.deaf)


CALM = Weather()
SERVICE_ONLY = Weather(service_crashes=0.08)
STORM = Weather(
    loss=0.05,
    doubled=0.05,
    slow=0.05,
    very_late=0.01,
    malice=0.1,
    partitions=0.02,
    pauses=0.01,
    node_crashes=0.015,
    reboots=0.005,
    wiped_disks=0.3,
    service_crashes=0.03,
    zombies=0.3,
    service_stalls=0.01,
    gpu_failures=0.005,
    torn=0.002,
    undead=0.05,
    deaf=0.3,
)


def weather_of(rng: random.Random) -> Weather:
    """Random faults: in one of eight cases only those of the service, else some kinds of all."""
    if rng.random() < 0.125:
        return SERVICE_ONLY
    kept = {
        name: getattr(STORM, name) * rng.choice((0.0, 1.0, 1.0, 2.0))
        for name in STORM.__dataclass_fields__
        if name not in {"drift", "outage"}
    }
    return Weather(drift=0.01, **{name: min(value, 0.5) for name, value in kept.items()})
