"""One page that tells everything: no other file is needed to read it, and none is asked for.

page(chapters, figures)       # HTML; figures are SVG texts by (experiment, name)

Every text is escaped, also those from files and names that users chose.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from themis.evaluation.experiment import Claim, Experiment, Told, Verdict
from themis.evaluation.report.chapter import (
    NO_DATA,
    NO_SEED,
    QUICK,
    WHOLE,
    Chapter,
    ChapterTable,
    Picture,
)

Svgs = Mapping[tuple[str, str], str]

_TYPED = re.compile(r"`([^`]+)`")
_FEW = 3
"""More commits than this are not named in the first lines."""

_SIGNS = {
    Verdict.HOLDS: "✓",
    Verdict.PARTLY: "◐",
    Verdict.FAILS: "✗",
    Verdict.OPEN: "?",
    Verdict.GIVEN: "=",
}
_SAID = {
    Verdict.HOLDS: "hold",
    Verdict.PARTLY: "hold partly",
    Verdict.FAILS: "do not hold",
    Verdict.OPEN: "undecided",
    Verdict.GIVEN: "by construction",
}
"""Of several claims."""
_CLASSES = {
    Verdict.HOLDS: "good",
    Verdict.PARTLY: "half",
    Verdict.FAILS: "bad",
    Verdict.OPEN: "open",
    Verdict.GIVEN: "open",
}

# The colours are those of the figures; every verdict has a sign and a word besides.
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; }
h2 { font-size: 1.3rem; margin-top: 2.8rem; border-top: 2px solid #ddd; padding-top: 1rem; }
p.lead, figcaption, caption, .note { color: #555; }
table { border-collapse: collapse; margin: 1rem 0; }
.wide { overflow-x: auto; background-attachment: local, scroll;
        background-image: linear-gradient(270deg, #fff 80%, transparent),
                          linear-gradient(90deg, transparent, #bbb);
        background-position: right; background-repeat: no-repeat;
        background-size: 3rem 100%, .7rem 100%; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .3rem .7rem; text-align: left; vertical-align: top;
         border-bottom: 1px solid #ddd; }
thead th { border-bottom: 2px solid #888; }
td.both { text-align: center; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { white-space: nowrap; font-weight: 600; }
.good { color: #00674a; } .half { color: #8a5a00; } .bad { color: #b04000; } .open { color: #555; }
figure { margin: 1.2rem 0; } figure svg { max-width: 100%; height: auto; }
code { background: #f3f3f3; padding: 0 .2rem; }
@page { size: A4 landscape; margin: 12mm; }
@media print { body { max-width: none; margin: 0; font-size: 9pt; }
               figure, tr { break-inside: avoid; } h2, caption { break-after: avoid; }
               .wide { overflow: visible; background: none; } table { font-size: 7pt; }
               th, td { padding: .1rem .25rem; } td.number { white-space: normal; } }
"""


def page(
    chapters: Sequence[Chapter],
    svgs: Svgs,
    damaged: Sequence[str] = (),
    absent: Sequence[Experiment] = (),
) -> str:
    """The report as HTML.

    Args:
        chapters: What there is to tell.
        svgs: Its figures.
        damaged: Experiments whose file could not be read.
        absent: Experiments that were not run.
    """
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Themis: the evaluation</title><style>{_STYLE}</style></head><body>",
        "<h1>Themis: the evaluation</h1>",
        *(f"<p>{_prose(text)}</p>" for text in leads(chapters)),
        f'<p class="lead">{_lead(chapters)}</p>',
        *(f'<p class="note">{escape(name)} is damaged: run it again.</p>' for name in damaged),
        _contents(chapters, absent),
        _claims([(chapter, claim) for chapter in chapters for claim in chapter.claims]),
        *(_section(chapter, svgs) for chapter in chapters),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _prose(text: str) -> str:
    """A sentence in which `what is typed` stands out."""
    return _TYPED.sub(r"<code>\1</code>", escape(text))


def leads(chapters: Sequence[Chapter]) -> list[str]:
    """The first lines. Where two chapters say the same of different runs, the later one does."""
    kept: dict[str, str] = {}
    for chapter in reversed(chapters):
        for text in chapter.lead:
            told = f"{text} This is of {QUICK}." if chapter.quick else text
            kept.setdefault(text.partition(":")[0], told)
    return list(kept.values())


