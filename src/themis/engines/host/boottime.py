"""The clock of leases: seconds since this machine booted, time asleep included.

    end = now() + remaining

CLOCK_BOOTTIME and not CLOCK_MONOTONIC: a machine that was suspended, or a virtual one that was
paused, must wake up knowing that its leases are over. The arbiter's time went on meanwhile, and the
GPUs' next owner may be running already. Clocks that can be set are never read.
"""

import time

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def now() -> float:
    """Seconds since boot. Leases, heartbeats and everything compared with them use this one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Differs after every boot, so that process ids of an earlier one are not believed."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()
