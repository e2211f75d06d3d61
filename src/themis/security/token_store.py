"""Credentials in the service's store: read from memory, written through.

    saved = store.load()
    tokens = StoredTokens(saved.kept, lambda rows: store.commit(Batch(kept=rows)))

Tokens are checked on every call, which must not wait for a disk. Changes are rare, and durable
before the caller gets an answer.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence

from themis.security.tokens import TokenRow

PREFIXES = ("credential/", "used/", "link/", "session/")
"""The rows of the store that belong to credentials and sessions."""

Commit = Callable[[Mapping[str, str | None]], object]
"""Makes rows durable by key (None deletes one), all or nothing; raises if it cannot."""


class StoredTokens:
    """A `TokenStore` over the rows of a store; safe from several threads."""

    def __init__(self, kept: Mapping[str, str], commit: Commit) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self._rows: dict[str, TokenRow] = {
            key: json.loads(text) for key, text in kept.items() if key.startswith(PREFIXES)
        }

    def read(self, key: str) -> TokenRow | None:
        """The row under this key."""
        return self._rows.get(key)

    def keys(self, prefix: str) -> Sequence[str]:
        """All keys with this prefix, sorted."""
        with self._lock:
            return sorted(key for key in self._rows if key.startswith(prefix))

    def write(self, key: str, row: TokenRow) -> None:
        """Write a row, or replace it."""
        with self._lock:
            self._commit({key: json.dumps(dict(row), allow_nan=False)})
            self._rows[key] = dict(row)

    def take(self, key: str) -> TokenRow | None:
        """Delete a row and return it. Of several callers at most one gets it."""
        with self._lock:
            if key not in self._rows:
                return None
            self._commit({key: None})
            return self._rows.pop(key)
