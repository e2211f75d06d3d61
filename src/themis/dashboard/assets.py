"""The files of the pages, and the HTTP headers that go with them.

    found = asset("main.js")
    found.data, found.headers

All files are in this package. No page loads anything from elsewhere, and the headers make browsers
enforce that: no script or style but these files, and no code made from text.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from themis.errors import MissingError

INDEX = "index.html"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Text may become part of a page only as text.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers ask each time, and get a 304 if the file is the same.
    "Cache-Control": "no-cache",
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the pages."""

    name: str
    data: bytes
    media_type: str
    tag: str
    """Changes with the contents."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {**HEADERS, "ETag": self.tag}


def asset(name: str) -> Asset:
    """A file of the pages.

    Raises:
        MissingError: There is none of this name.
    """
    found = _all().get(name)
    if found is None:
        raise MissingError(name[:200], "there is no such page")
    return found


def names() -> list[str]:
    """The names of all files."""
    return sorted(_all())


@cache
def _all() -> dict[str, Asset]:
    found = {}
    for item in files("themis.dashboard").joinpath("static").iterdir():
        suffix = "." + item.name.rpartition(".")[2]
        if suffix in _TYPES:
            data = item.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
            found[item.name] = Asset(item.name, data, _TYPES[suffix], tag)
    return found
