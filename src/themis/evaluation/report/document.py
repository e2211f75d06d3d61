"""The report as blocks: headings, paragraphs, lists, tables and figures, whatever it is written as.

blocks = document(chapters, damaged, missing)        # then `html.page` or `markdown.page`
claim_table(chapter.claims)                          # the same table for the console
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from themis.evaluation.claims import CheckedClaim, Verdict
from themis.evaluation.experiment import Experiment
from themis.evaluation.report.chapter import QUICK, Chapter, ChapterFigure

SIGNS = {
    Verdict.HOLDS: "✓",
    Verdict.PARTLY: "◐",
    Verdict.FAILS: "✗",
    Verdict.UNDECIDED: "?",
    Verdict.BY_CONSTRUCTION: "=",
}
_PLURALS = {Verdict.HOLDS: "hold", Verdict.PARTLY: "hold partly", Verdict.FAILS: "do not hold"}
_FEW_COMMITS = 3
"""More commits than this are not listed in the first lines."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a chapter, which links lead to, or of a part of it."""

    text: str
    chapter: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Text in which `code` is between backquotes, after a few words in bold."""

    text: str
    bold: str = ""
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a chapter."""

    chapter: str
    after: str = ""
    """Text behind it."""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list; an item is text or a link."""

    items: tuple[str | Link, ...]


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table whose cells are text or links."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Link, ...], ...]
    title: str = ""
    file: str = ""
    """The file with its numbers, if it has one."""


@dataclass(frozen=True, slots=True)
class FigureBlock:
    """A figure of a chapter."""

    chapter: str
    figure: ChapterFigure


Block = Heading | Paragraph | Bullets | TextTable | FigureBlock


def claim_table(claims: Sequence[CheckedClaim], *, details: bool = True) -> TextTable:
    """Claims, a row each: the paper's number, ours, the verdict and supporting numbers."""
    columns = ("claim", "paper", "themis-paper", "themis", "verdict")
    rows = []
    for claim in claims:
        literal = claim.themis_paper.text if claim.by_policy else "same"
        row = (
            claim.statement,
            claim.paper.text,
            literal,
            claim.themis.text,
            verdict_text(claim.verdict),
        )
        rows.append((*row, claim.details_text) if details else row)
    return TextTable((*columns, "beside it") if details else columns, tuple(rows))


def verdict_text(verdict: Verdict) -> str:
    """A verdict with its sign."""
    return f"{SIGNS[verdict]} {verdict}"


def document(
    chapters: Sequence[Chapter], damaged: Sequence[str], missing: Sequence[Experiment]
) -> list[Block]:
    """The whole report.

    Args:
        chapters: Its experiments.
        damaged: Experiments whose file could not be read.
        missing: Experiments that were not run.
    """
    blocks: list[Block] = [
        *map(Paragraph, leads(chapters)),
        Paragraph(_overview(chapters), muted=True),
        *(Paragraph(f"{name} is damaged: run it again.", muted=True) for name in damaged),
        _contents(chapters, missing),
    ]
    if any(chapter.claims for chapter in chapters):
        blocks += [Heading("All claims"), _all_claims(chapters)]
    for chapter in chapters:
        blocks += _chapter(chapter)
    return blocks


def _chapter(chapter: Chapter) -> list[Block]:
    return [
        Heading(f"{chapter.id}: {chapter.title}", chapter.id),
        Paragraph(f"The paper: {chapter.paper} Here: {chapter.extent}.", muted=True),
        *([claim_table(chapter.claims)] if chapter.claims else []),
        *(Paragraph(text, bold=f"{heading}.") for heading, text in chapter.explanations),
        *(Paragraph(note, muted=True) for note in chapter.notes),
        *(FigureBlock(chapter.id, figure) for figure in chapter.figures),
        *(TextTable(one.columns, one.rows, one.title, one.file) for one in chapter.tables),
        Paragraph(chapter.made, muted=True),
    ]


def _contents(chapters: Sequence[Chapter], missing: Sequence[Experiment]) -> Bullets:
    done = (Link(one.id, f": {one.title} ({one.extent})") for one in chapters)
    others = (f"{item.id}: {item.title} (not run)" for item in missing)
    return Bullets((*done, *others))


def _all_claims(chapters: Sequence[Chapter]) -> TextTable:
    """Every claim in a row, without supporting numbers."""
    rows: list[tuple[str | Link, ...]] = []
    for chapter in chapters:
        mark = f" ({chapter.mark})" if chapter.mark else ""
        table = claim_table(chapter.claims, details=False)
        rows += [(Link(chapter.id, mark), *row) for row in table.rows]
    return TextTable(("experiment", *claim_table(()).columns[:-1]), tuple(rows))


def leads(chapters: Sequence[Chapter]) -> list[str]:
    """The first lines; of two sentences on the same subject the one of the later chapter."""
    kept: dict[str, str] = {}
    for chapter in reversed(chapters):
        for text in chapter.lead:
            marked = f"{text} This is of {QUICK}." if chapter.quick else text
            kept.setdefault(text.partition(":")[0], marked)
    return list(kept.values())


def counted_claims(chapters: Sequence[Chapter]) -> str:
    """The number of claims by verdict; claims of quick looks are no evidence."""
    whole = [chapter for chapter in chapters if not chapter.quick]
    if not whole:
        return _counted(chapters)
    rest = sum(len(chapter.claims) for chapter in chapters if chapter.quick)
    return _counted(whole) + (f" (and {rest} of quick looks, not evidence)" if rest else "")


def _counted(chapters: Sequence[Chapter]) -> str:
    claims = [claim for chapter in chapters for claim in chapter.claims]
    paper = _verdicts("claim", "of the paper", [one for one in claims if not one.own_bar])
    ours = _verdicts("bar", "of our own", [one for one in claims if one.own_bar])
    return "; ".join(filter(None, (paper, ours))) or "no claims"


def _verdicts(what: str, whose: str, claims: Sequence[CheckedClaim]) -> str:
    if not claims:
        return ""
    counts = Counter(claim.verdict for claim in claims)
    each = ", ".join(f"{counts[one]} {_PLURALS.get(one, one)}" for one in Verdict if counts[one])
    return f"{len(claims)} {what}{'s' * (len(claims) != 1)} {whose}: {each}"


def _overview(chapters: Sequence[Chapter]) -> str:
    versions = ", ".join(sorted({chapter.themis for chapter in chapters}))
    commits = sorted({one for chapter in chapters for one in chapter.origin.commit.split("; ")})
    made = (
        f"commit {', '.join(commits)}"
        if len(commits) <= _FEW_COMMITS
        else f"{len(commits)} commits, named with each experiment; --verify makes some runs again"
    )
    return (
        f"{counted_claims(chapters)}. Themis {versions}, {made}. Verdicts are about `themis`, the "
        "default policy; `themis-paper` is the mechanism as printed. Numbers in brackets are 95 % "
        "intervals over seeds. rho is an app's time on the shared cluster over its time on a share "
        "of its own: 1 is its fair share, and up to 1.05 counts as fair. rho_ref takes the "
        "contention of one run with equal shares, the same for all policies. W1 and W2 are "
        "generated apps of two weeks on 64 GPUs, 2x the same on half of the machines, Philly a "
        "real trace; no policy can get below the floor."
    )