def counted_claims(chapters: Sequence[Chapter]) -> str:
    """How many claims there are, and what became of them; those of quick looks are no evidence."""
    whole = [chapter for chapter in chapters if not chapter.quick]
    if not whole:
        return _counted(chapters)
    rest = sum(len(chapter.claims) for chapter in chapters if chapter.quick)
    return _counted(whole) + (f" (and {rest} of quick looks, not evidence)" if rest else "")


def _counted(chapters: Sequence[Chapter]) -> str:
    claims = [claim for chapter in chapters for claim in chapter.claims]
    of_paper = _verdicts("claim", "of the paper", [one for one in claims if not one.ours])
    ours = _verdicts("bar", "of our own", [one for one in claims if one.ours])
    return "; ".join(filter(None, (of_paper, ours))) or "no claims"


def _verdicts(what: str, whose: str, claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    counts = Counter(claim.verdict for claim in claims)
    told = ", ".join(f"{counts[one]} {_SAID[one]}" for one in Verdict if counts[one])
    return f"{len(claims)} {what}{'s' * (len(claims) != 1)} {whose}: {told}"


def _lead(chapters: Sequence[Chapter]) -> str:
    versions = ", ".join(sorted({chapter.themis for chapter in chapters}))
    commits = sorted({one for chapter in chapters for one in chapter.origin.commit.split("; ")})
    made = (
        f"commit {', '.join(commits)}"
        if len(commits) <= _FEW
        else f"{len(commits)} commits, named with each experiment; --verify makes some runs again"
    )
    return (
        f"{escape(counted_claims(chapters))}. Themis {escape(versions)}, {escape(made)}. Verdicts "
        "are about <code>themis</code>, the default policy; <code>themis-paper</code> is the "
        "mechanism as printed. Numbers in brackets are 95 % intervals over seeds. rho is an app's "
        "time on the shared cluster over that on a share of its own: 1 is what sharing owes it, up "
        "to 1.05 counts as fair. rho_ref takes the contention of one run with equal shares, the "
        "same for all policies. W1 and W2 are generated apps of two weeks on 64 GPUs, 2x the same "
        "on half of the machines, Philly a real trace; below the floor no policy can get."
    )


def _contents(chapters: Sequence[Chapter], absent: Sequence[Experiment]) -> str:
    links = (
        f'<li>{_link(chapter)}: {escape(chapter.title)} <span class="note">'
        f"({escape(extent(chapter))})</span></li>"
        for chapter in chapters
    )
    others = (
        f'<li>{escape(item.id)}: {escape(item.title)} <span class="note">(not run)</span></li>'
        for item in absent
    )
    return f"<ul>{''.join((*links, *others))}</ul>"


def _claims(claims: Iterable[tuple[Chapter, Claim]]) -> str:
    rows = "".join(
        f"<tr><td>{_link(chapter)}{_mark(chapter)}</td><td>{escape(claim.statement)}</td>"
        f"{_columns(claim)}</tr>"
        for chapter, claim in claims
    )
    head = _head("", "claim", "paper", "themis-paper", "themis", "verdict")
    return _wide(f"<caption>All claims</caption>{head}<tbody>{rows}</tbody>")


def _link(chapter: Chapter) -> str:
    return f'<a href="#{escape(chapter.id)}">{escape(chapter.id)}</a>'


def _mark(chapter: Chapter) -> str:
    return f' <span class="note">({escape(chapter.mark)})</span>' if chapter.mark else ""


def _wide(table: str) -> str:
    """A table that scrolls by itself where the page is too narrow for it, with keys as well."""
    return f'<div class="wide" tabindex="0"><table>{table}</table></div>'


def _columns(claim: Claim) -> str:
    if claim.by_policy:
        ours = f"<td>{_told(claim.themis_paper)}</td><td>{_told(claim.themis)}</td>"
    else:
        ours = f'<td colspan="2" class="both">{_told(claim.themis)}</td>'
    verdict = (
        f'<td class="verdict {_CLASSES[claim.verdict]}">'
        f"{_SIGNS[claim.verdict]} {escape(claim.verdict)}</td>"
    )
    return f"<td>{_told(claim.paper)}</td>{ours}{verdict}"


def _told(item: Told) -> str:
    return escape(item.text)


def _section(chapter: Chapter, svgs: Svgs) -> str:
    rows = "".join(
        f"<tr><td>{escape(claim.statement)}</td>{_columns(claim)}"
        f"<td>{_prose(claim.explanation)}</td></tr>"
        for claim in chapter.claims
    )
    head = _head("claim", "paper", "themis-paper", "themis", "verdict", "why")
    parts = [
        f'<section id="{escape(chapter.id)}">',
        f"<h2>{escape(chapter.id)}: {escape(chapter.title)}</h2>",
        f'<p class="lead">The paper: {escape(chapter.paper)} Here: {escape(extent(chapter))}.</p>',
        _wide(f"{head}<tbody>{rows}</tbody>"),
        *(f'<p class="note">{_prose(note)}</p>' for note in chapter.notes),
        *(_figure(chapter, picture, svgs) for picture in chapter.pictures),
        *(_table(sheet) for sheet in chapter.sheets),
        f'<p class="note">{escape(origin(chapter))}</p>',
        f'<p class="note">Files in {escape(chapter.id)}/: {escape(", ".join(chapter.files))}.</p>',
        "</section>",
    ]
    return "\n".join(parts)


def extent(chapter: Chapter) -> str:
    """How much of an experiment a chapter rests on; seeds that are missing are named."""
    given = chapter.origin
    if not given.partial:
        return f"{chapter.scope}; seeds {given.seeds_told}" if given.of_seeds else chapter.scope
    return f"{share(chapter)}, on seeds {given.seeds_told} ({_complete(given.by_policy)})"


def share(chapter: Chapter) -> str:
    """What was asked for, and of a part of it how many runs there are."""
    given = chapter.origin
    if not given.partial:
        return chapter.scope
    scope = chapter.scope.removesuffix(NO_DATA)
    part = scope.replace(WHOLE, f"a part of what {WHOLE.removeprefix('as ')}", 1)
    if part == scope:
        part = f"{part}, not finished"
    return f"{part}: {given.runs} of {given.wanted} runs{chapter.scope[len(scope) :]}"


def _complete(by_policy: Sequence[tuple[str, str]]) -> str:
    """Of which seeds policies have all their runs."""
    if len(by_policy) == 1:
        ((_, seeds),) = by_policy
        return "no seed has all of its runs" if seeds == NO_SEED else f"all runs of seeds {seeds}"
    each = (
        f"{names} on {'no seed' if seeds == NO_SEED else f'seeds {seeds}'}"
        for names, seeds in by_policy
    )
    return f"all runs of {'; '.join(each)}"


def origin(chapter: Chapter) -> str:
    """Where a chapter comes from, in a sentence."""
    given = chapter.origin
    count = f"{given.runs} of {given.wanted}" if given.partial else f"{given.runs}"
    runs = f", {count} runs, seeds {given.seeds_told}" if given.runs else ", no runs"
    command = f": {given.command}" if given.command else ""
    return f"Themis {chapter.themis}, commit {given.commit}{runs}{command}."


def _figure(chapter: Chapter, picture: Picture, svgs: Svgs) -> str:
    svg = svgs.get((chapter.id, picture.name))
    if svg is None:
        return f'<p class="note">Not drawn (matplotlib is missing): {escape(picture.caption)}</p>'
    body = inline_svg(svg, f"{chapter.id}-{picture.name}", picture.caption)
    return f"<figure>{body}<figcaption>{_prose(picture.caption)}</figcaption></figure>"


def _table(sheet: ChapterTable) -> str:
    rows = "".join("<tr>" + "".join(_cell(text) for text in row) + "</tr>" for row in sheet.rows)
    caption = f"<caption>{escape(sheet.title)}</caption>"
    return _wide(f"{caption}{_head(*sheet.columns)}<tbody>{rows}</tbody>")


def _cell(text: str) -> str:
    number = bool(re.match(r"[-+]?[0-9]", text))
    return f'<td class="number">{escape(text)}</td>' if number else f"<td>{escape(text)}</td>"


def _head(*names: str) -> str:
    return "<thead><tr>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr></thead>"


def inline_svg(svg: str, name: str, caption: str) -> str:
    """An SVG file as part of a page: nothing that points outside, ids that are its own."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", body)
    body = body.replace("xlink:href=", "href=")
    prefix = re.sub(r"[^A-Za-z0-9_-]", "-", name)
    # One page holds many figures, and each of them has an axes_1.
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'href="#', f'href="#{prefix}-', body)
    body = body.replace("url(#", f"url(#{prefix}-")
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1).strip()
