"""Every combination of rows: the oracle that other solvers are tested against. Small cases only."""

from themis.core.auction.packing.exact import by_option, needs_of, pack
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.auction.solvers.registry import Determination, Find, Left


def start(prepared: PreparedProblem, _: Left | None = None) -> Find:
    """Begin; nothing is remembered, and neither budget nor clock count."""
    return lambda bidders, _: _find(prepared, bidders)


def _find(prepared: PreparedProblem, bidders: tuple[int, ...]) -> Determination:
    best: tuple[float, tuple[Option, ...]] = (0.0, ())
    tried = 0

    def extend(depth: int, chosen: tuple[Option, ...]) -> None:
        nonlocal best, tried
        tried += 1
        value = sum(option.gain for option in chosen)
        if value > best[0]:
            best = (value, chosen)
        if depth == len(bidders):
            return
        for option in prepared.options[bidders[depth]]:
            more = (*chosen, option)
            if prepared.within_caps(more) and pack(prepared.machines, needs_of(prepared, more)):
                extend(depth + 1, more)
        extend(depth + 1, chosen)

    extend(0, ())
    chosen = best[1]
    places = pack(prepared.machines, needs_of(prepared, chosen)) or []
    return Determination(chosen, best[0], True, tried, lambda: by_option(chosen, places))
