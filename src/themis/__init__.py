"""Themis shares a GPU cluster fairly among teams who train models."""

# Type checkers know the name. The module `typing` would cost each start of a job its import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from themis.reporting import report

__version__ = "0.1.0"
__all__ = ["__version__", "report"]


def __getattr__(name: str) -> object:
    # Late: every job's supervisor imports this package, and few call this.
    if name == "report":
        from themis.reporting import report  # noqa: PLC0415 - see above

        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
