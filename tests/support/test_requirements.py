from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.requirements import EXAMPLES, examples, require_data, require_tool

NO_TOOL = "no-such-program-anywhere"


def test_a_tool_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "mytool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert require_tool("mytool", package="mypackage") == tool


@pytest.mark.parametrize("flag", ["", "0"])
def test_a_missing_tool_skips_and_names_its_package(
    flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEMIS_REQUIRE_TOOLS", flag)
    with pytest.raises(pytest.skip.Exception, match="Debian package mypackage") as skipped:
        require_tool(NO_TOOL, package="mypackage")
    assert skipped.value.allow_module_level, "where a whole file needs it"


def test_a_missing_tool_fails_where_tools_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEMIS_REQUIRE_TOOLS", "1")
    with pytest.raises(pytest.fail.Exception, match="Debian package mypackage"):
        require_tool(NO_TOOL, package="mypackage")


def test_the_data_folder_is_the_one_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEMIS_DATA", str(tmp_path))
    assert require_data() == tmp_path


def test_without_data_a_test_skips_or_fails_where_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("THEMIS_DATA", raising=False)
    monkeypatch.delenv("THEMIS_REQUIRE_TOOLS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="THEMIS_DATA"):
        require_data()
    monkeypatch.setenv("THEMIS_REQUIRE_TOOLS", "1")
    with pytest.raises(pytest.fail.Exception, match="THEMIS_DATA"):
        require_data()


def test_a_data_folder_that_is_not_there_fails_rather_than_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THEMIS_REQUIRE_TOOLS", raising=False)
    monkeypatch.setenv("THEMIS_DATA", str(tmp_path / "gone"))
    with pytest.raises(pytest.fail.Exception, match="no such folder"):
        require_data()


@pytest.mark.parametrize(("profile", "expected"), [("ci", 60), ("fuzz", 600)])
def test_a_property_test_has_more_examples_when_fuzzing(profile: str, expected: int) -> None:
    now = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert settings().max_examples == EXAMPLES * expected // 60
        assert examples(60).max_examples == expected
    finally:
        settings.load_profile(now)
