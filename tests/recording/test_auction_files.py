"""Auctions as files: what is written is read back, and nothing else gets past the reader."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from themis.core.arbiter import Settings
from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem, Quota, solver
from themis.core.model import AppId, Chunk
from themis.errors import ConfigError, RefusedError, ThemisError
from themis.recording.auction_files import (
    FORMAT_KEY,
    AuctionFile,
    AuctionOrigin,
    auction_files,
    auction_text,
    machines_not_offered,
    parse_auction,
    read_auction,
)
from themis.testing.solvers import random_problem

Spoil = Callable[[dict[str, Any]], object]


@pytest.fixture
def auction() -> AuctionFile:
    """A small one with everything in it."""
    pinned = Candidate((Chunk(1, 2, machine=0), Chunk(0, 1)), 1.5)
    rows = (Candidate((Chunk(1, 4),), 1.0), pinned)
    problem = Problem(
        (OfferedMachine(0, 0, (2, 2)), OfferedMachine(3, 1, (1,))),
        (
            Bidder(AppId("a"), 1.0, 8.0, rows, frozenset({0, 5})),
            Bidder(AppId("b"), 0.5, 2.0, rows[:1]),
        ),
        (Quota((AppId("a"), AppId("b")), 6),),
    )
    return AuctionFile(
        problem,
        not_offered=machines_not_offered(problem),
        budget=1000,
        origin=AuctionOrigin(
            7, 4200.0, "themis", 3, "demo16", {"payment": "lottery"}, Settings(), {"apps": 4}
        ),
        answer=solver("brute-force").solve(problem, 1000),
    )


@pytest.fixture
def data(auction: AuctionFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(auction_text(auction))
    return found


def test_written_auction_is_read_back(auction: AuctionFile, tmp_path: Path) -> None:
    path = tmp_path / "auction-000007.json"
    path.write_text(auction_text(auction))
    again = read_auction(path)
    assert again == auction
    assert auction_text(again) == path.read_text()


def test_auctions_of_all_kinds_survive_and_are_solved_alike() -> None:
    for seed in range(60):
        problem = random_problem(seed)
        held = AuctionFile(problem, not_offered=machines_not_offered(problem))
        again = parse_auction(auction_text(held)).problem
        assert again == problem
        assert solver("search").solve(again) == solver("search").solve(problem)


def test_a_problem_alone_is_enough(data: dict[str, Any], auction: AuctionFile) -> None:
    text = json.dumps({FORMAT_KEY: 1, "not_offered": [5], "problem": data["problem"]})
    found = parse_auction(text)
    assert found.problem == auction.problem
    assert (found.budget, found.origin, found.answer, found.failure) == (None, None, None, "")


def test_machines_that_are_named_and_not_offered_are_listed(auction: AuctionFile) -> None:
    assert auction.not_offered == (5,)
    row = Candidate((Chunk(1, 2, machine=9),), 1.0)
    pinned = replace(auction.problem.bidders[1], rows=(row,))
    problem = replace(auction.problem, bidders=(pinned,), quotas=())
    assert machines_not_offered(problem) == (9,)


def _set(path: str, value: object) -> Spoil:
    """Put a value at a place such as problem.bidders.0.weight."""

    def spoil(data: dict[str, Any]) -> None:
        *way, last = path.split(".")
        here: Any = data
        for step in way:
            here = here[int(step) if step.isdigit() else step]
        here[int(last) if last.isdigit() else last] = value

    return spoil


def _machine(number: int, gpus: int) -> dict[str, object]:
    return {"machine": number, "rack": 0, "slots": [gpus]}


CHUNK = "problem.bidders.0.rows.0.chunks.0"
SPOILT = [
    pytest.param(_set(FORMAT_KEY, 2), FORMAT_KEY, "only format so far", id="another format"),
    pytest.param(_set(FORMAT_KEY, True), FORMAT_KEY, "only format so far", id="true for a one"),
    pytest.param(lambda d: d.pop(FORMAT_KEY), FORMAT_KEY, "only format so far", id="no format"),
    pytest.param(lambda d: d.pop("problem"), "file", "problem is missing", id="no problem"),
    pytest.param(lambda d: d["problem"].pop("machines"), "problem", "machines", id="no machines"),
    pytest.param(_set("extra", 1), "file", "no field 'extra'", id="an unknown key"),
    pytest.param(_set("problem", []), "problem", "an object", id="a problem that is a list"),
    pytest.param(
        _set("problem.bidders.1.weight", -1.0), "problem.bidders[1].weight", "1e-15", id="weight"
    ),
    pytest.param(
        _set("problem.bidders.0.weight", True), "problem.bidders[0].weight", "number", id="bool"
    ),
    pytest.param(
        _set("problem.bidders.0.weight", "1"), "problem.bidders[0].weight", "number", id="text"
    ),
    pytest.param(
        _set("problem.bidders.0.rows.1.rho", 0), "bidders[0].rows[1].rho", "1e-15", id="no rho"
    ),
    pytest.param(
        _set("problem.bidders.0.rho_nothing", 1e300), "rho_nothing", "1e+15", id="huge rho"
    ),
    pytest.param(
        _set("problem.bidders.0.rho_nothing", 10**400), "rho_nothing", "1e+15", id="long rho"
    ),
    pytest.param(_set("problem.bidders.1.app", "a"), "problem", "bids twice", id="app twice"),
    pytest.param(_set("problem.bidders.1.app", "x\x1b[2J"), "[1].app", "a-z", id="escape code"),
    pytest.param(
        _set("problem.machines.1.machine", 0), "problem", "offered twice", id="machine twice"
    ),
    pytest.param(
        _set("problem.machines.0.slots", [10**12]), "machines[0].slots[0]", "4096", id="huge slot"
    ),
    pytest.param(_set("problem.machines.0.slots", [-1]), "slots[0]", "from 0", id="negative slot"),
    pytest.param(_set("problem.machines.0.slots", []), "slots", "1 to 4096", id="no slots"),
    pytest.param(
        _set(
            "problem.machines", [{"machine": i, "rack": 0, "slots": [4096]} for i in range(10, 40)]
        ),
        "problem.machines",
        "at most 100000 GPUs",
        id="more GPUs than any cluster",
    ),
    pytest.param(_set(f"{CHUNK}.level", 4), "chunks[0].level", "from 0 to 3", id="level"),
    pytest.param(_set(f"{CHUNK}.count", 0), "chunks[0].count", "from 1", id="no GPUs"),
    pytest.param(_set(f"{CHUNK}.count", 10**30), "chunks[0].count", "from 1", id="count"),
    pytest.param(_set(f"{CHUNK}.count", 1.5), "chunks[0].count", "whole", id="half a GPU"),
    pytest.param(_set(f"{CHUNK}.machine", 7), "chunks[0].machine", "not_offered", id="pin"),
    pytest.param(
        _set("problem.bidders.0.rows.0.chunks", []), "problem", "row 0 of a has no", id="empty"
    ),
    pytest.param(
        _set("problem.bidders.0.rows.0.chunks", [{"level": 0, "count": 1}] * 1025),
        "rows[0].chunks",
        "1 to 1024",
        id="too many chunks",
    ),
    pytest.param(
        _set("problem.bidders.1.rows", [{"chunks": [{"level": 0, "count": 1}], "rho": 1}] * 4097),
        "bidders[1].rows",
        "0 to 4096",
        id="too many rows",
    ),
    pytest.param(
        _set("problem.bidders.0.machines", [0, 8]), "bidders[0].machines", "not_off", id="allowed"
    ),
    pytest.param(_set("not_offered", [5, 3]), "not_offered", "without", id="offered after all"),
    pytest.param(_set("not_offered", [5, -1]), "not_offered[1]", "from 0", id="negative machine"),
    pytest.param(_set("problem.quotas.0.gpus", -1), "quotas[0].gpus", "from 0", id="quota"),
    pytest.param(_set("problem.quotas.0.apps", ["c"]), "quotas[0].apps[0]", "bids", id="quota app"),
    pytest.param(_set("budget", 0), "budget", "1 to", id="no budget"),
    pytest.param(_set("answer.value", None), "answer.value", "number", id="an answer of nothing"),
    pytest.param(_set("origin.settings.lease", -5), "origin.settings", "lease", id="lease"),
]


@pytest.mark.parametrize(("spoil", "field", "allowed"), SPOILT)
def test_a_bad_file_is_refused_by_field_and_with_what_is_allowed(
    data: dict[str, Any], spoil: Spoil, field: str, allowed: str
) -> None:
    spoil(data)
    with pytest.raises((ConfigError, RefusedError)) as caught:
        parse_auction(json.dumps(data), "x.json")
    message = str(caught.value)
    assert message.startswith("x.json: ")
    assert field in message
    assert allowed in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[]", "a list of 0"),
        ("null", "themis_auction"),
        ('{"themis_auction": 1, "budget": NaN}', "NaN is not a number"),
        ('{"themis_auction": 1, "budget": 1e999}', "file: problem is missing"),
        ('{"themis_auction": 1, "themis_auction": 1}', "a key is there twice"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_non_auction_file_is_explained_in_words(text: str, reason: str) -> None:
    with pytest.raises(ThemisError) as caught:
        parse_auction(text, "x.json")
    assert str(caught.value).startswith("x.json: ")
    assert reason in str(caught.value)


def test_a_number_out_of_range_of_floats_is_refused(data: dict[str, Any]) -> None:
    text = json.dumps(data).replace('"rho": 1.5', '"rho": 1e999')
    assert "1e999" in text
    with pytest.raises(ConfigError, match=r"rows\[1\].rho"):
        parse_auction(text)


def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json: there is no such file"):
        read_auction(tmp_path / "gone.json")
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_auction(binary)
    monkeypatch.setattr("themis.recording.auction_files.MAX_BYTES", 2)
    with pytest.raises(ConfigError, match="at most 2 bytes"):
        read_auction(binary)


def test_a_folder_stands_for_the_auctions_in_it(tmp_path: Path) -> None:
    for name in ("auction-000010.json", "auction-000002.json", "notes.json"):
        (tmp_path / name).write_text("{}")
    assert [path.name for path in auction_files(tmp_path)] == [
        "auction-000002.json",
        "auction-000010.json",
    ]
    assert auction_files(tmp_path / "notes.json") == (tmp_path / "notes.json",)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match="a folder with auctions in it"):
        auction_files(empty)


def test_the_example_in_the_documentation_is_an_auction() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "auction-files.md"
    text = page.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    answer = solver("brute-force").solve(parse_auction(text).problem)
    assert set(answer.winners) == {"first"}
    assert answer.kept[AppId("first")].high == pytest.approx(0.5)


def test_every_key_is_in_the_documentation(data: dict[str, Any]) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "auction-files.md"
    text = page.read_text(encoding="utf-8")
    keys = {*data, *data["problem"], *data["problem"]["bidders"][0], *data["origin"]}
    keys |= {*data["answer"], *data["problem"]["machines"][0]}
    assert sorted(key for key in keys if f"`{key}`" not in text) == []
