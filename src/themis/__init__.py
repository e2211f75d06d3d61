"""Themis shares a GPU cluster fairly among teams who train models."""

# Type checkers know the name. The module `typing` would cost each start of a job its import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from themis.agent_host.own_tuner import OwnTuner, Trial, tune
    from themis.reporting import (
        GRACEFUL_EXIT,
        checkpoint_dir,
        checkpoint_due,
        max_iterations,
        params,
        report,
        should_stop,
    )

__version__ = "0.1.0"
__all__ = [
    "GRACEFUL_EXIT",
    "OwnTuner",
    "Trial",
    "__version__",
    "checkpoint_dir",
    "checkpoint_due",
    "max_iterations",
    "params",
    "report",
    "should_stop",
    "tune",
]
_TUNING = ("OwnTuner", "Trial", "tune")


def __getattr__(name: str) -> object:
    # Late: every job's supervisor imports this package, and few call these.
    if name in _TUNING:
        from themis.agent_host import own_tuner  # noqa: PLC0415 - see above

        return getattr(own_tuner, name)
    if name in __all__:
        from themis import reporting  # noqa: PLC0415 - see above

        return getattr(reporting, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
