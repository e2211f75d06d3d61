"""The report as one HTML page that needs no other file and loads none.

page(document(chapters), figures)       # figures are SVG texts by (experiment, name)

Every text is escaped, including those from files and names that users chose.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import assert_never

from themis.evaluation.claims import Verdict
from themis.evaluation.report.document import (
    Block,
    Bullets,
    FigureBlock,
    Heading,
    Link,
    Paragraph,
    TextTable,
    verdict_text,
)

Svgs = Mapping[tuple[str, str], str]

_CODE = re.compile(r"`([^`]+)`")
_VERDICT_CLASSES = {
    verdict_text(verdict): name
    for verdict, name in (
        (Verdict.HOLDS, "good"),
        (Verdict.PARTLY, "half"),
        (Verdict.FAILS, "bad"),
        (Verdict.UNDECIDED, "open"),
        (Verdict.BY_CONSTRUCTION, "open"),
    )
}

# The colours are those of the figures; every verdict has a sign and a word besides.
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; }
h2 { font-size: 1.3rem; margin-top: 2.8rem; border-top: 2px solid #ddd; padding-top: 1rem; }
figcaption, caption, .note { color: #555; }
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


def page(blocks: Sequence[Block], svgs: Svgs) -> str:
    """The report as HTML."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Themis: the evaluation</title><style>{_STYLE}</style></head><body>",
        "<h1>Themis: the evaluation</h1>",
        *(_block(block, svgs) for block in blocks),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _block(block: Block, svgs: Svgs) -> str:
    match block:
        case Heading():
            anchor = f' id="{escape(block.chapter)}"' if block.chapter else ""
            return f"<h2{anchor}>{escape(block.text)}</h2>"
        case Paragraph():
            bold = f"<strong>{escape(block.bold)}</strong> " if block.bold else ""
            muted = ' class="note"' if block.muted else ""
            return f"<p{muted}>{bold}{_prose(block.text)}</p>"
        case Bullets():
            return f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in block.items)}</ul>"
        case TextTable():
            return _table(block)
        case FigureBlock():
            return _figure(block, svgs)
        case _:
            assert_never(block)


def _prose(text: str) -> str:
    """A text with its code marked."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _inline(item: str | Link) -> str:
    if isinstance(item, str):
        return _prose(item)
    name = escape(item.chapter)
    return f'<a href="#{name}">{name}</a><span class="note">{escape(item.after)}</span>'


def _table(table: TextTable) -> str:
    """A table that scrolls on its own where the page is too narrow for it, also with keys."""
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    body = f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide" tabindex="0"><table>{body}</table></div>'


def _cell(item: str | Link) -> str:
    if item in _VERDICT_CLASSES:
        kind = f' class="verdict {_VERDICT_CLASSES[str(item)]}"'
    else:
        kind = ' class="number"' if isinstance(item, str) and _is_number(item) else ""
    return f"<td{kind}>{_inline(item)}</td>"


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+]?[0-9][0-9.,]*( ?%|e[-+][0-9]+)?", text))


def _figure(block: FigureBlock, svgs: Svgs) -> str:
    figure = block.figure
    svg = svgs.get((block.chapter, figure.name))
    if svg is None:
        return f'<p class="note">Not drawn (matplotlib is missing): {escape(figure.caption)}</p>'
    body = inline_svg(svg, f"{block.chapter}-{figure.name}", figure.caption)
    return f"<figure>{body}<figcaption>{_prose(figure.caption)}</figcaption></figure>"


def inline_svg(svg: str, name: str, caption: str) -> str:
    """An SVG file as part of a page: no references to the outside, ids that are its own."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", body)
    body = body.replace("xlink:href=", "href=")
    prefix = re.sub(r"[^A-Za-z0-9_-]", "-", name)
    # A page holds many figures, and each of them has an axes_1.
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'href="#', f'href="#{prefix}-', body)
    body = body.replace("url(#", f"url(#{prefix}-")
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1).strip()
