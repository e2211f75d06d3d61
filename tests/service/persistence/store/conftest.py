"""A PostgreSQL server for the tests that want one."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import Server, require_postgres, temporary_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with temporary_server(require_postgres()) as server:
        yield server
