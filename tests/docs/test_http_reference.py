"""The reference of the HTTP API against the errors of the service."""

from pathlib import Path

from themis.service.http.responses import error_answer

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"


def test_statuses_of_errors_are_those_of_the_service() -> None:
    from themis import errors  # noqa: PLC0415 - looked into by name

    text = PAGE.read_text("utf-8")
    for name in ("UnknownCaller", "Denied", "Missing", "UnknownApp", "Duplicate", "Refused"):
        problem = error_answer(getattr(errors, f"{name}Error")("who", "why"))
        line = next(item for item in text.splitlines() if f"`{name}Error`" in item)
        assert line.startswith(f"| {int(problem.status)} |")
        assert f"`{problem.error}`" in line
