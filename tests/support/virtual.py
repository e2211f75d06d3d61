"""Virtual time for tests; see `themis.evaluation.rehearsal.virtual_loop`."""

from themis.evaluation.rehearsal.virtual_loop import AtOnce, VirtualLoop, run_virtually

__all__ = ["AtOnce", "VirtualLoop", "run_virtually"]
