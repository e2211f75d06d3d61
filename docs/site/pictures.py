"""Draws the pictures of docs/concepts/: `python docs/site/pictures.py`, or with --check only looks.

The numbers in them are those of the pages, which are tests (tests/paper/), and of the default
settings.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from drawing import Picture
from themis.core.arbiter import Settings
from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem, solver
from themis.core.model import MACHINE, AppId, Chunk

CONCEPTS = Path(__file__).parents[1] / "concepts"


def rho() -> Picture:
    """The worked example of the page with 2 and with 8 GPUs, beside its share."""
    picture = Picture(
        *(690, 232, "rho is shared time divided by ideal time"),
        "Three bars over a common axis of time. With its share of 4 GPUs to itself the app "
        "takes 2500 s, its ideal time. With 2 GPUs it takes 5000 s: rho is 2. With 8 GPUs it "
        "takes 1250 s: rho is 0.5.",
    )
    left, scale = 170, 480 / 5000
    rows = (
        ("its share to itself", "4 GPUs", 2500, "c", "ideal time 2500 s"),
        ("in the shared cluster", "2 GPUs", 5000, "b", ""),
        ("in the shared cluster", "8 GPUs", 1250, "a", "1250 s"),
    )
    for number, (where, gpus, seconds, kind, words) in enumerate(rows):
        y = 24 + 56 * number
        picture.text(left - 12, y + 14, where, anchor="end")
        picture.text(left - 12, y + 30, gpus, "small", "end")
        picture.bar(left, y, seconds * scale, 34, kind, words)
    picture.line(left + 2500 * scale, 14, left + 2500 * scale, 190, "dash")
    picture.text(left + 1250 * scale, 101.5, "shared time 5000 s", "on", "middle")
    picture.text(left + 3750 * scale, 101.5, "rho = 5000 / 2500 = 2", "on strong", "middle")
    picture.text(left + 2500 * scale + 10, 157.5, "rho = 1250 / 2500 = 0.5", "strong")
    picture.line(left, 196, left + 5000 * scale, 196)
    for seconds in range(0, 5001, 1250):
        picture.line(left + seconds * scale, 196, left + seconds * scale, 201)
        picture.text(left + seconds * scale, 216, f"{seconds} s", "small", "middle")
    return picture


def auction() -> Picture:
    """A round from the offer to the leftovers."""
    picture = Picture(
        *(760, 250, "One round, from free GPUs to leases"),
        "GPUs that come free are offered. All apps are ranked by rho; the worst-off 1 - f of "
        "them are invited and bid tables of what they would gain. The solver picks the rows "
        "with the best product of 1/rho. Winners keep a fraction, what they pay is leftover, "
        "and is dealt with what nobody won in the order of the ranks, but never back to who "
        "paid it.",
    )
    steps = (
        ("offer", "GPUs whose leases", "end at this beat"),
        ("rank", "all apps by rho,", "worst off first"),
        ("bids", "the worst-off 1 - f", "answer with tables"),
        ("solve", "best product", "of 1 / rho"),
        ("pay", "winners keep", "the fraction c"),
    )
    for number, lines in enumerate(steps):
        x = 18 + 148 * number
        picture.box(x, 28, 130, 66, *lines)
        if number:
            picture.arrow(x - 18, 61, x - 1, 61)
    picture.box(462, 160, 130, 62, "leftovers", "paid, or won", "by nobody")
    picture.box(610, 160, 130, 62, "leases", "same length", "for everybody")
    picture.box(166, 160, 130, 62, "other apps", "not asked now;", "may get what is left")
    picture.arrow(675, 94, 675, 159)
    picture.line(628, 94, 628, 128)
    picture.line(628, 128, 527, 128)
    picture.arrow(527, 128, 527, 159)
    picture.arrow(231, 94, 231, 159)
    picture.arrow(461, 191, 297, 191)
    picture.text(379, 183, "in the order of the ranks,", "small", "middle")
    picture.text(379, 207, "never back to who paid", "small", "middle")
    picture.text(683, 132, "c of the row", "small")
    picture.text(577, 122, "1 - c of it", "small", "middle")
    return picture


def payments() -> Picture:
    """The two apps of the page: what the winner denies the other is what it pays."""
    kept = _kept_by_the_first()
    percent = f"{kept:.0%}"
    picture = Picture(
        *(700, 300, "What a winner pays is what it denies the others"),
        "Two apps want one machine of 4 GPUs. The first gains more and wins; without it the "
        f"second would have gone from rho 2 to 1. So the first keeps {percent}: under lottery "
        "the whole machine with that probability, under gpus 2 of 4 GPUs, under time all 4 "
        "for half of the lease.",
    )
    picture.text(20, 32, "with the first", "strong")
    picture.text(340, 32, "rho of the second: 2, log(1/2) = -0.69", "small", "end")
    picture.bar(20, 42, 320, 26, "a", "the first wins the machine")
    picture.text(20, 100, "without it", "strong")
    picture.text(340, 100, "rho of the second: 1, log(1/1) = 0", "small", "end")
    picture.bar(20, 110, 320, 26, "b", "the second would win it")
    picture.arrow(356, 90, 400, 90)
    picture.text(410, 84, f"c = exp(-0.69 - 0) = {kept:g}", "strong")
    picture.text(410, 104, f"the first keeps {percent} of what it won", "small")
    picture.line(20, 158, 680, 158, "dash")
    columns = (
        (20, "lottery", f"the whole row, with probability {kept:g}"),
        (250, "gpus", "whole GPUs: 2 of 4"),
        (480, "time", "all 4, for half of the lease"),
    )
    for x, name, words in columns:
        picture.text(x, 182, f"payment = {name}", "strong")
        picture.text(x, 199, words, "small")
    for gpu in range(4):
        y = 210 + 20 * gpu
        picture.bar(20, y, 90, 16, "a", "first" if gpu == 0 else "")
        picture.bar(120, y, 90, 16, "none", "or leftover" if gpu == 0 else "")
        kind, words = ("a", "first") if gpu < 2 else ("none", "leftover")
        picture.bar(250, y, 180, 16, kind, words if gpu in {0, 2} else "")
        picture.bar(480, y, 100, 16, "a", "first" if gpu == 0 else "")
        picture.bar(580, y, 100, 16, "none", "leftover" if gpu == 0 else "")
    return picture


def _kept_by_the_first() -> float:
    machine = (OfferedMachine(machine=0, rack=0, slots=(4,)),)
    row = (Candidate((Chunk(MACHINE, 4),), rho=1.0),)
    bidders = (Bidder(AppId("first"), 1.0, 8.0, row), Bidder(AppId("second"), 1.0, 2.0, row))
    return round(solver("default").solve(Problem(machine, bidders)).kept[AppId("first")].high, 6)


def leases() -> Picture:
    """Two beats: a round ahead of each, a renewal, a handover with its checkpoint."""
    settings = Settings()
    lead = f"{settings.round_lead:g} s"
    picture = Picture(
        *(760, 268, "Leases end together, and rounds open ahead of the beat"),
        f"Three GPUs over time with two beats, {settings.lease / 60:g} minutes apart. {lead} "
        "before each beat a round opens. On GPU 0 app A is renewed and runs on. On GPU 1 app "
        "A loses to app B: it writes its checkpoint inside its old lease, and B's process "
        "starts at the beat, when the slot is empty. GPU 2 comes free between beats; after "
        "the pooling window a round gives it to app B, until the next beat, where it is "
        "renewed.",
    )
    left, beat, later = 70, 330, 690
    opens = 96
    for number in range(3):
        picture.text(left - 12, 74 + 48 * number, f"GPU {number}", anchor="end")
    picture.bar(left, 54, later - left, 30, "a", "")
    picture.text(left + 100, 74, "A", "on", "middle")
    picture.text(beat + 132, 74, "A, renewed: same token, not touched", "on", "middle")
    picture.bar(left, 102, beat - left - 52, 30, "a", "A")
    picture.bar(beat - 52, 102, 46, 30, "none", "saves")
    picture.bar(beat + 4, 102, later - beat - 4, 30, "b", "B: a higher token")
    picture.bar(left, 150, 56, 30, "c", "C ends")
    picture.bar(left + 58, 150, 58, 30, "none", "pooling")
    picture.bar(left + 118, 150, later - left - 118, 30, "b", "")
    picture.text(beat - 48, 170, "B, to the beat", "on", "middle")
    picture.text(beat + 132, 170, "B, renewed", "on", "middle")
    for x in (beat, later):
        picture.line(x, 34, x, 196)
        picture.text(x, 28, "beat", "strong", "middle")
        picture.line(x - opens, 40, x - opens, 196, "dash")
        picture.text(x - opens, 28, "round opens", "small", "middle")
        picture.span(x - opens, x, 208, f"lead {lead}")
    picture.span(beat, later - opens, 208, "training")
    picture.span(beat, later, 240, f"lease {settings.lease / 60:g} min (not to scale)")
    return picture


PICTURES: Mapping[str, Callable[[], Picture]] = {
    "rho": rho,
    "auction": auction,
    "payments": payments,
    "leases": leases,
}


def main(words: list[str]) -> int:
    """Draw them all, or with --check say which are out of date."""
    stale = 0
    for name, draw in PICTURES.items():
        path, text = CONCEPTS / f"{name}.svg", draw().svg()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale = 1
        if words != ["--check"]:
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{'out of date' if words else 'drawn'}: {path.name}\n")
    return stale if words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
