"""A real browser for tests of pages, and a service behind a socket for it to look at.

For tests of this project: playwright and httpx come with the development tools only.

with browser() as chromium, ExitStack() as stack:
    tabs = Tabs(chromium, folder, stack)
    tab = tabs.open()
    tab.enter(url)
    tab.show("apps", "a-picture-of-it")
    tabs.check()
"""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tests.support.http_service import HttpService, http_service
from tests.support.requirements import missing, require_tool
from themis.config.addresses import Address
from themis.config.keys import CallerLimits, Tls
from themis.core.model import Machine
from themis.service.http.app import make_app
from themis.service.http.connection_limits import ConnectionLimiter
from themis.service.http.server import open_http

_Value = TypeVar("_Value")

LIMIT = 60.0
"""Seconds: only a hang takes so long."""


@contextmanager
def browser() -> Iterator[Any]:
    """Debian's browser, driven by playwright from the package index."""
    program = require_tool("chromium", package="chromium")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it may be missing
    except ImportError:
        missing("playwright is not installed (pip install 'themis-scheduler[dev]')")
    # Its sandbox cannot be had by root.
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=str(program), args=args)
        try:
            yield chromium
        finally:
            chromium.close()


class Tab:
    """A page in the browser, with everything that went wrong in it."""

    def __init__(self, page: Any, shots: Path) -> None:
        self.page = page
        self.base = ""
        self.wrong: list[str] = []
        self.outside: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        """Parts of messages that are to be expected."""
        self._shots = shots
        page.set_default_timeout(1000 * LIMIT)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.wrong.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.base):
            self.outside.append(request.url)

    def enter(self, url: str) -> None:
        """Go in by an address that lets one in."""
        self.base = url[: url.index("/", 8)]
        self.page.goto(url)
        self.ready()

    def show(self, place: str, name: str = "") -> None:
        """Go to a page, and keep a picture of it."""
        if self.page.evaluate("hash => location.hash !== hash", f"#/{place}"):
            with self.moving():
                self.page.evaluate("hash => { location.hash = hash; }", f"#/{place}")
        self.ready()
        if name:
            self.shoot(name)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """What is done in here leads to another page, which is there afterwards."""
        before = self.page.evaluate("document.getElementById('main').dataset.ready ?? ''")
        yield
        self.page.wait_for_function(
            "before => document.getElementById('main').dataset.ready !== before", arg=before
        )
        self.ready()

    def ready(self) -> None:
        """Wait until a page is there and drawn."""
        self.page.wait_for_selector("main h1")
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def shoot(self, name: str) -> None:
        """Keep a picture."""
        self.page.screenshot(path=str(self._shots / f"{name}.png"), full_page=True)

    def text(self) -> str:
        """What can be read."""
        return str(self.page.inner_text("body"))

    def check(self) -> None:
        """Nothing went wrong, and nobody else was asked."""
        assert self.outside == []
        assert [text for text in self.wrong if not any(x in text for x in self.forgiven)] == []


class Tabs:
    """Opens pages, which are checked at the end."""

    def __init__(self, browser: Any, shots: Path, stack: ExitStack) -> None:
        self._browser = browser
        self._shots = shots
        self._stack = stack
        self._open: list[Tab] = []

    def open(
        self, *, width: int = 1280, height: int = 900, scheme: str = "light", loose: bool = False
    ) -> Tab:
        """A page of its own; `loose` lets tools of tests add scripts to it."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, bypass_csp=loose
        )
        self._stack.callback(context.close)
        tab = Tab(context.new_page(), self._shots)
        self._open.append(tab)
        return tab

    def check(self) -> None:
        """All of them."""
        for tab in self._open:
            tab.check()


class Live:
    """A real service behind a socket, in a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, http: HttpService, base: str) -> None:
        self._loop = loop
        self.http = http
        self.base = base

    def do(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Something in the service's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)

    def login(self, who: str) -> str:
        """An address that lets one browser in."""
        answer = self.do(self.http.call(who, "POST", "/v1/login-links"))
        return self.base + str(answer.json()["path"])

    def submit(self, who: str, *names: str) -> None:
        """Small apps."""
        for name in names:
            assert self.do(self.http.submit(who, name, who)).status_code == 200


@contextmanager
def live_service(path: Path, machines: Sequence[Machine], **options: Any) -> Iterator[Live]:
    """A service with these machines; options are those of `http_service`."""
    begun: list[Live] = []
    there, over = threading.Event(), threading.Event()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        async with http_service(path, machines=machines, **options) as http:
            limiter, at = ConnectionLimiter(CallerLimits()), Address("127.0.0.1", 0)
            async with open_http(make_app(http.api), at, limiter, Tls()) as address:
                settings = http.api.settings
                http.api.change(replace(settings, hosts=settings.hosts | {str(address)}))
                begun.append(Live(loop, http, f"http://{address}"))
                there.set()
                await loop.run_in_executor(None, over.wait)
                http.service.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert there.wait(LIMIT)
        yield begun[0]
    finally:
        over.set()
        thread.join(LIMIT)
        assert not thread.is_alive()
