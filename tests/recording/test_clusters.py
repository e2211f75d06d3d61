import os
from pathlib import Path

import pytest

from themis.core.model import Machine, Topology
from themis.core.model.presets import preset
from themis.errors import ConfigError
from themis.recording.cluster_files import cluster, parse_cluster, read_cluster

LAB = """\
name: lab
racks:
  - name: left
    machines:
      - {name: big, slots: [4, 4], gpu_model: v100, gpu_memory: 32G}
      - {count: 2, prefix: small-, slots: 2x1}
  - machines:
      - name: odd
        slots: [1]
        gpu_memory: 11.5
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    file = tmp_path / "lab.yaml"
    file.write_text(LAB, encoding="utf-8")
    return file


def one(**machine: object) -> dict[str, object]:
    """A cluster of one machine entry."""
    return {"racks": [{"machines": [{"name": "m", "slots": [2], **machine}]}]}


def test_a_file_becomes_a_topology(lab: Path) -> None:
    assert read_cluster(lab) == Topology(
        (
            Machine("big", "left", (4, 4), "v100", 32.0),
            Machine("small-0", "left", (1, 1)),
            Machine("small-1", "left", (1, 1)),
            Machine("odd", "r1", (1,), "p100", 11.5),
        ),
        "lab",
    )


def test_a_grid_is_slots_times_gpus() -> None:
    (machine,) = parse_cluster(one(slots="4x2")).machines
    assert machine.slots == (2, 2, 2, 2)


@pytest.mark.parametrize("written", ["16G", "16GB", "16 GiB", "16.0G", 16, 16.0])
def test_memory_is_in_gigabytes_however_written(written: object) -> None:
    assert parse_cluster(one(gpu_memory=written)).machines[0].gpu_memory == 16.0


def test_a_cluster_is_a_preset_or_a_file(lab: Path) -> None:
    assert cluster("testbed64", 2) == preset("testbed64", 2)
    assert cluster(str(lab)).name == "lab"
    assert [m.name for m in cluster(str(lab), 2).machines] == ["big", "small-0", "odd"]


def test_a_file_may_have_any_name(lab: Path) -> None:
    plain = lab.rename(lab.with_name("lab"))
    assert cluster(str(plain)).name == "lab"


def test_an_unknown_cluster_suggests_a_preset() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'sim256'\?.*or a YAML file"):
        cluster("sim265")


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\0b", "a\0b.yaml", ".", "nowhere.yaml"])
def test_unknown_cluster_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        cluster(name)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        pytest.param(None, "document", id="nothing"),
        pytest.param([], "document", id="a list"),
        pytest.param({}, "racks", id="no racks"),
        pytest.param({"racks": []}, "racks", id="an empty list of racks"),
        pytest.param({"racks": {"a": 1}}, "racks", id="racks as a mapping"),
        pytest.param({"racks": [None]}, "racks[0]", id="a rack of nothing"),
        pytest.param({"racks": [{"machines": []}]}, "racks[0].machines", id="an empty rack"),
        pytest.param({"racks": [{"name": "r"}]}, "racks[0].machines", id="no machines"),
        pytest.param({"name": "A", **one()}, "name", id="a bad cluster name"),
        pytest.param({"name": 10**5000, **one()}, "name", id="a number as cluster name"),
        pytest.param(one(name="M 0"), "racks[0].machines[0].name", id="a bad machine name"),
        pytest.param(one(name=["a"] * 99), "racks[0].machines[0].name", id="a list as name"),
        pytest.param(one(slots=0), "racks[0].machines[0].slots", id="slots as a number"),
        pytest.param(one(slots=[]), "racks[0].machines[0].slots", id="no slots"),
        pytest.param(one(slots=[0]), "racks[0].machines[0].slots", id="an empty slot"),
        pytest.param(one(slots=[-1]), "racks[0].machines[0].slots", id="a negative slot"),
        pytest.param(one(slots=[True]), "racks[0].machines[0].slots", id="a bool slot"),
        pytest.param(one(slots=[1.5]), "racks[0].machines[0].slots", id="a broken slot"),
        pytest.param(one(slots=[10**5000]), "racks[0].machines[0].slots", id="a huge slot"),
        pytest.param(one(slots=[[2]]), "racks[0].machines[0].slots", id="slots in slots"),
        pytest.param(one(slots=[1] * 5000), "racks[0].machines[0].slots", id="5000 slots"),
        pytest.param(one(slots="2x"), "racks[0].machines[0].slots", id="half a grid"),
        pytest.param(one(slots="0x2"), "racks[0].machines[0].slots", id="a grid of no slots"),
        pytest.param(one(slots="2x0"), "racks[0].machines[0].slots", id="a grid of no GPUs"),
        pytest.param(one(slots="-2x2"), "racks[0].machines[0].slots", id="a negative grid"),
        pytest.param(one(slots="9999x9999"), "racks[0].machines[0].slots", id="a huge grid"),
        pytest.param(one(slots="2x2\n"), "racks[0].machines[0].slots", id="a grid and a line"),
        pytest.param(one(gpu_memory=0), "racks[0].machines[0].gpu_memory", id="no memory"),
        pytest.param(one(gpu_memory=-1), "racks[0].machines[0].gpu_memory", id="negative memory"),
        pytest.param(one(gpu_memory=True), "racks[0].machines[0].gpu_memory", id="bool memory"),
        pytest.param(
            one(gpu_memory=float("nan")), "racks[0].machines[0].gpu_memory", id="NaN memory"
        ),
        pytest.param(one(gpu_memory=10**5000), "racks[0].machines[0].gpu_memory", id="huge memory"),
        pytest.param(one(gpu_memory="0G"), "racks[0].machines[0].gpu_memory", id="zero G"),
        pytest.param(one(gpu_memory="16X"), "racks[0].machines[0].gpu_memory", id="a wrong unit"),
        pytest.param(one(gpu_memory="16M"), "racks[0].machines[0].gpu_memory", id="megabytes"),
        pytest.param(one(gpu_model=100), "racks[0].machines[0].gpu_model", id="a number as model"),
        pytest.param(one(count=2), "racks[0].machines[0]", id="a name and a count"),
        pytest.param(
            {"racks": [{"machines": [{"slots": [1]}]}]}, "racks[0].machines[0]", id="no name"
        ),
        pytest.param(
            {"racks": [{"machines": [{"slots": [1], "count": 2}]}]},
            "racks[0].machines[0]",
            id="a count without prefix",
        ),
        pytest.param(
            {"racks": [{"machines": [{"slots": [1], "count": 0, "prefix": "m"}]}]},
            "racks[0].machines[0].count",
            id="a count of zero",
        ),
        pytest.param(
            {"racks": [{"machines": [{"slots": [1], "count": 10**12, "prefix": "m"}]}]},
            "racks[0].machines[0].count",
            id="a huge count",
        ),
        pytest.param(
            {"racks": [{"machines": [{"slots": "8x8", "count": 99_999, "prefix": "m"}]}]},
            "racks[0].machines[0]",
            id="too many GPUs in all",
        ),
        pytest.param(
            {"racks": [{"machines": [{"slots": [1], "count": 1, "prefix": 3}]}]},
            "racks[0].machines[0].prefix",
            id="a number as prefix",
        ),
        pytest.param(
            {"racks": [{"machines": [{"slots": [1], "count": 1, "prefix": "-"}]}]},
            "racks[0].machines[0].prefix",
            id="a prefix no name starts with",
        ),
    ],
)
def test_invalid_value_is_refused_with_its_key(data: object, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_cluster(data, "here.yaml")
    assert caught.value.key == key
    assert caught.value.where == "here.yaml"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        pytest.param(LAB.replace("2x1", "2y1"), 6, "slots: got '2y1'", id="a bad value"),
        pytest.param(LAB.replace("odd", "big"), 8, "no other machine", id="a machine twice"),
        pytest.param(
            LAB.replace("odd", "small-1"), 8, "no other machine", id="a counted one twice"
        ),
        pytest.param(
            LAB.replace("  - machines", "  - name: left\n    machines"),
            7,
            "no other rack",
            id="a rack twice",
        ),
        pytest.param(
            LAB.replace("        slots: [1]", "        slot: [1]"),
            9,
            r"got 'slot'.*did you mean 'slots'",
            id="a mistyped key",
        ),
        pytest.param(
            LAB.replace("        slots: [1]\n", ""), 8, "slots: got nothing", id="a missing key"
        ),
        pytest.param(LAB.replace("11.5", ".nan"), 10, "gpu_memory: got nan", id="NaN"),
        pytest.param(LAB.replace("11.5", ".inf"), 10, "gpu_memory: got inf", id="infinity"),
        pytest.param(
            LAB.replace("11.5", "0x" + "f" * 9000),
            10,
            "an integer of 9002 digits",
            id="a long number",
        ),
        pytest.param(LAB + "name: again\n", 11, "every key once", id="a key twice"),
        pytest.param(LAB + "  bad: [\n", 11, "plain YAML", id="not YAML"),
        pytest.param(LAB + "on: 1\n", 1, "got 'true'", id="a key that YAML takes for true"),
        pytest.param("a: &x [1]\nb: *x\n", 2, "no aliases", id="an alias"),
        pytest.param("a: !!python/name:os.system x\n", 1, "plain YAML", id="a Python tag"),
        pytest.param("[" * 100_000, 1, "20 levels", id="deep brackets"),
        pytest.param("? [a]\n: 1\n", 1, "plain YAML", id="a list as key"),
        pytest.param("racks: 1\n---\nracks: 2\n", 2, "plain YAML", id="two documents"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(
    text: str, line: int, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        read_cluster(file)
    assert caught.value.where == f"{file}:{line}"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param(b"", "an empty file", id="an empty file"),
        pytest.param(b"racks: \xff", "UTF-8", id="not UTF-8"),
        pytest.param(b"racks: \x01", "plain YAML", id="a control character"),
        pytest.param(b"#" * 1_000_001, "1000000 bytes", id="more than a megabyte"),
        pytest.param(
            b"name: " + b"9" * 9000, "an integer of 9000 digits", id="a number of 9000 digits"
        ),
        pytest.param(b"name: 2020-99-99", "plain YAML", id="a date that is none"),
    ],
)
def test_a_file_that_is_no_plain_text_is_refused(raw: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(raw)
    with pytest.raises(ConfigError, match=message) as caught:
        read_cluster(file)
    assert caught.value.where.startswith(str(file))


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: there is no such file"):
        read_cluster(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="a readable file"):
        read_cluster(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no endless device here")
def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigError, match="1000000 bytes"):
        read_cluster("/dev/zero")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(LAB, encoding="utf-8-sig")
    assert read_cluster(file).name == "lab"
