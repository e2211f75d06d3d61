"""A token store that keeps its rows in memory only."""

from themis.security.token_store import TokenStore


class MemoryTokenStore(TokenStore):
    """For tests of what stands on credentials; `rows` is all that a store would keep."""

    def __init__(self) -> None:
        super().__init__({}, lambda _: None)
