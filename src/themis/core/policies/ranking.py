"""The ranking of apps, the worst off first, and how many are invited."""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from themis.core.policies.base import AppView, View

HYSTERESIS = 0.05
"""The bonus of running apps, so that apps do not swap GPUs for tiny differences."""

LATE = 1.0
"""Up to this rho an app is in time, and waiting costs it nothing."""


def lead(app: AppView) -> float:
    """A factor on the ranking key, the least first: a running app is a little ahead."""
    return 1.0 - HYSTERESIS if app.held else 1.0


def worst_off(
    view: View, apps: Iterable[AppView], rho: Callable[[AppView], float]
) -> list[AppView]:
    """Apps in falling order of rho; ties: the longest waiting, then a seeded hash."""
    return in_order(view, lambda app: (-rho(app), app.waiting_since), apps)


def in_order(
    view: View,
    key: Callable[[AppView], tuple[float, ...]],
    apps: Iterable[AppView] | None = None,
) -> list[AppView]:
    """Apps (all that could take some, unless given) by rising key; a seeded hash breaks ties."""
    if apps is None:
        apps = [app for app in view.apps if app.room > 0]
    keyed = [(key(app), app) for app in apps]
    keyed.sort(key=itemgetter(0))
    if any(one[0] == other[0] for one, other in itertools.pairwise(keyed)):
        # Hashes are needed only where there are equals: seldom.
        keyed.sort(key=lambda item: (item[0], tie(view, item[1])))
    return [app for _, app in keyed]


def tie(view: View, app: AppView) -> bytes:
    """What decides between equals: a hash of seed, round and name, never their order."""
    name = f"{view.seed}/{view.round}/{app.app}"
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def invited_count(f: float, bidders: int) -> int:
    """k: how many of the bidders see the offer, for the user's f."""
    return max(1, math.ceil((1.0 - f) * bidders - 1e-9))


def invite(view: View, ranked: Sequence[AppView], f: float, at_least: int) -> list[AppView]:
    """The worst-off apps; with owners as bidders, all apps of the worst-off owners."""
    if not view.by_owner:
        return list(ranked[: max(at_least, invited_count(f, len(view.apps)))])
    owners = {app.owner for app in view.apps}
    count = max(at_least, invited_count(f, len(owners)))
    chosen = list(dict.fromkeys(app.owner for app in ranked))[:count]
    return [app for app in ranked if app.owner in chosen]
