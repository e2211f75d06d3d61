"""A real browser, pages that must behave in it, and a service for it to look at."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.browsers import Live, Tabs, browser, live_service
from themis.core.model import Machine

SHOTS_VARIABLE = "THEMIS_SCREENSHOTS"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    # Not for the whole session: as long as playwright is open it keeps an event loop in this
    # thread, and tests elsewhere have their own.
    with browser() as found:
        yield found


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures are kept: THEMIS_SCREENSHOTS, or beside the temporary files of the tests."""
    named = os.environ.get(SHOTS_VARIABLE)
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def tabs(chromium: Any, shots: Path) -> Iterator[Tabs]:
    with ExitStack() as stack:
        opened = Tabs(chromium, shots, stack)
        yield opened
        opened.check()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    machines = [Machine(f"m{number}", f"r{number // 2}", (2, 2)) for number in range(4)]
    with live_service(tmp_path, machines) as found:
        yield found


@pytest.fixture
def empty_service(tmp_path: Path) -> Iterator[Live]:
    with live_service(tmp_path, ()) as found:
        yield found
