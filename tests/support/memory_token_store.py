"""A token_store in memory, for tests of what stands on credentials."""

from collections.abc import Sequence

from themis.security.tokens import TokenRow


class MemoryTokenStore:
    """Satisfies `themis.security.tokens.TokenStore`; `rows` is all that a store would keep."""

    def __init__(self) -> None:
        self.rows: dict[str, TokenRow] = {}

    def read(self, key: str) -> TokenRow | None:
        """The row under this key."""
        return self.rows.get(key)

    def keys(self, prefix: str) -> Sequence[str]:
        """All keys that begin so, sorted."""
        return sorted(key for key in self.rows if key.startswith(prefix))

    def write(self, key: str, row: TokenRow) -> None:
        """Put a row, or another in its place."""
        self.rows[key] = dict(row)

    def take(self, key: str) -> TokenRow | None:
        """Remove a row and return it."""
        return self.rows.pop(key, None)
