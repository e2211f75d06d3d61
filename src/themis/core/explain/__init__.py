"""Why an app waits, in three lines: what, why with numbers, and what to do or when it changes.

    said = explain(Facts(app="sweep", reason=Reason.OUTBID, held=0, demand=4, now=120.0, ...))
    said.what, said.why, said.then

All that people read of it, wherever they read it, is made here from facts; where the facts come
from is the business of whoever has them.
"""

from themis.core.explain.facts import Bidding, Facts, Ranking
from themis.core.explain.lines import WORDS, Explanation, explain

__all__ = ["WORDS", "Bidding", "Explanation", "Facts", "Ranking", "explain"]
