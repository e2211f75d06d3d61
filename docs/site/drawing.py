"""Pictures as SVG: boxes, bars, arrows and words, readable on light and dark pages.

    picture = Picture(640, 200, "What is shown", "The same in words.")
    picture.bar(20, 40, 300, 24, "a", "app A")
    picture.text(20, 90, "it ran for 300 s")
    picture.svg()

A picture brings its own background and follows the reader's preference for light or dark, so it is
readable wherever it stands. Colours are those that colour-blind people can tell apart (Okabe and
Ito), and never say anything that the words do not.
"""

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

STYLE = """
  .back { fill: #ffffff; stroke: #d0d7de; }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .small { font-size: 11px; fill: #59636e; }
  .strong { font-weight: 600; }
  .line { stroke: #59636e; stroke-width: 1.2; fill: none; }
  .dash { stroke: #59636e; stroke-width: 1; stroke-dasharray: 4 3; fill: none; }
  .head { fill: #59636e; }
  .box { fill: #f6f8fa; stroke: #59636e; }
  .a { fill: #56b4e9; } .b { fill: #e69f00; } .c { fill: #009e73; }
  .none { fill: #eaeef2; stroke: #59636e; stroke-dasharray: 3 3; }
  .on { fill: #000000; }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .small { fill: #9ea7b3; }
    .line, .dash { stroke: #9ea7b3; }
    .head { fill: #9ea7b3; }
    .box { fill: #151b23; stroke: #9ea7b3; }
    .none { fill: #212830; stroke: #9ea7b3; }
    text.on { fill: #000000; }
  }
"""


@dataclass
class Picture:
    """One picture; things are drawn in the order in which they are added."""

    width: int
    height: int
    title: str
    words: str
    """The same for who does not see it."""
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Words with their baseline at y."""
        marks = f' class="{kind}"' if kind else ""
        where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self.parts.append(f"<text {where}{marks}>{escape(words)}</text>")

    def bar(
        self, x: float, y: float, width: float, height: float, kind: str, words: str = ""
    ) -> None:
        """A bar, with words in its middle."""
        where = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2"'
        self.parts.append(f'<rect {where} class="{kind}"/>')
        if words:
            on = "" if kind in {"none", "box"} else "on"
            self.text(x + width / 2, y + height / 2 + 4.5, words, on, "middle")

    def box(self, x: float, y: float, width: float, height: float, *lines: str) -> None:
        """A box with lines of words, the first of them strong."""
        self.bar(x, y, width, height, "box")
        top = y + height / 2 - 8 * (len(lines) - 1) + 4.5
        for number, words in enumerate(lines):
            kind = "strong" if number == 0 else "small"
            self.text(x + width / 2, top + 16 * number, words, kind, "middle")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A straight line."""
        self.parts.append(f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" class="{kind}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A horizontal or vertical line with a head at its end."""
        self.line(x1, y1, x2, y2)
        if y1 == y2:
            back = -6 if x2 > x1 else 6
            head = f"M{x2:g} {y2:g} l{back} -4 v8 z"
        else:
            back = -6 if y2 > y1 else 6
            head = f"M{x2:g} {y2:g} l-4 {back} h8 z"
        self.parts.append(f'<path d="{head}" class="head"/>')

    def span(self, x1: float, x2: float, y: float, words: str) -> None:
        """How long something is: a line between two ticks, with words below it."""
        self.line(x1, y, x2, y)
        for x in (x1, x2):
            self.line(x, y - 4, x, y + 4)
        self.text((x1 + x2) / 2, y + 17, words, "small", "middle")

    def svg(self) -> str:
        """The file."""
        size = (
            f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        )
        back = (
            f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8" '
            'class="back"/>'
        )
        told = 'role="img" aria-labelledby="title words"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {told}>',
            f'<title id="title">{escape(self.title)}</title>',
            f'<desc id="words">{escape(self.words)}</desc>',
            f"<style>{STYLE}</style>",
            back,
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"
