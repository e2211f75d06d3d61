"""Mistakes in files are told in the words of files: nothing of Python shows through."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.random_auctions import generated_problem
from themis.recording.auction_files import AuctionFile, auction_text

Cli = Callable[..., Any]
DEEP = "[" * 100_000 + "]" * 100_000
LESS_DEEP = "[" * 400 + "]" * 400
LONG = "9" * 5000
PYTHON = ("recursion", "int_max_str_digits", "string conversion", "None", "True", "False", "NaN")


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        pytest.param(suffix, text, id=f"{name}.{suffix}")
        for suffix in ("json", "yaml")
        for name, text in {
            "deep": DEEP,
            "less deep": LESS_DEEP,
            "deep in a mapping": f'{{"a": {LESS_DEEP}}}',
            "a long integer": f'{{"apps": {LONG}}}',
            "null": "null",
            "true": "true",
            "null inside": '{"apps": null, "racks": null, "problem": null}',
            "true inside": '{"apps": true, "racks": true, "problem": true}',
            "a log of null": '{"themis_log": null}',
            "a workload of null": '{"themis_workload": null}',
            "jobs of null": '[null, true, {"submitted_time": true}, {"jobid": null}]',
        }.items()
    ],
)
def test_no_command_lets_python_speak(cli: Cli, tmp_path: Path, suffix: str, text: str) -> None:
    file = tmp_path / f"file.{suffix}"
    file.write_text(text + "\n")
    for command in (
        ("auction", "solve", file),
        ("auction", "record", "--from", file, "--out", tmp_path / "out"),
        ("replay", file),
        ("trace", "import", file, "--out", tmp_path / "new.jsonl"),
        ("sim", "run", "--workload", file),
        ("sim", "run", "--cluster", file),
        ("sim", "run", "--config", file),
        ("config", "check", file),
    ):
        done = cli(*command)
        assert done.code in {1, 2}
        assert str(file) in done.err
        assert not [word for word in PYTHON if word in done.err], done.err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"budget": True}, "budget: true is not a whole number"),
        ({"problem": None}, "problem: null is not an object"),
        ({"themis_auction": None}, "themis_auction: got nothing, allowed: 1"),
    ],
)
def test_wrong_auction_file_value_is_quoted_as_written(
    cli: Cli, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    file = tmp_path / "auction.json"
    data = json.loads(auction_text(AuctionFile(generated_problem(16, 2, 1))))
    file.write_text(json.dumps({**data, **change}))
    assert f"{file}: {told}" in cli("auction", "solve", file).err


def test_readable_data_that_cannot_be_walked_is_reported_as_too_deep(
    cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "auction.json"
    text = auction_text(AuctionFile(generated_problem(16, 2, 1)))
    origin = f'{{"round": 1, "at": 1.0, "policy": "x", "options": {{"a": {LESS_DEEP}}}}}'
    file.write_text(text.replace('"origin": null', f'"origin": {origin}'))
    assert f"{file}: file: it is nested too deeply" in cli("auction", "solve", file).err


def test_long_yaml_integer_is_reported_with_line_and_key(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"policy: themis\nset:\n  f: {LONG}\n")
    told = f"{file}:3: set.f: got 'an integer of 5000 digits', allowed: at most 1000 digits"
    assert told in cli("config", "check", file).err


@pytest.mark.parametrize("key", ["payment", "bidder", "convention", "hardware", "f"])
def test_boolean_is_quoted_as_it_was_typed(cli: Cli, key: str) -> None:
    done = cli("sim", "run", "--set", f"{key}=true")
    assert done.code == 2
    assert f"{key}: got true, allowed: " in done.err
