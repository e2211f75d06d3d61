"""Credentials in the service's store: read from memory, written through.

    saved = store.load()
    token_store = TokenStore(saved.kept, lambda rows: store.commit(Batch(kept=rows)))

Tokens are checked on every call, which must not wait for a disk. Changes are rare, and durable
before the caller gets an answer.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence

TokenRow = Mapping[str, str | float | None]
"""What the store has under one key: plain JSON."""

PREFIXES = ("credential/", "used/", "link/", "session/")
"""The rows of the store that belong to credentials and sessions."""

Commit = Callable[[Mapping[str, str | None]], object]
"""Makes rows durable by key (None deletes one), all or nothing; raises if it cannot."""


class TokenStore:
    """Rows that outlive the service; each change is durable when it returns. Safe from threads."""

    def __init__(self, kept: Mapping[str, str], commit: Commit) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self.rows: dict[str, TokenRow] = {
            key: json.loads(text) for key, text in kept.items() if key.startswith(PREFIXES)
        }

    def read(self, key: str) -> TokenRow | None:
        """The row under this key."""
        return self.rows.get(key)

    def keys(self, prefix: str) -> Sequence[str]:
        """All keys with this prefix, sorted."""
        with self._lock:
            return sorted(key for key in self.rows if key.startswith(prefix))

    def write(self, key: str, row: TokenRow) -> None:
        """Write a row, or replace it."""
        with self._lock:
            self._commit({key: json.dumps(dict(row), allow_nan=False)})
            self.rows[key] = dict(row)

    def take(self, key: str) -> TokenRow | None:
        """Delete a row and return it. Of several callers at most one gets it."""
        with self._lock:
            if key not in self.rows:
                return None
            self._commit({key: None})
            return self.rows.pop(key)
