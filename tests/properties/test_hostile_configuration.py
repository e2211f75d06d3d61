"""Whatever is in a configuration: it is taken, or refused with its place. Nothing else happens."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.memory_token_store import MemoryTokenStore
from themis.config.keys import KEYS, SECTIONS
from themis.config.loader import examine
from themis.config.reload import changed_keys
from themis.errors import UnknownCallerError
from themis.security.audit import audited
from themis.security.browser_sessions import check_session, redeem_link
from themis.security.permissions import Verb
from themis.security.tokens import Identity, Role, check_bearer, check_token

ODD = ("127.0.0.1:80", "0.0.0.0:1", "5m", "1e400", "nan", "-1", "10G", "true", "a=1", "fifo", "\0")
TEXTS = st.text(max_size=30) | st.sampled_from(ODD)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.just(10**400)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([*KEYS, *SECTIONS, "lease", "f", "vision", "bidder"]) | TEXTS
WHO = Identity(Role.TENANT, "vision", "0" * 12)


def written(folder: Path, data: Any) -> Path:
    """JSON is YAML, apart from NaN and what lies beyond the first plane."""
    path = folder / "themis.yaml"
    path.write_text(json.dumps(data), "utf-8")
    return path


@given(data=st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=3), max_size=4))
def test_any_file_is_taken_or_refused(tmp_path_factory: Any, data: dict[str, Any]) -> None:
    path = written(tmp_path_factory.mktemp("hostile"), data)
    found = examine(path, environ={"HOME": "/h"})
    assert (found.loaded is None) is bool(found.mistakes)
    for mistake in found.mistakes:
        assert len(str(mistake)) < 5000
    if found.loaded is not None:
        assert changed_keys(found.loaded, found.loaded) == []


@given(name=st.sampled_from(sorted(KEYS)), text=TEXTS.filter(lambda text: "\0" not in text))
def test_any_variable_is_taken_or_refused(name: str, text: str) -> None:
    found = examine(environ={"HOME": "/h", KEYS[name].variable: text})
    if found.loaded is None:
        assert KEYS[name].variable in str(found.mistakes[0])


@given(name=st.sampled_from(sorted(KEYS)), value=VALUES)
def test_any_value_is_taken_or_refused(name: str, value: object) -> None:
    found = examine(environ={"HOME": "/h"}, flags={name: value})
    assert (found.loaded is None) is bool(found.mistakes)
    assert all(len(str(mistake)) < 2000 for mistake in found.mistakes)


@given(value=VALUES)
def test_unissued_credentials_identify_no_caller(value: object) -> None:
    token_store = MemoryTokenStore()
    for check in (check_token, check_bearer, check_session, redeem_link):
        try:
            check(token_store, value, now=1.0)
        except UnknownCallerError:
            continue
        raise AssertionError(check)


@given(what=st.text(), details=st.dictionaries(st.text(), SCALARS, max_size=4))
def test_any_audit_row_is_short_and_printable(what: str, details: dict[str, object]) -> None:
    row = audited(WHO, Verb.SUBMIT, what, at=1.0, details=details)
    assert row.target.isprintable()
    assert row.detail.isprintable()
    assert len(row.target) + len(row.detail) <= 800
