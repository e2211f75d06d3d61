"""Virtual time for tests; see `themis.live.virtual`."""

from themis.live.virtual import AtOnce, VirtualLoop, run_virtually

__all__ = ["AtOnce", "VirtualLoop", "run_virtually"]
