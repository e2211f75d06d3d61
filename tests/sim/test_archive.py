"""Finished runs as one file."""

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from themis.errors import ConfigError, MissingFileError
from themis.sim import RunConfig, run
from themis.sim.runs.archive import LONGEST, Taken, pack, unpack
from themis.sim.runs.result_cache import ResultCache, stored

CONFIG = RunConfig(cluster="demo16", policy="fifo", apps=1, seed=3)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    store = ResultCache(tmp_path / "runs")
    store.make()
    store.save(CONFIG, stored(run(CONFIG)))
    return store.folder


def test_a_run_is_found_again_after_it_went_through_an_archive(runs: Path, tmp_path: Path) -> None:
    assert pack(runs, tmp_path / "all.xz") == 1
    assert unpack(tmp_path / "all.xz", tmp_path / "other") == Taken(files=1, runs=1, there=0)
    there, came = ResultCache(runs).load(CONFIG), ResultCache(tmp_path / "other").load(CONFIG)
    assert there is not None
    assert came == there


def test_the_same_runs_give_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    pack(runs, tmp_path / "one.xz")
    unpack(tmp_path / "one.xz", tmp_path / "other")
    pack(tmp_path / "other", tmp_path / "two.xz")
    assert (tmp_path / "one.xz").read_bytes() == (tmp_path / "two.xz").read_bytes()


def test_archive_hides_original_paths(tmp_path: Path) -> None:
    lab = tmp_path / "somebodys" / "lab.yaml"
    lab.parent.mkdir()
    lab.write_text("racks: [{machines: [{name: a, slots: 1x4}]}]", "utf-8")
    config = replace(CONFIG, cluster=str(lab))
    store = ResultCache(tmp_path / "runs")
    store.make()
    store.save(config, stored(run(config)))
    before = store.load(config)
    assert before is not None
    assert before.config.cluster == str(lab)
    pack(store.folder, tmp_path / "all.xz")
    assert b"somebodys" not in lzma.decompress((tmp_path / "all.xz").read_bytes())
    unpack(tmp_path / "all.xz", tmp_path / "other")
    assert ResultCache(tmp_path / "other").load(config) == replace(
        before, config=replace(config, cluster="lab.yaml")
    )


def test_a_file_that_is_no_run_is_packed_as_it_is(runs: Path, tmp_path: Path) -> None:
    (runs / "half.json").write_text('{"config": ')
    (runs / "list.json").write_text("[1]\n")
    pack(runs, tmp_path / "all.xz")
    unpack(tmp_path / "all.xz", tmp_path / "other")
    assert (tmp_path / "other" / "half.json").read_text() == '{"config": '
    assert (tmp_path / "other" / "list.json").read_text() == "[1]\n"


def test_existing_results_stay(runs: Path, tmp_path: Path) -> None:
    pack(runs, tmp_path / "all.xz")
    record = next(runs.glob("*.json"))
    record.write_text("mine\n")
    assert unpack(tmp_path / "all.xz", runs) == Taken(files=0, runs=0, there=1)
    assert record.read_text() == "mine\n"


def test_companion_files_are_not_counted_as_runs(runs: Path, tmp_path: Path) -> None:
    for name in ("a.timing", "b.live"):
        (runs / name).write_text("{}\n")
    pack(runs, tmp_path / "all.xz")
    taken = unpack(tmp_path / "all.xz", tmp_path / "other")
    assert taken == Taken(files=3, runs=1, there=0)


def _archive(path: Path, *lines: bytes) -> Path:
    path.write_bytes(lzma.compress(b"".join(line + b"\n" for line in lines)))
    return path


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"[1]", id="no object"),
        pytest.param(json.dumps({"file": "../x.json", "text": ""}).encode(), id="a way out"),
        pytest.param(json.dumps({"file": "x.py", "text": ""}).encode(), id="another kind"),
        pytest.param(json.dumps({"file": "x.json\n", "text": ""}).encode(), id="a longer name"),
        pytest.param(json.dumps({"file": "x.json", "text": 1}).encode(), id="no text in it"),
        pytest.param(b'{"file": "x.json", "text": "\\ud800"}', id="half a character"),
        pytest.param(b" " * (LONGEST + 1), id="too long"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_and_nothing_is_taken(
    line: bytes, tmp_path: Path
) -> None:
    good = json.dumps({"file": "a.json", "text": "{}\n"}).encode()
    archive = _archive(tmp_path / "bad.xz", good, line)
    with pytest.raises(ConfigError, match=r"bad\.xz:2"):
        unpack(archive, tmp_path / "runs")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["bad.xz"]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("cut", [0, 40])
def test_invalid_or_truncated_archive_is_refused(cut: int, runs: Path, tmp_path: Path) -> None:
    pack(runs, tmp_path / "all.xz")
    whole = (tmp_path / "all.xz").read_bytes()
    (tmp_path / "bad.xz").write_bytes(whole[:-40] if cut else b"hello")
    with pytest.raises(ConfigError, match=r"bad\.xz: unpack: got 'a file that is damaged"):
        unpack(tmp_path / "bad.xz", tmp_path / "other")


def test_nothing_is_taken_from_a_truncated_archive(tmp_path: Path) -> None:
    lines = [
        json.dumps({"file": f"{name}.json", "text": "".join(map(chr, range(300, 3000)))}).encode()
        for name in range(200)
    ]
    whole = _archive(tmp_path / "all.xz", *lines).read_bytes()
    (tmp_path / "cut.xz").write_bytes(whole[: len(whole) * 2 // 3])
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "7.json").write_text("mine\n")
    read: list[int] = []
    with pytest.raises(ConfigError, match=r"cut\.xz"):
        unpack(tmp_path / "cut.xz", runs, read.append)
    assert len(read) > 1
    assert [path.name for path in runs.iterdir()] == ["7.json"]
    assert unpack(tmp_path / "all.xz", runs) == Taken(files=199, runs=199, there=1)
    assert {path.suffix for path in runs.iterdir()} == {".json"}
    assert (runs / "7.json").read_text() == "mine\n"


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="finished runs"):
        pack(tmp_path, tmp_path / "all.xz")
    assert not list(tmp_path.iterdir())


def test_an_archive_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"none\.xz: there is no such file"):
        unpack(tmp_path / "none.xz", tmp_path / "new" / "runs")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_archive_is_not_replaced(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine\n")
    with pytest.raises(ConfigError, match="a new file, or an archive"):
        pack(runs, tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine\n"
