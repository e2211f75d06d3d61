"""Who is worst off: the order of the filter, and how many are invited."""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence

from themis.policies.base import AppView, View


def worst_off(
    view: View, apps: Iterable[AppView], rho: Callable[[AppView], float]
) -> list[AppView]:
    """Apps in falling order of rho; ties: the longest waiting, then a seeded hash."""

    def key(app: AppView) -> tuple[float, float, bytes]:
        return (-rho(app), app.waiting_since, tie(view, app))

    return sorted(apps, key=key)


def tie(view: View, app: AppView) -> bytes:
    """What decides between equals: a hash of seed, round and name, never their order."""
    name = f"{view.seed}/{view.round}/{app.app}"
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def invited_count(f: float, bidders: int) -> int:
    """k: how many of so many bidders see the offer, for the user's f."""
    return max(1, math.ceil((1.0 - f) * bidders - 1e-9))


def invite(view: View, ranked: Sequence[AppView], f: float, at_least: int) -> list[AppView]:
    """The worst-off apps; with owners as bidders, all apps of the worst-off owners."""
    if not view.by_owner:
        return list(ranked[: max(at_least, invited_count(f, len(view.apps)))])
    owners = {app.owner for app in view.apps}
    count = max(at_least, invited_count(f, len(owners)))
    chosen = list(dict.fromkeys(app.owner for app in ranked))[:count]
    return [app for app in ranked if app.owner in chosen]
